"""Sparse attention by FlashMLA, which SGLang and vLLM call for prefills of sparse layers.

Its rows are BF16 and lie in one pool; ours are joined outside of what is timed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from collectors.case import Case
from collectors.errors import UnavailableError
from collectors.op.engines.calls import engine_call, version_of
from collectors.op.kernels.attention import SCALE, build_torch
from collectors.op.kernels.rows import CODECS
from collectors.op.kinds.layouts import LATENT
from collectors.op.prepared import Prepared

MULTIPLE = 64
"""Keys of a row are filled up to a multiple of this with -1, which the kernel skips."""


def build_flash_mla(case: Case, device: torch.device) -> Prepared:
    """``flash_mla.flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v, attn_sink)``.

    Raises:
        UnavailableError: the package is not here, or rows are not BF16.
    """
    attend = engine_call("flash_mla", "flash_mla_sparse_fwd",
                         ("q", "kv", "indices", "sm_scale", "attn_sink"))  # fmt: skip
    if case.options["layout"] != "bytes1024":
        raise UnavailableError("flash_mla: rows in BF16 (layout=bytes1024) only")
    plain = build_torch(case, device)

    def make(generator: torch.Generator) -> tuple[Any, ...]:
        inputs = plain.make(generator)
        queries, window, main, near, far, near_count, far_count, sink = inputs
        rows = torch.cat((CODECS["bf16"].unpack(window), CODECS["bf16"].unpack(main))).bfloat16()
        places = torch.cat((_kept(near, near_count), _kept(far + len(window), far_count)), 1)
        fill = -places.shape[1] % MULTIPLE
        places = torch.nn.functional.pad(places, (0, fill), value=-1)
        return queries, rows[:, None], places[:, None].int(), sink, inputs

    def run(queries, rows, places, sink, _):
        return attend(queries, rows, places, SCALE, d_v=LATENT, attn_sink=sink)[0]

    def reference(_queries, _rows, _places, _sink, inputs):
        return plain.reference(*inputs)

    return replace(plain, make=make, run=run, reference=reference,
                   kernel_source="flash_mla_sparse_fwd",
                   engine_version=version_of("flash-mla", "flash_mla"))  # fmt: skip


def _kept(index: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    there = torch.arange(index.shape[1], device=index.device) < count[:, None]
    return torch.where(there, index, -1)
