"""What can be timed: one record an operator, with its sizes, its least work and who can run it.

Records are plain data and need no torch, so that a plan is made anywhere. An implementation names
the function that builds it as ``module:function``; that module is imported when a case is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from collectors.case import Case
from collectors.errors import InputError

if TYPE_CHECKING:
    import torch

    from collectors.op.prepared import Prepared

    Build = Callable[[Case, torch.device], Prepared]

PORTABLE = "portable"
"""Engine of the implementations that are part of the collectors."""


@dataclass(frozen=True)
class Work:
    """The least that one call must do on one GPU: causal, each byte once, nothing spilled.

    Attributes:
        flops: multiply-adds count two; by arithmetic, named as `aisim_v41.arithmetic.Arithmetic`.
        read_bytes, written_bytes: of its memory [B].
        sent_bytes: that one rank must send to others [B].
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    sent_bytes: float = 0.0


@dataclass(frozen=True)
class SizeRule:
    """A size of an operator.

    Attributes:
        name: in cases.
        meaning: what it counts.
        lowest, highest: inclusive.
        whole: only whole numbers.
        default: where a case does not say; None: it must.
    """

    name: str
    meaning: str
    lowest: float = 1
    highest: float = 1 << 30
    whole: bool = True
    default: float | None = None


@dataclass(frozen=True)
class Implementation:
    """A way to run an operator.

    Attributes:
        engine: ``portable``, or the engine whose kernel it is.
        kernel_source: the kernel, as identities name it.
        build: ``module:function`` of a `Build`.
        serves: options that it can run, by name; an option that is not named may be anything.
        ranks: it runs in as many processes as the case has ranks.
    """

    engine: str
    kernel_source: str
    build: str
    serves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranks: bool = False

    def can_run(self, case: Case) -> bool:
        """Whether the options of a case are among those that it serves."""
        return all(case.options.get(name) in words for name, words in self.serves.items())

    def load(self) -> Build:
        """The function that prepares a case; imports torch."""
        module, _, function = self.build.partition(":")
        return getattr(import_module(module), function)


@dataclass(frozen=True)
class Kind:
    """An operator that can be timed.

    Attributes:
        operator: its name in cases and tables.
        about: what one call does.
        sizes: every size of a case.
        options: words that a case may say, by name; the first is the default.
        work: least work of a case.
        input_bytes: memory of one set of inputs and its output [B]; times the copies that keep a
            cache cold, and twice while the answer is checked, is what a case needs.
        implementations: that are part of the collectors, best first.
        source: where the operator is described.
    """

    operator: str
    about: str
    sizes: tuple[SizeRule, ...]
    options: Mapping[str, tuple[str, ...]]
    work: Callable[[Case], Work]
    input_bytes: Callable[[Case], float]
    implementations: tuple[Implementation, ...]
    source: str

    def complete(self, case: Case) -> Case:
        """The case with defaults filled in.

        Raises:
            InputError: a size or option that is missing, not known, or out of range.
        """
        if case.operator != self.operator:
            raise InputError(f"case {case.text}: this is the kind {self.operator}")
        rules = {rule.name: rule for rule in self.sizes}
        unknown = sorted((set(case.sizes) - set(rules)) | (set(case.options) - set(self.options)))
        if unknown:
            known = ", ".join([*rules, *self.options])
            raise InputError(f"case {case.text}: {unknown[0]} is not known; there are: {known}")
        sizes = dict(case.sizes)
        for name, rule in rules.items():
            if name not in sizes:
                if rule.default is None:
                    raise InputError(f"case {case.text}: {name} is missing ({rule.meaning})")
                sizes[name] = rule.default
            value = sizes[name]
            if not rule.lowest <= value <= rule.highest:
                span = f"{rule.lowest:g} to {rule.highest:g}"
                raise InputError(f"case {case.text}: {name} must be {span} ({rule.meaning})")
            if rule.whole and not float(value).is_integer():
                raise InputError(f"case {case.text}: {name} must be whole ({rule.meaning})")
        options = {name: case.options.get(name, words[0]) for name, words in self.options.items()}
        for name, words in self.options.items():
            if options[name] not in words:
                raise InputError(f"case {case.text}: {name} must be one of {', '.join(words)}")
        return Case(self.operator, sizes, options)
