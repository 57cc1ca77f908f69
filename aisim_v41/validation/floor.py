"""SOL is a floor: bounds of measured cases, laid beside what was measured.

`run_floor_check` converts every case, prices it with the library and says for each whether the
measured time is at least the floor and the graph bound. ``python -m aisim_v41.validation`` prints
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.bound import CaseBounds, Evaluator
from aisim_v41.validation.cases import Case, load_cases
from aisim_v41.validation.conversion import Conversion, Reason
from aisim_v41.validation.convert import convert

if TYPE_CHECKING:
    import pandas as pd

MODEL = "deepseek-v4.1-flash"
_SHARED = (
    "rows of one step share experts, so that fewer are read than independent uniform rows touch"
)
CORRELATED = {
    "b200-prof-ekern-p64k-moe": f"640 rows after one prefix: {_SHARED} (also with replay on)",
    "b200-prof-ekern-p256k-moe": f"640 rows after one prefix: {_SHARED} (also with replay on)",
    "gb10-res-step-c8-moe": f"8 requests of 6 verify rows: {_SHARED}",
    "gb10-res-step-c8-target_graph": f"8 requests of 6 verify rows: {_SHARED}",
    "gb10-res-step-c8": f"8 requests of 6 verify rows: {_SHARED}",
    "gb10-mia-thr-code-c8": f"8 requests of 6 verify and 5 drafted rows: {_SHARED}",
}
"""Cases that are faster than independent uniform routing allows, with the reason. Any other is said
to be unexplained."""

ROWS_OF_ONE_PROMPT = frozenset({"b200-prof-ekern-p64k-moe", "b200-prof-ekern-p256k-moe"})
"""Of these, kernel groups that are also faster than the answer of `estimate`, which lets rows of a
verify step share experts, but not those of a prompt. The steps that they are part of are not."""


_LEGEND = (
    "ratio: measured time to floor (resource bound, fewest experts, least work of any build:",
    "  KV rows of the trained layout, weights unpadded, replay on where it is not stated)",
    "graph_ratio: measured time to graph bound of the same reading, engine's fusions",
    "independent: cases at least as slow as that with independent uniform routing",
    "preset: cases at least as slow as estimate() says for the engine's preset",
)


class Verdict(StrEnum):
    """Whether a measured time respects its bounds."""

    HELD = "held"
    BELOW_GRAPH = "below graph bound"
    """At least the floor, but faster than the dependency graph allows."""
    VIOLATED = "violated"
    """Faster than the floor."""


@dataclass(frozen=True, slots=True)
class Result:
    """One converted case with its bounds."""

    conversion: Conversion
    bounds: CaseBounds

    @property
    def case(self) -> Case:
        """The case."""
        return self.conversion.case

    @property
    def measured_s(self) -> float:
        """Measured time [s]."""
        return self.conversion.measured_ms * MILLISECOND

    @property
    def verdict(self) -> Verdict:
        """Floor first: a time below it is below the graph bound too."""
        if self.measured_s < self.bounds.floor_s:
            return Verdict.VIOLATED
        if self.measured_s < self.bounds.graph_s:
            return Verdict.BELOW_GRAPH
        return Verdict.HELD

    @property
    def holds_independent(self) -> bool:
        """Whether it is also at least the graph bound with independent uniform routing."""
        return self.measured_s >= self.bounds.independent_s

    @property
    def holds_preset(self) -> bool:
        """Whether it is also at least what `aisim_v41.estimate` says for the engine's preset."""
        return self.measured_s >= self.bounds.preset_s


@dataclass(frozen=True, slots=True)
class Skipped:
    """A case without a bound, and why."""

    case: Case
    reason: Reason


@dataclass(frozen=True, slots=True)
class FloorReport:
    """The check of all cases; every case is in one of the two lists."""

    results: tuple[Result, ...]
    skipped: tuple[Skipped, ...]

    @property
    def ok(self) -> bool:
        """No measured time is below its floor or its graph bound."""
        return all(result.verdict is Verdict.HELD for result in self.results)

    @property
    def violations(self) -> tuple[Result, ...]:
        """Cases that are faster than a bound."""
        return tuple(r for r in self.results if r.verdict is not Verdict.HELD)

    @property
    def correlated(self) -> tuple[Result, ...]:
        """Cases below the bound with independent uniform routing, as taken or as preset."""
        return tuple(r for r in self.results if not (r.holds_independent and r.holds_preset))

    @property
    def reasons(self) -> dict[Reason, int]:
        """How many cases have no bound, by reason."""
        return dict(Counter(skipped.reason for skipped in self.skipped).most_common())

    def to_frame(self) -> pd.DataFrame:
        """One row a case.

        Columns: case, source, class, gpu, gpus, quantity, measured (as printed), measured_ms and
        meaning (as the time that is compared), floor_ms, graph_ms, taken_floor_ms (the floor with
        what is not stated as taken), independent_ms, preset_ms, resource (what decides the floor),
        ratio (measured to floor), graph_ratio, verdict, holds_independent, holds_preset,
        assumptions; and reason for cases without a bound.
        """
        import pandas as pd

        rows = [_row(result) for result in self.results]
        rows += [{**_identity(s.case), "reason": str(s.reason)} for s in self.skipped]
        return pd.DataFrame(rows)

    def summary(self, by: str = "class") -> pd.DataFrame:
        """One row a "class", "source" or "gpu": cases, checked, held, and the tightest ratios."""
        import pandas as pd

        key: Callable[[Case], str] = {
            "class": lambda case: case.kind,
            "source": lambda case: case.source,
            "gpu": lambda case: case.gpu,
        }[by]
        rows = []
        for name in dict.fromkeys(key(case) for case in self._cases()):
            results = [r for r in self.results if key(r.case) == name]
            floors = [r for r in results if r.bounds.floor_s > 0]
            tightest = min(floors, key=_ratio, default=None)
            tightest_graph = min(results, key=_graph_ratio, default=None)
            rows.append(
                {
                    by: name,
                    "cases": sum(key(case) == name for case in self._cases()),
                    "checked": len(results),
                    "held": sum(r.verdict is Verdict.HELD for r in results),
                    "independent": sum(r.holds_independent for r in results),
                    "preset": sum(r.holds_preset for r in results),
                    "ratio": None if tightest is None else _ratio(tightest),
                    "tightest": None if tightest is None else tightest.case.name,
                    "graph_ratio": None if tightest_graph is None else _graph_ratio(tightest_graph),
                    "tightest_graph": None if tightest_graph is None else tightest_graph.case.name,
                }
            )
        return pd.DataFrame(rows)

    def brief(self) -> str:
        """How many cases were checked, and every violation."""
        total = len(self.results) + len(self.skipped)
        first = (
            f"SOL is a floor: {len(self.results)} of {total} cases checked, "
            f"{len(self.violations)} below a bound"
        )
        return "\n".join([first, *(_violation(result) for result in self.violations)])

    def to_text(self) -> str:
        """The summary, the reasons and every case that needs a word."""
        lines = [
            self.brief().splitlines()[0],
            "",
            *_table(self.summary("class")),
            "",
            *_table(self.summary("source").query("checked > 0")),
            "",
            *_LEGEND,
            "",
            "not checked:",
            *(f"  {count:4d}  {reason}" for reason, count in self.reasons.items()),
        ]
        if self.correlated:
            lines += ["", "faster than independent uniform routing (not a violation):"]
            lines += [_correlated(result) for result in self.correlated]
        lines += ["", "VIOLATIONS:" if self.violations else "violations: none"]
        lines += [_violation(result) for result in self.violations]
        return "\n".join(lines)

    def _cases(self) -> list[Case]:
        return [*(r.case for r in self.results), *(s.case for s in self.skipped)]


def run_floor_check(cases: Iterable[Case] | None = None, model: Model | None = None) -> FloorReport:
    """Check measured cases against the bounds of the steps that must have run inside them.

    Args:
        cases: the packaged ones by default.
        model: DeepSeek-V4.1-Flash by default.

    Raises:
        UnsupportedPlanError: the model has no step model.

    Example:
        >>> run_floor_check(load_cases()[:20]).ok
        True
    """
    loaded = load_model(MODEL) if model is None else model
    if not isinstance(loaded, Model):
        raise UnsupportedPlanError(f"{loaded.name} has no step model; the cases are of {MODEL}")
    evaluator = Evaluator(loaded)
    results, skipped = [], []
    for case in load_cases() if cases is None else cases:
        converted = convert(case)
        if isinstance(converted, Reason):
            skipped.append(Skipped(case, converted))
        else:
            results.append(Result(converted, evaluator.bounds(converted)))
    return FloorReport(tuple(results), tuple(skipped))


def _ratio(result: Result) -> float:
    return result.measured_s / result.bounds.floor_s


def _graph_ratio(result: Result) -> float:
    return result.measured_s / result.bounds.graph_s


def _identity(case: Case) -> dict[str, object]:
    return {
        "case": case.name,
        "source": case.source,
        "class": case.kind,
        "gpu": case.gpu,
        "gpus": case.gpus,
        "quantity": case.quantity,
        "measured": case.measured,
    }


def _row(result: Result) -> dict[str, object]:
    bounds, conversion = result.bounds, result.conversion
    return {
        **_identity(result.case),
        "measured_ms": conversion.measured_ms,
        "meaning": conversion.meaning,
        "floor_ms": bounds.floor_s / MILLISECOND,
        "graph_ms": bounds.graph_s / MILLISECOND,
        "taken_floor_ms": bounds.taken_s / MILLISECOND,
        "independent_ms": bounds.independent_s / MILLISECOND,
        "preset_ms": bounds.preset_s / MILLISECOND,
        "resource": bounds.resource,
        "ratio": _ratio(result) if bounds.floor_s else None,
        "graph_ratio": _graph_ratio(result),
        "verdict": str(result.verdict),
        "holds_independent": result.holds_independent,
        "holds_preset": result.holds_preset,
        "assumptions": "; ".join(conversion.assumptions),
    }


def _correlated(result: Result) -> str:
    b = result.bounds
    why = CORRELATED.get(result.case.name, "unexplained")
    return (
        f"  {result.case.name}: measured {result.conversion.measured_ms:.4g} ms; independent "
        f"{b.independent_s / MILLISECOND:.4g}, preset {b.preset_s / MILLISECOND:.4g}, fewest "
        f"{b.graph_s / MILLISECOND:.4g} ms. {why}"
    )


def _violation(result: Result) -> str:
    b = result.bounds
    return (
        f"  {result.case.name} ({result.verdict}): measured {result.conversion.measured_ms:.6g} ms "
        f"({result.conversion.meaning}); floor {b.floor_s / MILLISECOND:.6g} ms by {b.resource}, "
        f"graph {b.graph_s / MILLISECOND:.6g} ms; {'; '.join(result.conversion.assumptions)}"
    )


def _table(frame: pd.DataFrame) -> Sequence[str]:
    """A frame as aligned text."""
    cells = [list(frame.columns)]
    for row in frame.itertuples(index=False):
        cells.append([_cell(value) for value in row])
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    numeric = [all(_is_number(line[place]) for line in cells[1:]) for place in range(len(widths))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]


def _cell(value: object) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdigit()
