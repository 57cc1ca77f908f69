"""Number formats by role, as a user writes them: ``main_kv=fp8_e4m3+32``.

One `Precision` says elements and scales; a matrix, a cache row and the arithmetic of a product
follow from it. Roles that nobody sets keep what the checkpoint or the cache layout has.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.model.formats import Format, RowFormat, RowPart
from aisim_v41.units import BITS_PER_BYTE

ELEMENTS: Final = {"fp4_e2m1": 4, "fp8_e4m3": 8, "bf16": 16}
"""Bits of one element."""
SCALES: Final = {"ue8m0": 8, "e4m3": 8, "fp32": 32}
"""Bits of one scale."""
NAMED: Final = {
    "nvfp4": "fp4_e2m1+16/e4m3",
    "mxfp4": "fp4_e2m1+32",
    "mxfp8": "fp8_e4m3+32",
    "fp8": "fp8_e4m3",
}
"""Short names."""
_FORM: Final = "ELEMENT, ELEMENT+GROUP or ELEMENT+GROUP/SCALE"
_MOST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Precision:
    """Elements of one kind, with one scale for ``group`` values side by side (0: no scales).

    Example:
        >>> precision("nvfp4").row(512).bytes
        288
        >>> precision("fp8_e4m3+32").row(512).bytes
        528
    """

    element: str
    group: int = 0
    scale: str = "ue8m0"

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return ELEMENTS[self.element]

    @property
    def scale_bits(self) -> int:
        """Bits of one scale; 0 without scales."""
        return SCALES[self.scale] if self.group else 0

    @property
    def value_bytes(self) -> float:
        """Bytes [B] of one value with its share of a scale."""
        shared = self.scale_bits / self.group if self.group else 0.0
        return (self.bits + shared) / BITS_PER_BYTE

    def matrix(self) -> Format:
        """As a stored matrix: groups lie along its inputs."""
        return Format(str(self), self.bits, self.scale_bits, (1, self.group or 1))

    def row(self, values: int) -> RowFormat:
        """As a cached row of so many values."""
        return RowFormat(str(self), (RowPart(values, self.bits, self.scale_bits, self.group or 1),))

    def __str__(self) -> str:
        if not self.group:
            return self.element
        scale = "" if self.scale == "ue8m0" else f"/{self.scale}"
        return f"{self.element}+{self.group}{scale}"


def precision(text: str) -> Precision:
    """A format as written: ``bf16``, ``fp8_e4m3+32``, ``fp4_e2m1+16/e4m3``, or a short name.

    Raises:
        InvalidInputError: no such element or scale, or a group that is not a whole number.
    """
    element, plus, rest = NAMED.get(text, text).partition("+")
    group, slash, scale = rest.partition("/")
    if element not in ELEMENTS:
        raise InvalidInputError(
            f"format {text!r}: no elements {element!r}; {nearest(element, [*ELEMENTS, *NAMED])}. "
            f"Write {_FORM}"
        )
    if not plus:
        return Precision(element)
    whole = group.isascii() and group.isdigit() and len(group) <= 5 and 1 <= int(group) <= _MOST
    if not whole:
        raise InvalidInputError(
            f"format {text!r}: {group!r} values to a scale must be a whole number from 1 to "
            f"{_MOST}. Write {_FORM}"
        )
    if slash and scale not in SCALES:
        raise InvalidInputError(f"format {text!r}: no scale {scale!r}; {nearest(scale, SCALES)}")
    return Precision(element, int(group), scale or "ue8m0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFormats:
    """Formats that a policy sets by role; None keeps what checkpoint or layout have.

    Attributes:
        main_kv: Global entries.
        window_kv: Window rows.
        index_key: Keys of the indexer.
        expert_weights: Routed experts of the backbone.
        expert_activations: What is multiplied with them.
        dense: Projections of attention and indexer, shared experts, Engram projection.
        wo_a: Grouped output projection; ``dense`` if not given.
        engram_rows: Rows of the Engram tables.
        draft: Projections and experts of the draft blocks.
        head: Output head.
    """

    main_kv: Precision | None = None
    window_kv: Precision | None = None
    index_key: Precision | None = None
    expert_weights: Precision | None = None
    expert_activations: Precision | None = None
    dense: Precision | None = None
    wo_a: Precision | None = None
    engram_rows: Precision | None = None
    draft: Precision | None = None
    head: Precision | None = None

    def __str__(self) -> str:
        given = {role: getattr(self, role) for role in ROLES}
        return ",".join(f"{role}={value}" for role, value in given.items() if value is not None)


ROLES: Final = tuple(field.name for field in fields(RoleFormats))
AS_STORED: Final = RoleFormats()
"""No role set."""


@lru_cache(maxsize=256)
def role_formats(text: str) -> RoleFormats:
    """Formats by role as written: ``main_kv=fp8_e4m3+32,head=fp8``; empty: none is set.

    Raises:
        InvalidInputError: no such role or format, or a role set twice.
    """
    found: dict[str, Precision] = {}
    for part in text.split(",") if text else ():
        role, equals, written = part.strip().partition("=")
        if not equals or role not in ROLES:
            raise InvalidInputError(f"format {part!r}: must be ROLE=FORMAT; {nearest(role, ROLES)}")
        if role in found:
            raise InvalidInputError(f"formats {text!r}: {role} is set twice")
        found[role] = precision(written)
    return RoleFormats(**found) if found else AS_STORED
