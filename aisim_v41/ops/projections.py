"""Dense products of a layer: rows times a stored matrix.

FLOP = 2 x outputs x inputs a row; weight bytes are read once whatever the number of rows.
"""

from __future__ import annotations

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import Family, Form, Operator
from aisim_v41.ops.rank import BF16_BYTES, FP8_BYTES
from aisim_v41.plan.counts import Count
from aisim_v41.units import FLOP_PER_MAC

_ARITHMETIC = {4: Arithmetic.MXFP4_MXFP8, 8: Arithmetic.FP8}
"""By the bits of a stored weight; inputs are FP8."""


def stored_arithmetic(tensor: Tensor) -> Arithmetic:
    """Arithmetic of a product whose weights are used as they are stored."""
    return _ARITHMETIC.get(tensor.format.element_bits, Arithmetic.BF16)


def activation_bytes(tensor: Tensor) -> float:
    """Bytes [B] of one input value: FP8 with scales beside 4-bit or FP8 weights, else BF16."""
    return FP8_BYTES if tensor.format.element_bits in _ARITHMETIC else BF16_BYTES


def projection(
    name: str,
    *tensors: Tensor,
    reads: str,
    writes: str,
    source: str,
    family: Family = Family.PROJECTION,
    rows: Count = Count.QUERY_ROWS,
    active: Count = Count.ACTIVE,
    inputs_per_row: int | None = None,
    output_bytes: float = BF16_BYTES,
) -> Operator:
    """Rows through one matrix, or through several with the same input at once.

    Args:
        name: of the operator.
        *tensors: local matrices [outputs, inputs].
        reads, writes: names of the activation tensors.
        rows: how many rows there are.
        active: whether there are any, so that weights are read.
        inputs_per_row: width of the input where it is not that of the matrix (grouped products).
        output_bytes: of one output value [B].
    """
    first = tensors[0]
    work: Form = sum(FLOP_PER_MAC * t.rows * t.columns for t in tensors) * rows
    width = first.columns if inputs_per_row is None else inputs_per_row
    return Operator(
        name=name,
        family=family,
        flops={stored_arithmetic(first): work},
        weights=sum(t.bytes for t in tensors) * active,
        inputs={reads: width * activation_bytes(first) * rows},
        outputs={writes: sum(t.rows for t in tensors) * output_bytes * rows},
        products=((sum(t.rows for t in tensors), first.columns),),
        launches=1 * active,
        axes=(rows,),
        source=source,
    )
