from __future__ import annotations

import pytest

from aisim_v41.model.formats import BF16, FP8, FP32, Format, RowFormat, RowPart

BLOCKED = Format("fp8", 8, 8, (32, 32))
MXFP4 = Format("mxfp4", 4, 8, (1, 32))


def test_scales_follow_blocks_of_32_by_32() -> None:
    # wq_b: 32768 x 1280 values and 1024 x 40 scales of one byte (model-facts §2)
    assert BLOCKED.element_bytes(32768, 1280) == 32768 * 1280
    assert BLOCKED.scale_bytes(32768, 1280) == 1024 * 40


def test_blocks_round_up_when_a_dimension_does_not_divide() -> None:
    assert BLOCKED.scale_bytes(33, 1) == 2
    assert BLOCKED.scale_bytes(1, 65) == 3


def test_one_routed_expert_takes_18800640_bytes() -> None:
    # w1 and w3 [2304, 5120], w2 [5120, 2304]: half a byte a value, a scale byte per 32
    expert = 2 * MXFP4.bytes(2304, 5120) + MXFP4.bytes(5120, 2304)
    assert expert == 18_800_640


@pytest.mark.parametrize(("plain", "size"), [(BF16, 2), (FP32, 4), (FP8, 1)])
def test_plain_formats_have_no_scales(plain: Format, size: int) -> None:
    assert plain.bytes(3, 7) == 21 * size
    assert plain.scale_bytes(3, 7) == 0


def test_half_bytes_round_up() -> None:
    assert MXFP4.element_bytes(1, 3) == 2
    assert RowPart(3, 4).bytes == 2


def test_row_is_the_sum_of_its_parts_and_padding() -> None:
    row = RowFormat("v4", (RowPart(448, 8, 8, 64), RowPart(64, 16)), 1)
    assert [part.bytes for part in row.parts] == [455, 128]
    assert row.bytes == 584
