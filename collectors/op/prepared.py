"""A case that is ready to run: its inputs, its call, and how to know that the answer is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Agreement:
    """How near an answer must be to the reference.

    Attributes:
        relative: largest norm of the difference over the norm of the reference, each output.
        exact: outputs must be equal element by element (indices, hashes, copied bytes).
    """

    relative: float = 0.0
    exact: bool = False


@dataclass(frozen=True)
class Prepared:
    """A case on a device.

    Attributes:
        make: one set of inputs from a seeded `torch.Generator`; called once a copy, and every
            copy is as large and as hard as another.
        run: the call that is timed, from one set of inputs to a tensor or a tuple of tensors; it
            neither synchronises nor reads a value back, so that a graph can capture it.
        reference: the same answer in plain torch, as simply as it can be said, in FP32 or wider.
        agreement: how near the two must be.
        compare: instead of ``agreement``, for answers that several values satisfy (a top-k with
            ties): from answer, reference and inputs to what is wrong, or None.
        kernel_source: the kernel that really runs, where that is decided while preparing.
        engine_version: of the engine whose kernel it is; empty for the collectors' own.
        outcome: what the inputs turned out to be, such as how many experts they touch.
        samples: instead of timing ``run``: seconds of one unit, several times (launch costs, gaps).
        samples_timer, samples_execution: how those are taken.
    """

    make: Callable[[Any], tuple[Any, ...]]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    agreement: Agreement = Agreement(relative=0.02)
    compare: Callable[[Any, Any, tuple[Any, ...]], str | None] | None = None
    kernel_source: str = ""
    engine_version: str = ""
    outcome: Mapping[str, float] = field(default_factory=dict)
    samples: Callable[[int], list[float]] | None = None
    samples_timer: str = "cpu"
    samples_execution: str = "eager"
