"""One triton kernel for the compressor and every store: a program an entry, formats by constants.

Values are held as pairs (even, odd) in groups that share a scale: ``[GROUPS, HALF]`` each, so that
rotation, packing of 4-bit pairs and group maxima need no shuffle.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import (
    e2m1_codes,
    e4m3_codes,
    e4m3_values,
    ue8m0_codes,
    ue8m0_inverses,
)

GROUPS = {"nvfp4": 32, "mxfp8": 16, "packed": 8, "fp8": 16, "bf16": 16, "none": 16,
          "key_fp4": 4, "key_fp8": 1}  # fmt: skip
"""Groups of a row that share a scale; of formats without scales, any number."""


@triton.jit
def _pooled(source, offsets, WIDTH: tl.constexpr):
    """Softmax of two rows' gates per channel; a row is its latent, then its gates."""
    first, second = source + offsets, source + 2 * WIDTH + offsets
    gate = tl.load(first + WIDTH).to(tl.float32)
    other = tl.load(second + WIDTH).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(other - gate))
    return share * tl.load(first).to(tl.float32) + (1.0 - share) * tl.load(second).to(tl.float32)


@triton.jit
def store_kernel(
    source, weight, cosine, sine, positions, slots, cache, cache_halves, cache_words, latent, eps,
    ROW_BYTES: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr,
    RATIO: tl.constexpr, NORM: tl.constexpr, KEEP: tl.constexpr, HALF_ROTATED: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """Pool (ratio 2), norm, keep the latent, rotate, quantise, store: what the constants ask for.

    ``cache_halves`` and ``cache_words`` are the cache as numbers of 16 and 32 bits.
    """
    entry = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)[:, None]
    pair = group * HALF + tl.arange(0, HALF)[None, :]
    if RATIO == 2:
        source += entry * 4 * WIDTH
        even = _pooled(source, 2 * pair, WIDTH)
        odd = _pooled(source, 2 * pair + 1, WIDTH)
    else:
        source += entry * WIDTH
        even = tl.load(source + 2 * pair).to(tl.float32)
        odd = tl.load(source + 2 * pair + 1).to(tl.float32)
    if NORM:
        square = tl.sum(tl.sum(even * even + odd * odd, axis=1), axis=0)
        factor = 1.0 / tl.sqrt(square / WIDTH + eps)
        even = even * factor * tl.load(weight + 2 * pair).to(tl.float32)
        odd = odd * factor * tl.load(weight + 2 * pair + 1).to(tl.float32)
    if KEEP:
        tl.store(latent + entry * WIDTH + 2 * pair, even.to(tl.bfloat16))
        tl.store(latent + entry * WIDTH + 2 * pair + 1, odd.to(tl.bfloat16))
    if FORMAT != "none":
        turn = pair - (WIDTH // 2 - HALF_ROTATED)
        angle = tl.load(positions + entry) * HALF_ROTATED + turn
        real = tl.load(cosine + angle, mask=turn >= 0, other=1.0)
        imaginary = tl.load(sine + angle, mask=turn >= 0, other=0.0)
        turned = even * real - odd * imaginary
        odd = even * imaginary + odd * real
        even = turned
        row = tl.load(slots + entry).to(tl.int64) * ROW_BYTES
        bytes_, halves, words = cache + row, cache_halves + row // 2, cache_words + row // 4
        largest = tl.maximum(tl.max(tl.abs(even), axis=1), tl.max(tl.abs(odd), axis=1))[:, None]
        if FORMAT == "nvfp4":
            scale = e4m3_codes(largest / 6.0)
            size = e4m3_values(scale).to(tl.float32)
            inverse = tl.where(size > 0, 1.0 / tl.where(size > 0, size, 1.0), 0.0)
            code = e2m1_codes(even * inverse) | (e2m1_codes(odd * inverse) << 4)
            tl.store(bytes_ + pair, code.to(tl.uint8))
            tl.store(bytes_ + WIDTH // 2 + group, scale.to(tl.uint8))
        elif FORMAT == "key_fp4":
            scale = ue8m0_codes(largest, 2, 0x400000)
            inverse = ue8m0_inverses(scale)
            code = e2m1_codes(even * inverse) | (e2m1_codes(odd * inverse) << 4)
            tl.store(bytes_ + pair, code.to(tl.uint8))
            tl.store(bytes_ + WIDTH // 2 + group, scale.to(tl.uint8))
        elif FORMAT == "bf16":
            tl.store(words + pair, _bf16_pair(even, odd))
        elif FORMAT == "key_fp8":
            size = largest / 448.0
            inverse = tl.where(size > 0, 1.0 / tl.where(size > 0, size, 1.0), 0.0)
            tl.store(halves + pair, _e4m3_pair(even * inverse, odd * inverse))
            tl.store(words + WIDTH // 4 + group, size.to(tl.int32, bitcast=True))
        elif FORMAT == "fp8":
            tl.store(halves + pair, _e4m3_pair(even, odd))
        else:
            scale = ue8m0_codes(largest, 8, 0x600000)
            inverse = ue8m0_inverses(scale)
            code = _e4m3_pair(even * inverse, odd * inverse)
            if FORMAT == "mxfp8":
                tl.store(halves + pair, code)
                tl.store(bytes_ + WIDTH + group, scale.to(tl.uint8))
            else:
                plain = group < GROUPS - 1
                tl.store(halves + pair, code, mask=plain)
                start = (WIDTH - 2 * HALF) // 4
                tl.store(words + start + turn, _bf16_pair(even, odd), mask=turn >= 0)
                scale = tl.where(plain, scale, 0)
                tl.store(bytes_ + WIDTH + 2 * HALF + group, scale.to(tl.uint8))


@triton.jit
def _e4m3_pair(even, odd):
    return (e4m3_codes(even) | (e4m3_codes(odd) << 8)).to(tl.int16)


@triton.jit
def _bf16_pair(even, odd):
    low = even.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (odd.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16)


def store(
    source: torch.Tensor, weight: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor,
    positions: torch.Tensor, slots: torch.Tensor, cache: torch.Tensor, latent: torch.Tensor, *,
    codec: str, ratio: int, norm: bool, keep: bool, width: int, eps: float,
) -> None:  # fmt: skip
    """Write the rows of a call into ``cache``, and its latents into ``latent`` where ``keep``.

    Args:
        source: [entries, values], or pairs of rows of values and gates where ``ratio`` is 2.
        codec: a name of `GROUPS`.
    """
    groups = GROUPS[codec]
    flat = cache.view(-1)
    store_kernel[(positions.numel(),)](
        source, weight, cosine, sine, positions, slots,
        flat, flat.view(torch.int16), flat.view(torch.int32), latent, eps,
        ROW_BYTES=cache.shape[-1], WIDTH=width, GROUPS=groups, HALF=width // groups // 2,
        RATIO=ratio, NORM=norm, KEEP=keep, HALF_ROTATED=cosine.shape[-1], FORMAT=codec,
        num_warps=4,
    )  # fmt: skip
