"""Triton reads this when kernels are defined: here they are interpreted."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
