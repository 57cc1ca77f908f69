"""What the checkpoint holds: tensors, parameters and bytes by group, by dtype and by layer.

Source of the closing totals: index and headers of revision fb2764a5 (docs/assumptions.md,
"Weights"). Parameters count a byte that packs two 4-bit values as two, and no scales.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aisim_v41.errors import SchemaError
from aisim_v41.model.description import Model
from aisim_v41.model.tensor import BACKBONE_GROUPS, Tensor, TensorGroup
from aisim_v41.model.tensors import (
    draft_tensors,
    global_tensors,
    layer_tensors,
    vision_tensors,
)

if TYPE_CHECKING:
    import pandas as pd

_STORED_DTYPE = {4: "I8", 8: "F8_E4M3", 16: "BF16", 32: "F32"}
"""Name in the checkpoint's headers by bits of a value; two 4-bit values share an I8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over some tensors."""

    tensors: int = 0
    """Entries in the checkpoint index; scales are entries of their own."""
    parameters: int = 0
    bytes: int = 0
    """Values and scales [B]."""
    scale_bytes: int = 0
    """The part of ``bytes`` that is scales [B]."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            tensors=self.tensors + other.tensors,
            parameters=self.parameters + other.parameters,
            bytes=self.bytes + other.bytes,
            scale_bytes=self.scale_bytes + other.scale_bytes,
        )


def totals(tensors: Iterable[Tensor]) -> Totals:
    """Sums over ``tensors``."""
    return sum((_of(tensor) for tensor in tensors), start=Totals())


def _of(tensor: Tensor) -> Totals:
    return Totals(
        tensors=tensor.stored_tensors,
        parameters=tensor.parameters,
        bytes=tensor.bytes,
        scale_bytes=tensor.scale_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Totals of one checkpoint."""

    name: str
    by_group: Mapping[TensorGroup, Totals]
    by_place: Mapping[str, Totals]
    """``globals``, each ``layers.N`` and ``mtp.N``, ``vision``."""
    by_dtype: Mapping[str, int]
    """Parameters by the dtype of the values as the headers name it."""

    @property
    def total(self) -> Totals:
        """The whole checkpoint."""
        return sum(self.by_group.values(), start=Totals())

    @property
    def backbone(self) -> Totals:
        """The language backbone: no Engram, draft or vision (report §2.1)."""
        backbone = (total for group, total in self.by_group.items() if group in BACKBONE_GROUPS)
        return sum(backbone, start=Totals())

    def to_frame(self) -> pd.DataFrame:
        """One row per group, then the backbone and the whole checkpoint.

        Columns: group, tensors, parameters, bytes, scale_bytes.
        """
        import pandas as pd

        rows = {
            **{group.value: total for group, total in self.by_group.items()},
            "language backbone": self.backbone,
            "whole checkpoint": self.total,
        }
        return pd.DataFrame(
            [
                {
                    "group": group,
                    "tensors": total.tensors,
                    "parameters": total.parameters,
                    "bytes": total.bytes,
                    "scale_bytes": total.scale_bytes,
                }
                for group, total in rows.items()
            ]
        )


def inventory(model: Model) -> Inventory:
    """Totals of the model's checkpoint.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> inventory(load_model("deepseek-v4.1-flash")).total.parameters
        763205315794
    """
    by_group: dict[TensorGroup, Totals] = {}
    by_place: dict[str, Totals] = {}
    by_dtype: dict[str, int] = {}
    for place, tensors in _places(model).items():
        by_place[place] = totals(tensors)
        for tensor in tensors:
            by_group[tensor.group] = by_group.get(tensor.group, Totals()) + _of(tensor)
            dtype = _dtype(tensor)
            by_dtype[dtype] = by_dtype.get(dtype, 0) + tensor.parameters
    ordered = {group: by_group[group] for group in TensorGroup if group in by_group}
    return Inventory(name=model.name, by_group=ordered, by_place=by_place, by_dtype=by_dtype)


def _places(model: Model) -> dict[str, tuple[Tensor, ...]]:
    places = {"globals": tuple(global_tensors(model).values())}
    for layer in model.layers:
        places[f"layers.{layer.index}"] = tuple(layer_tensors(model, layer).values())
    for index, block in enumerate(draft_tensors(model)):
        places[f"mtp.{index}"] = tuple(block.values())
    if model.vision is not None:
        places["vision"] = tuple(vision_tensors(model).values())
    return places


def _dtype(tensor: Tensor) -> str:
    bits = tensor.format.element_bits
    if bits not in _STORED_DTYPE:
        raise SchemaError(f"{tensor.name}: no checkpoint dtype holds values of {bits} bits")
    return _STORED_DTYPE[bits]
