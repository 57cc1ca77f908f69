"""Claims on the checkpoint: tensors, parameters and bytes by class, dtype and layer.

Source of the figures: safetensors headers and index of revision fb2764a5 (fact sheet §2, §11),
which several public inventories give to the digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from aisim_v41.claims.context import Context, Formula
from aisim_v41.model.inventory import Totals
from aisim_v41.model.layers import LayerKind
from aisim_v41.model.tensor import TensorGroup

Column = Literal["tensors", "parameters", "bytes", "scale_bytes"]
DTYPES = ("BF16", "F32", "F8_E4M3", "I8")
SCALED = frozenset(
    {TensorGroup.ATTENTION, TensorGroup.ROUTED_EXPERTS, TensorGroup.SHARED_EXPERTS,
     TensorGroup.INDEXER, TensorGroup.ENGRAM_TABLE, TensorGroup.ENGRAM_PROJECTION,
     TensorGroup.DRAFT_EXPERTS, TensorGroup.DRAFT, TensorGroup.DRAFT_HEADS}
)  # fmt: skip
"""Classes for which scale bytes are printed: those with quantised matrices."""
COUNTED_PLACES = ("layers.2", "layers.8", "layers.20", "layers.24")
"""Layers for which tensors are printed as well as bytes."""
OTHER_PLACES = ("layers.1", "layers.14", "mtp.0", "mtp.1", "mtp.2")


def _slug(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _column(totals: Callable[[Context], Totals], column: Column) -> Formula:
    def value(context: Context) -> int:
        known: int = getattr(totals(context), column)
        return known

    return value


def _group(group: TensorGroup) -> Callable[[Context], Totals]:
    return lambda context: context.inventory.by_group[group]


def _place(name: str) -> Callable[[Context], Totals]:
    return lambda context: context.inventory.by_place[name]


def _plain(context: Context) -> Totals:
    """The first layer without indexer and Engram."""
    plain = (
        layer
        for layer in context.model.layers
        if layer.kind is LayerKind.REUSE and layer.engram_module is None
    )
    return context.inventory.by_place[f"layers.{next(plain).index}"]


def _dtype(name: str) -> Formula:
    return lambda context: context.inventory.by_dtype[name]


def _parts() -> Iterator[tuple[str, Callable[[Context], Totals], tuple[Column, ...]]]:
    sums: tuple[Column, ...] = ("tensors", "parameters", "bytes")
    layer: tuple[Column, ...] = ("tensors", "bytes")
    for group in TensorGroup:
        yield str(group), _group(group), (*sums, "scale_bytes") if group in SCALED else sums
    yield "backbone", lambda context: context.inventory.backbone, sums
    yield "total", lambda context: context.inventory.total, (*sums, "scale_bytes")
    yield "plain-layer", _plain, layer
    for place in COUNTED_PLACES:
        yield place, _place(place), layer
    for place in OTHER_PLACES:
        yield place, _place(place), ("bytes",)


def _formulas() -> Iterator[tuple[str, Formula]]:
    for name, totals, columns in _parts():
        for column in columns:
            yield f"inv-{_slug(name)}-{_slug(column)}", _column(totals, column)
    for dtype in DTYPES:
        yield f"inv-dtype-{_slug(dtype)}", _dtype(dtype)


FORMULAS: Mapping[str, Formula] = dict(_formulas())
"""One formula a printed cell; the registry requires a row of the list for each."""
