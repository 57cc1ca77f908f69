"""Compressor and stores: inputs, the torch way, and the answer in FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from collectors.case import Case
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.rows import CODECS, KEY_CODECS, RowCodec
from collectors.op.kinds.layouts import KEY, LATENT, MAIN, ROTATED
from collectors.op.kinds.spread import DECODE_ROWS
from collectors.op.kinds.stores import PAGE_ROWS, TURNS, pool_rows, row_bytes, stored_rows
from collectors.op.prepared import Prepared

EPSILON = 1e-20
"""Of the model's norms (model-facts §1)."""
THETA = 10000.0
RELATIVE = 0.02
"""Of unpacked rows: numbers next to a rounding boundary may fall to either side."""


class StoreInputs(NamedTuple):
    """One set of inputs.

    Attributes:
        source: [entries, values], or [entries, 2 x (values, gates)] where pairs are pooled, BF16.
        weight: of the norm, [values], BF16.
        cosine, sine: of the angles of a position, [positions, pairs], FP32.
        positions: of entries, [entries], INT64.
        slots: rows of the cache that entries go to, [entries], INT64.
        cache: zeros, [rows of the cache, bytes].
    """

    source: torch.Tensor
    weight: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    cache: torch.Tensor


@dataclass(frozen=True)
class _Store:
    """What a case asks of the kernel."""

    codec: str
    rows: RowCodec | None
    width: int
    ratio: int
    norm: bool
    keep: bool

    @property
    def pools(self) -> bool:
        """Pairs are pooled."""
        return self.ratio == 2


def _store_of(case: Case) -> _Store:
    compresses = case.operator in ("compress_pool", "compress_store")
    norm = case.operator != "main_store"
    ratio = int(case.sizes.get("ratio", 1)) if compresses else 1
    if case.operator == "index_key_store":
        name = case.options["key_format"]
        return _Store(f"key_{name}", KEY_CODECS[name], KEY, ratio, norm, keep=False)
    if case.operator == "compress_pool":
        return _Store("none", None, LATENT, ratio, norm, keep=True)
    name = MAIN[case.options["layout"]]
    return _Store(name, CODECS[name], LATENT, ratio, norm, keep=compresses)


def build_torch(case: Case, device: torch.device) -> Prepared:
    """The torch way: as many kernels as it takes."""
    store = _store_of(case)

    def run(source, weight, cosine, sine, positions, slots, cache):
        latents = source.float()
        if store.pools:
            values, gates = latents.view(-1, 2, 2, LATENT).unbind(2)
            latents = (torch.softmax(gates, 1) * values).sum(1)
        if store.norm:
            latents = torch.nn.functional.rms_norm(latents, (store.width,), weight.float(), EPSILON)
        kept = latents.to(torch.bfloat16)
        if store.rows is None:
            return kept
        turned = latents[:, -ROTATED:].unflatten(-1, (-1, 2))
        even, odd = turned.unbind(-1)
        real, imaginary = cosine[positions], sine[positions]
        latents[:, -ROTATED:] = torch.stack(
            (even * real - odd * imaginary, even * imaginary + odd * real), -1
        ).flatten(-2)
        cache.index_copy_(0, slots, store.rows.pack(latents))
        return (cache, kept) if store.keep else cache

    return _prepared(case, store, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """One kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import stores_triton

    store = _store_of(case)
    entries = stored_rows(case)

    def run(source, weight, cosine, sine, positions, slots, cache):
        latents = torch.empty(
            entries if store.keep else 1, store.width, dtype=torch.bfloat16, device=source.device
        )
        stores_triton.store(
            source, weight, cosine, sine, positions, slots, cache, latents,
            codec=store.codec, ratio=store.ratio, norm=store.norm, keep=store.keep,
            width=store.width, eps=EPSILON,
        )  # fmt: skip
        if store.rows is None:
            return latents
        return (cache, latents) if store.keep else cache

    return _prepared(case, store, run, "triton")


def _prepared(case: Case, store: _Store, run: Callable, kernel_source: str) -> Prepared:
    entries = stored_rows(case)

    def make(generator: torch.Generator) -> StoreInputs:
        device = generator.device
        shape = (entries, 4 * LATENT) if store.pools else (entries, store.width)
        source = torch.randn(shape, generator=generator, device=device).to(torch.bfloat16)
        weight = 1.0 + 0.1 * torch.randn(store.width, generator=generator, device=device)
        rates = THETA ** (-torch.arange(0, ROTATED, 2, device=device) / ROTATED)
        angles = torch.arange(TURNS, device=device)[:, None] * rates
        positions = torch.randint(TURNS, (entries,), generator=generator, device=device)
        cache = torch.zeros(
            pool_rows(case) if row_bytes(case) else 1, row_bytes(case) or 4,
            dtype=torch.uint8, device=device,
        )  # fmt: skip
        return StoreInputs(
            source=source,
            weight=weight.to(torch.bfloat16),
            cosine=angles.cos(),
            sine=angles.sin(),
            positions=positions,
            slots=slots_of(entries, generator),
            cache=cache,
        )

    def reference(source, weight, cosine, sine, positions, slots, cache):
        latents = source.double()
        if store.pools:
            first, second = latents.view(-1, 2, 2 * LATENT).unbind(1)
            shares = torch.exp(first[:, LATENT:]), torch.exp(second[:, LATENT:])
            pooled = shares[0] * first[:, :LATENT] + shares[1] * second[:, :LATENT]
            latents = pooled / (shares[0] + shares[1])
        if store.norm:
            size = (latents.square().mean(-1, keepdim=True) + EPSILON).sqrt()
            latents = latents / size * weight.double()
        kept = latents.to(torch.bfloat16)
        if store.rows is None:
            return kept
        turns = torch.complex(cosine[positions].double(), sine[positions].double())
        pairs = torch.view_as_complex(latents[:, -ROTATED:].reshape(entries, -1, 2))
        turned = torch.view_as_real(pairs * turns).flatten(-2)
        rows = torch.cat((latents[:, :-ROTATED], turned), -1).float()
        stored = torch.zeros_like(cache)  # as it is made
        stored[slots] = store.rows.pack(rows)
        return (stored, kept) if store.keep else stored

    def compare(answer, wanted, inputs):
        caches = (answer[0], wanted[0]) if store.keep else (answer, wanted)
        slots = inputs.slots
        found, due = (store.rows.unpack(cache[slots]) for cache in caches)
        problem = _far(found, due, "stored rows")
        if problem is None and store.keep:
            problem = _far(answer[1].float(), wanted[1].float(), "latents")
        others = torch.ones(caches[0].shape[0], dtype=torch.bool, device=slots.device)
        others[slots] = False
        if problem is None and not torch.equal(caches[0][others], caches[1][others]):
            problem = "rows that the call does not own were written"
        return problem

    return Prepared(
        make=make, run=run, reference=reference, kernel_source=kernel_source,
        compare=None if store.rows is None else compare,
    )  # fmt: skip


def slots_of(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Rows of the cache to write: each in a page of its own, or whole pages, in random order."""
    device = generator.device
    own = rows <= DECODE_ROWS
    pages = torch.randperm(
        rows if own else -(-rows // PAGE_ROWS), generator=generator, device=device
    )
    if own:
        inside = torch.randint(PAGE_ROWS, (rows,), generator=generator, device=device)
        return pages * PAGE_ROWS + inside
    return (pages[:, None] * PAGE_ROWS + torch.arange(PAGE_ROWS, device=device)).flatten()[:rows]


def _far(found: torch.Tensor, due: torch.Tensor, what: str) -> str | None:
    off = torch.linalg.vector_norm(found.double() - due.double())
    relative = float(off / torch.linalg.vector_norm(due.double()))
    return None if relative <= RELATIVE else f"{what} differ by {relative:.3g} of their norm"
