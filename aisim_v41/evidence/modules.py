"""V4.1's own modules as they were timed eagerly: sums of a forward from measured rows alone.

These intervals hold host and kernels together, so they say what an eager forward of exactly that
GPU, mapping, replay setting and build takes, and nothing about kernels in a graph. Rows are
interpolated linearly, along new tokens of a prefill or along the KV of a decode, inside what was
measured; nothing is carried beyond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np

from aisim_v41.errors import MissingProfileError, OutOfRangeError
from aisim_v41.model.description import Model
from aisim_v41.model.layers import Layer, LayerKind
from aisim_v41.tables import OperatorTable, Partition, load_table
from aisim_v41.units import MICROSECOND

Phase = Literal["prefill", "decode"]
BUILD: Final = "1aa0e962b206"
"""SGLang source hash that every row has."""
BOUNDED_ROWS: Final = 128
"""Rows of a late layer under decoder replay in these tables."""
BF16_BYTES: Final = 2


class ModuleStep(NamedTuple):
    """A step of identical requests.

    Attributes:
        phase: which of the engine's code runs.
        batch: requests.
        new_tokens: rows of one request; 1 in a decode.
        prefix_tokens: KV of one request before the step.
    """

    phase: Phase
    batch: int
    new_tokens: int
    prefix_tokens: int


class ModuleTime(NamedTuple):
    """Calls of one module in a forward, and seconds of one call."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EagerRows:
    """Measured modules of one GPU, mapping and replay setting.

    Attributes:
        gpu, tensor_parallel, decoder_replay: the identity.
        campaigns: where the rows are from.
    """

    gpu: str
    tensor_parallel: int
    decoder_replay: Literal["off", "on"]
    campaigns: tuple[str, ...]
    _modules: OperatorTable
    _dense: OperatorTable

    def attention(self, module: str, step: ModuleStep, *, bounded: bool = False) -> float:
        """Seconds of one call of an attention module.

        Args:
            module: ``swa``, ``full_r2``, ``reuse_r2``, ``full_r1``, ``reuse_r1``, ``reindex_r1``.
            step: what runs.
            bounded: a late layer of a prefill under decoder replay, which keeps 128 rows.

        Raises:
            MissingProfileError: no rows of that module.
            OutOfRangeError: outside the measured rows; names what was measured.
        """
        if step.phase == "decode":
            rows = self._attention(module, "decode", "all").where(batch=step.batch)
            return _along(
                rows, "prefix_tokens", step.prefix_tokens, f"{module}, decode, batch {step.batch}"
            )
        new, prefix = step.new_tokens, step.prefix_tokens
        if bounded:
            kept = min(new, BOUNDED_ROWS)
            new, prefix = kept, prefix + new - kept
        everything = self._attention(module, "prefill", "bounded" if bounded else "all")
        rows = everything.where(batch=step.batch, prefix_tokens=prefix)
        if not len(rows):
            known = sorted(
                set(zip(*(everything.sizes[a] for a in ("batch", "prefix_tokens")), strict=True))
            )
            raise OutOfRangeError(
                f"{self.gpu}, {module}, prefill: batch {step.batch} after {prefix} tokens was not "
                f"measured; measured (batch, prefix): {', '.join(f'{b}@{p}' for b, p in known)}"
            )
        where = f"{module}, prefill, batch {step.batch} after {prefix}"
        return _along(rows, "new_tokens_per_request", new, where)

    def rest(self, module: str, tokens: int) -> float:
        """Seconds of one call of a module that the step's rows alone decide.

        Args:
            module: ``shared_gate_up``, ``shared_down``, ``mhc`` (both sites of a layer),
                ``engram_layer_1``, ``engram_layer_14``, ``router_gate``, ``head`` or
                ``routed_experts``.
            tokens: rows of the step.

        Raises:
            MissingProfileError, OutOfRangeError: as for `attention`.
        """
        if module in ("router_gate", "head", "routed_experts"):
            rows = self._of_dense(module)
            return _along(rows, "tokens" if module == "routed_experts" else "rows", tokens, module)
        known = self._select(self._modules, operator=module, phase="any")
        return _along(known, "tokens", tokens, module)

    def all_reduce(self, message_bytes: int) -> float:
        """Seconds of one all-reduce over the ranks, as the framework calls it.

        Raises:
            MissingProfileError, OutOfRangeError: as for `attention`.
        """
        rows = self._of_dense("all_reduce").where(ranks=self.tensor_parallel)
        return _along(rows, "message_bytes", message_bytes, "all_reduce")

    def _attention(self, module: str, phase: str, rows: str) -> Partition:
        return self._select(self._modules, operator=module, phase=phase, prefill_rows=rows)

    def _of_dense(self, module: str) -> Partition:
        return self._select(self._dense, operator=module)

    def _select(self, table: OperatorTable, **identity: str) -> Partition:
        """Rows of a module; those that every mapping shares have no ranks in their identity."""
        wanted = {**identity, "decoder_replay": self.decoder_replay}
        found = [
            one
            for one in table.matching(**wanted)
            if one["tensor_parallel"] in (self.tensor_parallel, 0)
            and one["campaign"] in self.campaigns
        ]
        if len(found) != 1:
            raise MissingProfileError(
                f"{self.gpu}: no eager rows of {identity['operator']} with {self.tensor_parallel} "
                f"ranks and decoder replay {self.decoder_replay}; add a table (docs/tables.md)"
            )
        return table.select(flags=(), **found[0])


def _along(rows: Partition, axis: str, size: int, what: str) -> float:
    """Seconds at a size of one axis, linear between measured rows."""
    sizes = rows.sizes[axis]
    if not len(rows) or not sizes.min() <= size <= sizes.max():
        span = f"{sizes.min()} to {sizes.max()}" if len(rows) else "nothing"
        raise OutOfRangeError(
            f"{rows.gpu}, {what}: {axis} = {size} was not measured; measured: {span}"
        )
    order = np.argsort(sizes, kind="stable")
    return float(np.interp(size, sizes[order], rows.latency_us[order])) * MICROSECOND


@lru_cache(maxsize=32)
def load_eager_rows(
    gpu: str, *, tensor_parallel: int, decoder_replay: Literal["off", "on"]
) -> EagerRows:
    """Measured modules of a GPU, mapping and replay setting.

    Raises:
        MissingProfileError: none were measured; names what was.
        SchemaError: a table is not what it says.

    >>> rows = load_eager_rows("gb300", tensor_parallel=4, decoder_replay="off")
    >>> round(rows.attention("swa", ModuleStep("decode", 1, 1, 1024)) * 1e6, 2)
    1394.02
    """
    modules, dense = load_table(gpu, "v41_modules"), load_table(gpu, "v41_dense")
    known: dict[tuple[object, object], list[str]] = {}
    for one in modules.matching(operator="swa"):
        key = (one["tensor_parallel"], one["decoder_replay"])
        known.setdefault(key, []).append(str(one["campaign"]))
    found = known.get((tensor_parallel, decoder_replay))
    if found is None:
        measured = ", ".join(f"{ranks} ranks, replay {replay}" for ranks, replay in sorted(known))
        raise MissingProfileError(
            f"{gpu}: no eager modules of {tensor_parallel} ranks with decoder replay "
            f"{decoder_replay}; measured: {measured}"
        )
    return EagerRows(
        gpu=gpu,
        tensor_parallel=tensor_parallel,
        decoder_replay=decoder_replay,
        campaigns=tuple(sorted(set(found))),
        _modules=modules,
        _dense=dense,
    )


def module_of(layer: Layer) -> str:
    """Name of a layer's attention module in the tables."""
    if layer.kind is LayerKind.WINDOW_ONLY:
        return "swa"
    return f"{layer.kind}_r{layer.ratio}"


def module_sum(rows: EagerRows, model: Model, step: ModuleStep) -> Mapping[str, ModuleTime]:
    """Attention, shared expert, streams and Engram of a forward: calls and seconds by module.

    Late layers of a prefill under replay are ``<module>_late``.

    Raises:
        MissingProfileError, OutOfRangeError: as for `EagerRows`.
    """
    boundary = model.boundary
    trimmed = rows.decoder_replay == "on" and step.phase == "prefill" and boundary is not None
    kinds = Counter(
        (module_of(layer), trimmed and boundary is not None and layer.index > boundary)
        for layer in model.layers
    )
    found = {
        f"{module}_late" if late else module: ModuleTime(
            calls, rows.attention(module, step, bounded=late)
        )
        for (module, late), calls in kinds.items()
    }
    tokens, layers = step.batch * step.new_tokens, len(model.layers)
    for module in ("shared_gate_up", "shared_down", "mhc"):
        found[module] = ModuleTime(layers, rows.rest(module, tokens))
    for layer in model.layers:
        if layer.engram_module is not None:
            name = f"engram_layer_{layer.index}"
            found[name] = ModuleTime(1, rows.rest(name, tokens))
    return found


def rest_sum(rows: EagerRows, model: Model, step: ModuleStep) -> Mapping[str, ModuleTime]:
    """Experts, routers, all-reduces and head of a forward: calls and seconds by module.

    One all-reduce after the embedding and two a layer: what the source's own composition has
    (docs/op.md, "Eager forwards from measured modules").

    Raises:
        MissingProfileError, OutOfRangeError: as for `EagerRows`.
    """
    tokens, layers = step.batch * step.new_tokens, len(model.layers)
    found = {
        name: ModuleTime(layers, rows.rest(name, tokens))
        for name in ("routed_experts", "router_gate")
    }
    if rows.tensor_parallel > 1:
        message = tokens * model.hidden * BF16_BYTES
        found["all_reduce"] = ModuleTime(1 + 2 * layers, rows.all_reduce(message))
    found["head"] = ModuleTime(1, rows.rest("head", step.batch))
    return found


def total_seconds(times: Mapping[str, ModuleTime]) -> float:
    """Sum over calls [s]."""
    return sum(one.calls * one.seconds for one in times.values())
