"""Units. Inside the library everything is SI base: seconds, bytes, FLOP, bytes/s, FLOP/s.

Conversions happen with the names below and nowhere else; a test greps for stray literals.
GB is 1e9 bytes, GiB is 2**30 bytes. FLOP counts two per multiply-accumulate.
"""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
KB = 1e3
MB = 1e6
GB = 1e9
TB_PER_S = 1e12
GB_PER_S = 1e9
TFLOP_PER_S = 1e12
MILLISECOND = 1e-3
MICROSECOND = 1e-6
NANOSECOND = 1e-9
NANOSECONDS_PER_MICROSECOND = 1000
HOUR = 3600.0
BILLION = 1e9
BITS_PER_BYTE = 8
FLOP_PER_MAC = 2
