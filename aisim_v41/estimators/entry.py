"""The one call in front of the estimators: ``estimate``, and ``compile`` for the hot path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol, CompiledStep
from aisim_v41.estimators.fpm.tables import MeasuredForwards, fpm_of
from aisim_v41.estimators.op.builds import CompiledBuild
from aisim_v41.estimators.op.estimator import Op
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.sol import Sol
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset


@runtime_checkable
class Estimator(Protocol):
    """What every estimator does with a plan."""

    method: str

    def estimate(
        self, plan: Plan, hardware: Hardware, *, extrapolate: bool | None = None
    ) -> Estimate:
        """The time of a plan on a GPU; ``extrapolate`` as for `estimate`."""
        ...


ESTIMATORS: dict[str, Estimator] = {"sol": Sol(), "op": Op(), "fpm": MeasuredForwards()}
COMPILED: dict[str, Callable[[Model, Hardware, Parallel, RuntimePolicy], CompiledStep]] = {
    "sol": CompiledSol,
    "op": CompiledBuild,
}


def _method(method: str) -> str:
    if not isinstance(method, str) or method not in ("auto", *ESTIMATORS):
        raise InvalidInputError(
            f"method = {method!r}: must be one of {', '.join(['auto', *ESTIMATORS])}"
        )
    return "op" if method == "auto" else method


def estimate(
    plan: Plan,
    hardware: Hardware,
    method: str | Estimator = "auto",
    *,
    extrapolate: bool | None = None,
) -> Estimate:
    """How long a plan takes on a GPU.

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.
        method: "op" (measured and calibrated kernels, with a band), "sol" (a lower bound), "fpm"
            (measured whole forwards of exactly this identity), "auto" (the likeliest time that
            asks for no such table, which is "op"), or an estimator such as a loaded `Fpm`.
        extrapolate: whether an answer may lie beyond what was measured. It is tagged
            "extrapolated", with a wider band, and says where in ``beyond``. By default "op" prices
            kernels of any size, and "fpm" answers at the edge of what was measured; True asks for
            everything, False for nothing beyond.

    Raises:
        InvalidInputError: an argument of the wrong kind, or an unknown method.
        UnsupportedPlanError: the mapping does not fit the model or the GPU.
        OutOfRangeError: the plan lies beyond what was measured.
        MissingProfileError: nothing was measured on this GPU or its family.

    Example:
        >>> import aisim_v41 as aisim
        >>> model = aisim.load_model("deepseek-v4.1-flash")
        >>> plan = aisim.Plan(model, [aisim.Request(new_tokens=1, prefix_tokens=4096,
        ...                   kind="decode")], parallel=aisim.Parallel(tp=4))
        >>> aisim.estimate(plan, aisim.load_hardware("gb300")).latency_ms > 0.4
        True
    """
    _require("plan", plan, Plan)
    _require("hardware", hardware, Hardware)
    if extrapolate is not None:
        _require("extrapolate", extrapolate, bool)
    estimator = method if isinstance(method, Estimator) else ESTIMATORS[_method(method)]
    answer = estimator.estimate(plan, hardware, extrapolate=extrapolate)
    if answer.beyond and extrapolate is False:
        more = f", and {len(answer.beyond) - 1} more" if len(answer.beyond) > 1 else ""
        case = " (`coverage` names the collector case)" if answer.method == "op" else ""
        raise OutOfRangeError(f"{answer.beyond[0]}{more}; allow extrapolation, or measure it{case}")
    return answer


def compile(
    model: Model,
    hardware: Hardware,
    *,
    parallel: Parallel | None = None,
    policy: RuntimePolicy | None = None,
    method: str = "auto",
    extrapolate: bool | None = None,
) -> CompiledStep:
    """A step function for simulations and sweeps.

    Args:
        model, hardware, parallel, policy: as for a `Plan`.
        method: by name, as for `estimate`.
        extrapolate: for "fpm", whether steps outside what was measured are answered too; the
            others answer for any.

    Returns:
        ``step(requests) -> seconds`` with ``step.sweep(frame)``.

    Raises:
        InvalidInputError, MissingProfileError, UnsupportedPlanError: as for `estimate`.
    """
    _require("hardware", hardware, Hardware)
    parallel = Parallel() if parallel is None else parallel
    policy = preset("paper") if policy is None else policy
    _require("parallel", parallel, Parallel)
    _require("policy", policy, RuntimePolicy)
    name = _method(method)
    if name == "fpm":
        return fpm_of(model, hardware, parallel, policy, bool(extrapolate))
    if extrapolate is False:
        raise InvalidInputError(
            f"extrapolate = False: {name!r} answers steps of any size; `estimate` can refuse them"
        )
    return COMPILED[name](model, hardware, parallel, policy)


def _require(name: str, value: object, expected: type) -> None:
    if not isinstance(value, expected):
        raise InvalidInputError(
            f"{name} = {value!r}: must be a {expected.__name__}, not {type(value).__name__}"
        )


__all__ = ["UnsupportedPlanError", "compile", "estimate"]
