"""How fast DeepSeek-V4.1-Flash runs on GPUs, and why.

The public surface is the list below; names load on first use, so that importing is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
