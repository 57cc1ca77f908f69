"""Number formats: how many bytes a matrix or a cache row really takes, scales included.

A storage format says what lies in memory. The arithmetic in which a kernel multiplies is another
attribute and lives with the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.units import BITS_PER_BYTE


@dataclass(frozen=True, slots=True)
class Format:
    """Elements of ``element_bits``, with one scale of ``scale_bits`` per block of a matrix.

    ``scale_block`` is (rows, columns) of the elements that share a scale; a dimension that does
    not divide is rounded up, as the checkpoint does.
    """

    name: str
    element_bits: int
    scale_bits: int = 0
    scale_block: tuple[int, int] = (1, 1)

    def element_bytes(self, rows: int, columns: int) -> int:
        """Bytes [B] of the elements of a [rows, columns] matrix."""
        return -(-rows * columns * self.element_bits // BITS_PER_BYTE)

    def scale_bytes(self, rows: int, columns: int) -> int:
        """Bytes [B] of its scales."""
        if self.scale_bits == 0:
            return 0
        block_rows, block_columns = self.scale_block
        scales = -(-rows // block_rows) * -(-columns // block_columns)
        return scales * self.scale_bits // BITS_PER_BYTE

    def bytes(self, rows: int, columns: int) -> int:
        """Bytes [B] of elements and scales."""
        return self.element_bytes(rows, columns) + self.scale_bytes(rows, columns)


FP32 = Format("fp32", 32)
BF16 = Format("bf16", 16)
FP8 = Format("fp8_e4m3", 8)


@dataclass(frozen=True, slots=True)
class RowPart:
    """A run of ``values`` of one width inside a cache row, with its scales."""

    values: int
    bits: int
    scale_bits: int = 0
    group: int = 1
    """Values that share one scale."""

    @property
    def bytes(self) -> int:
        """Bytes [B] of the values and their scales."""
        scales = -(-self.values // self.group) if self.scale_bits else 0
        return -(-(self.values * self.bits + scales * self.scale_bits) // BITS_PER_BYTE)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """One cached row: parts side by side, then padding.

    Example:
        >>> RowFormat("nvfp4", (RowPart(512, 4, 8, 16),)).bytes
        288
    """

    name: str
    parts: tuple[RowPart, ...]
    padding_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes [B] of the whole row."""
        return sum(part.bytes for part in self.parts) + self.padding_bytes
