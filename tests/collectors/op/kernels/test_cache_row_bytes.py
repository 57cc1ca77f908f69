"""Cached rows: bytes as the library counts them, codes by hand, round trips."""

from __future__ import annotations

import pytest
import torch

from aisim_v41.model.cache_rows import (
    bf16_row,
    fp8_key,
    mxfp4_row,
    mxfp8_row,
    nvfp4_row,
    packed_row,
    plain_fp8_row,
)
from collectors.op.kernels import rows
from collectors.op.kinds.layouts import KEY_BYTES, MAIN, ROW_BYTES, WINDOW_BESIDE

torch.set_num_threads(1)

LIBRARY = {
    "nvfp4": nvfp4_row(512), "mxfp8": mxfp8_row(512), "packed": packed_row(512, 64),
    "fp8": plain_fp8_row(512), "bf16": bf16_row(512),
}  # fmt: skip


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("name", LIBRARY)
def test_a_row_takes_the_bytes_that_the_library_counts(name: str):
    packed = rows.CODECS[name].pack(normal(3, 512))
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, LIBRARY[name].bytes) == (3, ROW_BYTES[name])


@pytest.mark.parametrize(("name", "row"), [("fp4", mxfp4_row(128)), ("fp8", fp8_key(128))])
def test_a_key_takes_the_bytes_that_the_library_counts(name: str, row):
    assert rows.KEY_CODECS[name].pack(normal(3, 128)).shape == (3, row.bytes)
    assert row.bytes == KEY_BYTES[name]


def test_layouts_are_named_by_the_bytes_of_main_rows():
    assert {name: f"bytes{ROW_BYTES[row]}" for name, row in MAIN.items()} == {n: n for n in MAIN}
    assert WINDOW_BESIDE == {**MAIN, "bytes288": "mxfp8"}


def test_four_bit_codes_by_hand():
    """Ties go to the even code: 0.25 to 0, 0.75 to 1, 2.5 to 2, 3.5 to 4, 5 to 4."""
    values = torch.tensor([0.0, 0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.1, 99.0, -1.5])
    nearest = [0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, -1.5]
    codes = rows.e2m1_codes(values)
    assert codes.tolist() == [0, 0, 1, 2, 2, 4, 4, 6, 6, 7, 7, 11]
    assert rows.e2m1_values(codes).tolist() == nearest


def test_powers_of_two_by_hand():
    """448 fits 2^0; 449 and 896 need 2^1; 6 is the largest of four bits; zeros need none."""
    largest = torch.tensor([448.0, 449.0, 896.0, 1.75, 0.0])
    assert rows.ue8m0_bytes(largest, 448.0).tolist() == [127, 128, 128, 119, 0]
    assert rows.ue8m0_bytes(torch.tensor([6.0, 6.1, 3.0]), 6.0).tolist() == [127, 128, 126]
    assert rows.ue8m0_values(torch.tensor([127, 119], dtype=torch.uint8)).tolist() == [1, 2**-8]


def test_rows_by_hand():
    """The largest of a group becomes 6 x its scale; the low half of a byte is the even value."""
    values = torch.zeros(1, 512)
    values[0, :2] = torch.tensor([12.0, -4.0])
    packed = rows.pack_nvfp4(values)
    assert packed[0, 0] == 7 | (8 | 4) << 4  # 12 / 2 is 6, -4 / 2 is -2
    assert packed[0, 256] == 0x40  # the scale, 2 in E4M3
    assert rows.unpack_nvfp4(packed)[0, :3].tolist() == [12.0, -4.0, 0.0]
    packed = rows.pack_mxfp8(values)
    assert rows.e4m3_values(packed[0, :1]).tolist() == [384.0]  # 12 / 2^-5
    assert packed[0, 512:514].tolist() == [127 - 5, 0]
    packed = rows.pack_packed(values)
    assert packed[0, 448 + 128] == 127 - 5
    assert packed[0, -1] == 0


@pytest.mark.parametrize("name", LIBRARY)
def test_packing_what_was_unpacked_changes_nothing(name: str):
    codec = rows.CODECS[name]
    once = codec.unpack(codec.pack(4 * normal(8, 512)))
    assert torch.equal(codec.unpack(codec.pack(once)), once)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("nvfp4", 0.13), ("mxfp8", 0.03), ("packed", 0.03), ("fp8", 0.03), ("bf16", 0.002)],
)
def test_rows_are_near_what_was_packed(name: str, bound: float):
    values = normal(16, 512)
    back = rows.CODECS[name].unpack(rows.CODECS[name].pack(values))
    assert 0.0001 < float((back - values).norm() / values.norm()) < bound


def test_keys_are_near_what_was_packed():
    values = normal(16, 128)
    for name, bound in (("fp4", 0.16), ("fp8", 0.03)):
        codec = rows.KEY_CODECS[name]
        back = codec.unpack(codec.pack(values))
        assert 0.0001 < float((back - values).norm() / values.norm()) < bound


@pytest.mark.parametrize("name", LIBRARY)
def test_zeros_stay_zeros(name: str):
    codec = rows.CODECS[name]
    assert not codec.unpack(codec.pack(torch.zeros(2, 512))).any()


@pytest.mark.parametrize("count", [1, 2048, 2049, 5000])
def test_rows_are_drawn_anew_up_to_a_number(count: int):
    drawn = rows.random_rows(rows.CODECS["mxfp8"], count, 512, torch.Generator().manual_seed(3))
    assert drawn.shape == (count, 528)
    assert min(count, 2048) * 0.6 < len(drawn.unique(dim=0)) <= min(count, 2048)
