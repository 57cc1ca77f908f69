"""How fast DeepSeek-V4.1-Flash runs on GPUs, and why.

The public surface is `__all__`. Importing costs nothing; the first use of a function loads the
library, so that no later call pays for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aisim_v41.errors import (
        AisimError,
        CapacityError,
        InvalidInputError,
        MissingProfileError,
        OutOfRangeError,
        SchemaError,
        UnsupportedPlanError,
    )
    from aisim_v41.estimators.compare import compare
    from aisim_v41.estimators.entry import compile, estimate
    from aisim_v41.estimators.fpm.tables import load_fpm
    from aisim_v41.estimators.result import Estimate
    from aisim_v41.hardware import Hardware, load_hardware
    from aisim_v41.memory.capacity import capacity
    from aisim_v41.model.description import Model
    from aisim_v41.model.load import load_model
    from aisim_v41.model.parallel import Parallel
    from aisim_v41.plan.ledger import Ledger, ledger
    from aisim_v41.plan.plan import Plan
    from aisim_v41.plan.policy import RuntimePolicy, policy
    from aisim_v41.plan.request import Request, chunked
    from aisim_v41.sweeps.run import sweep

__version__ = "0.1.0"

_HOME = {
    "AisimError": "errors",
    "CapacityError": "errors",
    "Estimate": "estimators.result",
    "Hardware": "hardware",
    "InvalidInputError": "errors",
    "Ledger": "plan.ledger",
    "MissingProfileError": "errors",
    "Model": "model.description",
    "OutOfRangeError": "errors",
    "Parallel": "model.parallel",
    "Plan": "plan.plan",
    "Request": "plan.request",
    "RuntimePolicy": "plan.policy",
    "SchemaError": "errors",
    "UnsupportedPlanError": "errors",
    "capacity": "memory.capacity",
    "chunked": "plan.request",
    "compare": "estimators.compare",
    "compile": "estimators.entry",
    "coverage": "estimators.op.coverage",
    "estimate": "estimators.entry",
    "ledger": "plan.ledger",
    "load_fpm": "estimators.fpm.tables",
    "load_hardware": "hardware",
    "load_model": "model.load",
    "policy": "plan.policy",
    "sweep": "sweeps.run",
}

__all__ = [
    "AisimError",
    "CapacityError",
    "Estimate",
    "Hardware",
    "InvalidInputError",
    "Ledger",
    "MissingProfileError",
    "Model",
    "OutOfRangeError",
    "Parallel",
    "Plan",
    "Request",
    "RuntimePolicy",
    "SchemaError",
    "UnsupportedPlanError",
    "capacity",
    "chunked",
    "compare",
    "compile",
    "coverage",
    "estimate",
    "ledger",
    "load_fpm",
    "load_hardware",
    "load_model",
    "policy",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'aisim_v41' has no attribute {name!r}")
    home = import_module(f"aisim_v41.{_HOME[name]}")
    if _HOME[name] != "errors":
        import_module("aisim_v41.estimators.entry")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
