"""What a conversion says: steps that must run inside a measured time, or why none can be named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aisim_v41.model.description import Model
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from aisim_v41.validation.cases import Case
from aisim_v41.validation.groups import KernelGroup
from aisim_v41.validation.setting import Machine


class Reason(StrEnum):
    """Why a case has no bound yet."""

    NOT_MEASURED = "not measured: the source prints a ratio only"
    NOT_A_TIME = "not a time: memory or capacity"
    RATIO = "ratio of two times: a bound of each bounds neither side of it"
    UNKNOWN_ENGINE = "no policy preset for the engine"
    NO_HARDWARE_FILE = "no hardware file for the GPU"
    NO_TRACE = "lengths of the requests not public: trace replay"
    NO_LENGTHS = "new tokens of the request not stated: hits unknown"
    KERNELS_NOT_NAMED = "kernels of the group not named"
    NOTHING_CERTAIN = "only activations move: nothing that memory must deliver"


class Unconvertible(Exception):  # noqa: N818 (an answer, not an error)
    """Carries the reason out of nested conversions; never leaves `convert`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Part:
    """Identical steps of the model inside the measured time."""

    requests: tuple[Request, ...]
    times: float = 1.0
    """How many such steps; a share where several requests divide one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One reading of a condition: the steps that then must run, one after the other."""

    name: str
    parts: tuple[Part, ...]
    decoder_replay: bool
    policy: RuntimePolicy
    """Least work, see `aisim_v41.validation.setting.lean_policy`."""
    preset: RuntimePolicy
    """The engine's preset as a user gets it."""

    def plans(self, model: Model, machine: Machine) -> tuple[Plan, ...]:
        """The steps as plans."""
        return tuple(
            Plan(model, part.requests, parallel=machine.parallel, policy=self.policy)
            for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """The measured time is at least that of one of the ways.

    The first way is the case as it is stated, with its ``take``; the others are what the source
    leaves open. Sure is the smallest.
    """

    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A case as bounds.

    Attributes:
        case: the case.
        measured_ms: its value as a time [ms]: of a step, of a prompt, or of one request's share.
        meaning: what that time is.
        machine: GPU and ranks.
        claims: each holds by itself; the largest bound counts.
        group: kernels that the value covers; None: the whole step.
        assumptions: what the bound takes as true beyond the library's own assumptions.
    """

    case: Case
    measured_ms: float
    meaning: str
    machine: Machine
    claims: tuple[Claim, ...]
    group: KernelGroup | None = None
    assumptions: tuple[str, ...] = ()
