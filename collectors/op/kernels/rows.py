"""Cached rows as bytes: packing and unpacking of every layout, in plain torch.

Values come first in a row, then their scales; the low half of a byte is the even value of a pair.
Rounding is to nearest, ties to even. Shared scales are the least powers of two (or E4M3 numbers,
or FP32 numbers) under which nothing saturates; that of ``nvfp4`` is itself rounded. Bytes of rows
are those of `collectors.op.kinds.layouts`. Source: runtime-semantics §6.1; OCP Microscaling
Formats (MX) v1.0, §5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch

from collectors.op.kinds.layouts import LATENT, ROTATED

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of the eight codes without sign."""
E2M1_MAX = 6.0
E4M3_MAX = 448.0
UE8M0_BIAS = 127
NVFP4_GROUP = 16
MX_GROUP = 32
PACKED_GROUP = 64
_SIGN = 8


@dataclass(frozen=True)
class RowCodec:
    """A row format: [..., values] of FP32 to [..., bytes] of bytes and back.

    Attributes:
        pack: rounds.
        unpack: exact.
    """

    pack: Callable[[torch.Tensor], torch.Tensor]
    unpack: Callable[[torch.Tensor], torch.Tensor]


def e2m1_codes(values: torch.Tensor) -> torch.Tensor:
    """Nearest 4-bit codes, ties to the even code."""
    size = values.abs()
    codes = torch.zeros_like(size, dtype=torch.uint8)
    for code, (low, high) in enumerate(pairwise(E2M1)):
        middle = (low + high) / 2
        codes += (size > middle if code % 2 == 0 else size >= middle).to(torch.uint8)
    return codes | torch.where(values < 0, _SIGN, 0).to(torch.uint8)


def e2m1_values(codes: torch.Tensor) -> torch.Tensor:
    """Values of 4-bit codes."""
    return _e2m1_table(codes.device)[codes.long()]


@cache
def _e2m1_table(device: torch.device) -> torch.Tensor:
    """Made once a device: a graph cannot capture a copy from the host."""
    return torch.tensor([*E2M1, *(-value for value in E2M1)], device=device)


def e4m3_bytes(values: torch.Tensor) -> torch.Tensor:
    """Nearest 8-bit codes; larger values become the largest."""
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)


def e4m3_values(codes: torch.Tensor) -> torch.Tensor:
    """Values of 8-bit codes."""
    return codes.contiguous().view(torch.float8_e4m3fn).float()


def ue8m0_bytes(largest: torch.Tensor, highest: float) -> torch.Tensor:
    """Bytes of the least powers of two that bring ``largest`` down to ``highest``."""
    mantissa, exponent = torch.frexp(largest)
    bound, bound_exponent = math.frexp(highest)
    power = exponent - bound_exponent + (mantissa > bound)
    power = torch.where(largest > 0, power, -UE8M0_BIAS)
    return (power.clamp(-UE8M0_BIAS, UE8M0_BIAS) + UE8M0_BIAS).to(torch.uint8)


def ue8m0_values(codes: torch.Tensor) -> torch.Tensor:
    """Powers of two of bytes."""
    return torch.exp2(codes.float() - UE8M0_BIAS)


def _grouped(values: torch.Tensor, group: int) -> torch.Tensor:
    return values.unflatten(-1, (-1, group))


def _largest(values: torch.Tensor, group: int) -> torch.Tensor:
    return _grouped(values, group).abs().amax(-1)


def _divided(values: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
    parts = _grouped(values, group) / scales.unsqueeze(-1)
    return torch.where(scales.unsqueeze(-1) > 0, parts, 0.0).flatten(-2)


def _times(values: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
    return (_grouped(values, group) * scales.unsqueeze(-1)).flatten(-2)


def _pairs(codes: torch.Tensor) -> torch.Tensor:
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _unpaired(codes: torch.Tensor) -> torch.Tensor:
    return torch.stack((codes & 15, codes >> 4), -1).flatten(-2)


def pack_nvfp4(values: torch.Tensor) -> torch.Tensor:
    """E2M1 values, an E4M3 scale per 16."""
    scales = e4m3_bytes(_largest(values, NVFP4_GROUP) / E2M1_MAX)
    codes = e2m1_codes(_divided(values, e4m3_values(scales), NVFP4_GROUP))
    return torch.cat((_pairs(codes), scales), -1)


def unpack_nvfp4(rows: torch.Tensor) -> torch.Tensor:
    """Values of such rows."""
    codes = rows.shape[-1] * 8 // 9
    scales = e4m3_values(rows[..., codes:])
    return _times(e2m1_values(_unpaired(rows[..., :codes])), scales, NVFP4_GROUP)


def pack_mxfp4(values: torch.Tensor) -> torch.Tensor:
    """E2M1 values, a UE8M0 scale per 32."""
    scales = ue8m0_bytes(_largest(values, MX_GROUP), E2M1_MAX)
    codes = e2m1_codes(_divided(values, ue8m0_values(scales), MX_GROUP))
    return torch.cat((_pairs(codes), scales), -1)


def unpack_mxfp4(rows: torch.Tensor) -> torch.Tensor:
    """Values of such rows."""
    codes = rows.shape[-1] * 16 // 17
    scales = ue8m0_values(rows[..., codes:])
    return _times(e2m1_values(_unpaired(rows[..., :codes])), scales, MX_GROUP)


def pack_mxfp8(values: torch.Tensor) -> torch.Tensor:
    """E4M3 values, a UE8M0 scale per 32."""
    scales = ue8m0_bytes(_largest(values, MX_GROUP), E4M3_MAX)
    return torch.cat((e4m3_bytes(_divided(values, ue8m0_values(scales), MX_GROUP)), scales), -1)


def unpack_mxfp8(rows: torch.Tensor) -> torch.Tensor:
    """Values of such rows."""
    codes = rows.shape[-1] * 32 // 33
    return _times(e4m3_values(rows[..., :codes]), ue8m0_values(rows[..., codes:]), MX_GROUP)


_PLAIN = LATENT - ROTATED
_SCALES = _PLAIN // PACKED_GROUP


def pack_packed(values: torch.Tensor) -> torch.Tensor:
    """DeepSeek-V4's: E4M3 values, rotated ones in BF16, a UE8M0 scale per 64, a byte of padding."""
    plain = values[..., :_PLAIN]
    scales = ue8m0_bytes(_largest(plain, PACKED_GROUP), E4M3_MAX)
    return torch.cat(
        (
            e4m3_bytes(_divided(plain, ue8m0_values(scales), PACKED_GROUP)),
            pack_bf16(values[..., _PLAIN:]),
            scales,
            torch.zeros_like(scales[..., :1]),
        ),
        -1,
    )


def unpack_packed(rows: torch.Tensor) -> torch.Tensor:
    """Values of such rows."""
    rotated = _PLAIN + ROTATED * 2
    scales = ue8m0_values(rows[..., rotated : rotated + _SCALES])
    plain = _times(e4m3_values(rows[..., :_PLAIN]), scales, PACKED_GROUP)
    return torch.cat((plain, unpack_bf16(rows[..., _PLAIN:rotated])), -1)


def pack_bf16(values: torch.Tensor) -> torch.Tensor:
    """BF16 values."""
    return values.to(torch.bfloat16).contiguous().view(torch.uint8)


def unpack_bf16(rows: torch.Tensor) -> torch.Tensor:
    """Values of such rows."""
    low, high = rows[..., 0::2].int(), rows[..., 1::2].int()
    return (low << 16 | high << 24).view(torch.float32)


def pack_fp8_key(values: torch.Tensor) -> torch.Tensor:
    """E4M3 values, one FP32 scale."""
    scale = values.abs().amax(-1, keepdim=True) / E4M3_MAX
    codes = e4m3_bytes(torch.where(scale > 0, values / scale, 0.0))
    return torch.cat((codes, scale.contiguous().view(torch.uint8)), -1)


def unpack_fp8_key(rows: torch.Tensor) -> torch.Tensor:
    """Values of such keys."""
    scale = rows[..., -4:].contiguous().view(torch.float32)
    return e4m3_values(rows[..., :-4]) * scale


CODECS: dict[str, RowCodec] = {
    "nvfp4": RowCodec(pack_nvfp4, unpack_nvfp4),
    "mxfp8": RowCodec(pack_mxfp8, unpack_mxfp8),
    "packed": RowCodec(pack_packed, unpack_packed),
    "fp8": RowCodec(e4m3_bytes, e4m3_values),
    "bf16": RowCodec(pack_bf16, unpack_bf16),
}
"""Formats of rows of 512 values."""
KEY_CODECS: dict[str, RowCodec] = {
    "fp4": RowCodec(pack_mxfp4, unpack_mxfp4),
    "fp8": RowCodec(pack_fp8_key, unpack_fp8_key),
}
"""Formats of index keys, and of FP4 index queries."""


DIFFERENT_ROWS = 2048
"""Rows that are drawn and packed; more are copies of them, in random order."""


def random_rows(
    codec: RowCodec, count: int, values: int, generator: torch.Generator
) -> torch.Tensor:
    """Rows of normal values, [count, bytes]."""
    device = generator.device
    drawn = torch.randn(min(count, DIFFERENT_ROWS), values, generator=generator, device=device)
    packed = codec.pack(drawn)
    if count <= DIFFERENT_ROWS:
        return packed
    return packed[torch.randint(DIFFERENT_ROWS, (count,), generator=generator, device=device)]
