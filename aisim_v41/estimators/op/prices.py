"""Seconds of every task of a graph from its evidence, for one step or for many.

Tasks that take the same for any counts are priced once. Those that one number of rows decides are
tabulated (`aisim_v41.estimators.op.curves`), streaming kernels are linear forms of the ledger, and
laws of one kind are evaluated together for the rest, so that a step costs a few dozen array
operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.estimators.op.curves import row_curves
from aisim_v41.estimators.op.evidence import Kernel, KernelEvidence
from aisim_v41.estimators.op.laws import Feature
from aisim_v41.evidence.laws import LAWS, LawKind
from aisim_v41.plan.columns import ACTIVITY, Column

Places = npt.NDArray[np.intp]
ACTIVE_BY = {rows: active for active, rows in ACTIVITY.items()}
"""Rows -> the 0/1 count that they make 1."""
STREAMING = (LawKind.ELEMENTWISE, LawKind.GATHER)
"""Laws whose time is linear in bytes and calls."""


@dataclass(frozen=True, slots=True)
class LawGroup:
    """Kernels whose laws have one form, of tasks that more than their rows decide.

    Attributes:
        kind: form of the law.
        kernels: their evidence.
        names: features that are forms; `constants` are the others, by name, a number where all
            kernels share it, else [kernels].
        forms: [names x kernels, columns] of the ledger.
        parameters: by name, a number where all kernels share it, else [kernels].
        collected: places of kernels that have collected rows.
    """

    kind: LawKind
    kernels: tuple[KernelEvidence, ...]
    names: tuple[str, ...]
    forms: Floats
    constants: Mapping[str, Floats | float]
    parameters: Mapping[str, Floats | float]
    collected: tuple[int, ...] = ()

    def seconds(self, linear: Floats) -> Floats:
        """Seconds of each kernel, from ``forms @ counts``: [kernels], or [kernels, steps].

        As the law's form gives them: also for kernels without rows, and without their peak.
        """
        size = len(self.kernels)
        features = {
            name: linear[place * size : (place + 1) * size] for place, name in enumerate(self.names)
        }
        constants: Mapping[str, Floats | float] = self.constants
        parameters: Mapping[str, Floats | float] = self.parameters
        if linear.ndim > 1:
            constants, parameters = _of_steps(constants), _of_steps(parameters)
        given = {**features, **constants}
        seconds = LAWS[self.kind](given, parameters)
        if self.collected:
            self._take_collected(seconds, given, parameters)
        return seconds

    def _take_collected(
        self,
        seconds: Floats,
        given: Mapping[str, Floats | float],
        parameters: Mapping[str, Floats | float],
    ) -> None:
        """Collected rows in the place of the law, where they reach; beyond, the longer of both."""
        for place in self.collected:
            kernel = self.kernels[place]
            grid = kernel.collected
            assert grid is not None
            rows = np.maximum(np.asarray(given["rows"])[place], 1.0)
            at = [rows * kernel.per_row]
            if kernel.seen is not None:
                total = np.asarray(given["pairs" if "pairs" in given else "positions"])[place]
                at.append(np.maximum(total / rows, _LEAST_SEEN))
            known = grid.seconds(*at)
            if len(grid.touched):
                known = known * self._of_other_experts(place, rows, given, parameters)
            beyond = np.zeros(rows.shape, dtype=bool)
            for size, nodes in zip(at, grid.nodes, strict=True):
                beyond |= size > nodes[-1]
            seconds[place] = np.maximum(known, np.where(beyond, seconds[place], 0.0))

    def _of_other_experts(
        self,
        place: int,
        rows: Floats,
        given: Mapping[str, Floats | float],
        parameters: Mapping[str, Floats | float],
    ) -> Floats:
        """What the law says of visiting other numbers of experts than the timed call did."""
        grid = self.kernels[place].collected
        assert grid is not None
        mine = {name: _of_place(value, place, len(self.kernels)) for name, value in given.items()}
        law = {n: _of_place(value, place, len(self.kernels)) for n, value in parameters.items()}
        timed = {**mine, "touched": grid.touched_at(rows)}
        timed["memory_s"] = mine["memory_s"] * timed["touched"] / np.maximum(mine["touched"], 1.0)
        return np.asarray(LAWS[self.kind](mine, law) / LAWS[self.kind](timed, law))


class TaskPrices:
    """Seconds of the tasks of one compiled graph.

    Args:
        compiled: the graph.
        evidence: kernels of each of its tasks.

    Attributes:
        same: [tasks] number of each task's price; tasks of one number take the same.
        size: how many prices there are.
    """

    def __init__(
        self, compiled: CompiledGraph, evidence: Sequence[Sequence[KernelEvidence]]
    ) -> None:
        self.compiled, self.evidence = compiled, evidence
        self.columns = compiled.program.columns
        numbers: dict[object, int] = {}
        self.same: Places = np.array(
            [numbers.setdefault(self._work(t), len(numbers)) for t in range(len(evidence))], np.intp
        )
        self.size = len(numbers)
        self.first = [int(place) for place in np.unique(self.same, return_index=True)[1]]
        """Task that stands for each price."""
        self._tabulate()

    def seconds(self, counts: Floats) -> Floats:
        """Seconds of one call at each price: [prices], or [prices, steps] of columns of steps;
        never below the resources at peak."""
        seconds = np.empty((self.size, *counts.shape[1:]))
        seconds[self.curved] = self.curves.seconds(counts)
        _, seconds[self._others], floors = self._of_laws(counts)
        seconds[self._floored] = np.maximum(seconds[self._floored], floors)
        return seconds

    def kernels(self, counts: Floats, calls: Floats) -> Iterator[Kernel]:
        """Every kernel of one forward, with the seconds of all its calls and their evidence.

        Seconds of a task's kernels add up to the task's, also where its resources at peak decide.

        Args:
            counts: [columns].
            calls: of every task [tasks].
        """
        alone = dict(zip(self._priced, self._of_laws(counts)[0].tolist(), strict=True))
        spent = self.seconds(counts)
        for place, (task, kernels) in enumerate(
            zip(self.compiled.tasks, self.evidence, strict=True)
        ):
            price = int(self.same[place])
            if not spent[price]:
                continue
            rows = float(counts[self._place(task.rows)])
            least = max(rows, 1.0)
            own = [
                alone[price, n] if (price, n) in alone else self._alone(kernel, rows, counts)
                for n, kernel in enumerate(kernels)
            ]
            total = float(spent[price] * calls[place])
            for kernel, seconds in zip(kernels, own, strict=True):
                seen = 0.0 if kernel.seen is None else float(self._form(kernel.seen) @ counts)
                tag, error, reason = kernel.tag(least, seen)
                share = seconds / sum(own) if sum(own) else 1 / len(own)
                yield Kernel(task, kernel.law, total * share, tag, error, reason, kernel)

    def floor_of_rows(self, place: int) -> tuple[Floats, Floats]:
        """Seconds at peak of one row of a task, and of a call whatever its rows [resources]."""
        forms = self.compiled.resource_forms[place]
        calls = [column.quantity in ACTIVITY for column in self.columns]
        return forms[:, np.logical_not(calls)].sum(axis=1), forms[:, calls].sum(axis=1)

    # --- pricing ------------------------------------------------------------------------------

    def _of_laws(self, counts: Floats) -> tuple[Floats, Floats, Floats]:
        """Seconds of kernels that laws price, of the tasks with such, and of floored ones at
        peak."""
        forms = self._forms @ counts
        spent, first = [], 0
        for group, end in zip(self.groups, self._ends, strict=True):
            spent.append(group.seconds(forms[first:end]))
            first = end
        last = first + len(self._others)
        others = forms[first:last]
        kernels = np.concatenate(spent) if spent else others[:0]
        kernels *= forms[self._rows_of_kernels] > 0
        floors = forms[last:].reshape(len(self._floored), -1, *counts.shape[1:])
        return kernels, self._task_sums @ kernels + others, floors.max(axis=1)

    def _alone(self, kernel: KernelEvidence, rows: float, counts: Floats) -> float:
        """Seconds of one call of a kernel that no group prices."""
        form = None if kernel.rows_column is not None else self._linear(kernel)
        if form is None:
            return float(kernel.seconds_of_rows(np.asarray(rows)))
        return float(form @ counts)

    # --- building -----------------------------------------------------------------------------

    def _work(self, place: int) -> object:
        """What decides a task's time: equal for tasks that take the same for any counts."""
        kernels = tuple(
            (
                id(kernel.law),
                id(kernel.curve),
                id(kernel.collected),
                kernel.per_row,
                tuple(
                    (name, self._form(value).tobytes() if isinstance(value, Mapping) else value)
                    for name, value in kernel.binding.features.items()
                ),
            )
            for kernel in self.evidence[place]
        )
        return kernels, self.compiled.resource_forms[place].tobytes()

    def _tabulate(self) -> None:
        """Prices that rows decide as curves, the others as laws and linear forms of the ledger."""
        by_rows = [self._rows_of(place) for place in self.first]
        self.curved = np.array([n for n, rows in enumerate(by_rows) if rows is not None], np.intp)
        self._others = np.array([n for n, rows in enumerate(by_rows) if rows is None], np.intp)
        self.curves = row_curves(
            [self.evidence[self.first[price]] for price in self.curved],
            [self.floor_of_rows(self.first[price]) for price in self.curved],
            [self._place(by_rows[price]) for price in self.curved],
        )
        found: dict[LawKind, list[tuple[KernelEvidence, int, tuple[int, int]]]] = {}
        linear = np.zeros((len(self._others), len(self.columns)))
        for row, price in enumerate(self._others):
            for number, kernel in enumerate(self.evidence[self.first[price]]):
                form = self._linear(kernel)
                if form is None:
                    name = (int(price), number)
                    found.setdefault(kernel.law.kind, []).append((kernel, row, name))
                else:
                    linear[row] += form
        self.groups = tuple(
            self._group(kind, [kernel for kernel, _, _ in members])
            for kind, members in found.items()
        )
        self._priced = [name for members in found.values() for _, _, name in members]
        owners = [row for members in found.values() for _, row, _ in members]
        self._task_sums = np.zeros((len(self._others), len(owners)))
        self._task_sums[owners, np.arange(len(owners))] = 1.0
        # A kernel whose rows are not those that make it active may run without any.
        odd = [n for n in self.curved if not self._is_active_by_rows(self.first[n], by_rows[n])]
        self._floored = np.array([*self._others, *odd], np.intp)
        # One product with the counts gives the features of every group, what is linear of the other
        # tasks, and the floors.
        used = self.compiled.resource_forms.any(axis=(0, 2))
        forms = self.compiled.resource_forms[:, used]
        floors = forms[[self.first[price] for price in self._floored]].reshape(-1, forms.shape[-1])
        self._forms = np.concatenate([*(group.forms for group in self.groups), linear, floors])
        self._ends = np.cumsum([len(group.forms) for group in self.groups]).tolist()
        starts = [0, *self._ends[:-1]] if self.groups else []
        self._rows_of_kernels = np.array(
            [
                start + group.names.index("rows") * len(group.kernels) + place
                for start, group in zip(starts, self.groups, strict=True)
                for place in range(len(group.kernels))
            ],
            np.intp,
        )

    def _linear(self, kernel: KernelEvidence) -> Floats | None:
        """Seconds a count [columns] of a streaming kernel; None where time is not linear."""
        rows = kernel.binding.task.rows
        if kernel.collected is not None:
            return None
        if kernel.law.kind not in STREAMING or rows.quantity not in ACTIVE_BY:
            return None
        active = rows._replace(quantity=ACTIVE_BY[rows.quantity])
        started: Floats = kernel.law.parameters["launch_s"] * self.compiled.vector({active: 1})
        moved = self._form(kernel.binding.features["memory_s"])
        return started + moved / kernel.law.parameters["memory_share"]

    def _rows_of(self, place: int) -> Column | None:
        """The one column of rows that decides a task's time; None where more columns do."""
        columns = {kernel.rows_column for kernel in self.evidence[place]}
        task = self.compiled.tasks[place]
        for seconds in self.compiled.price(task).seconds.values():
            columns |= {column for column in seconds if column.quantity not in ACTIVITY}
        return columns.pop() if len(columns) == 1 else None

    def _is_active_by_rows(self, place: int, rows: Column | None) -> bool:
        """Whether a task is active exactly where it has rows."""
        price = self.compiled.price(self.compiled.tasks[place])
        used = {column for form in price.seconds.values() for column in form}
        makers = {
            column._replace(quantity=ACTIVITY[column.quantity])
            for column in used
            if column.quantity in ACTIVITY
        }
        return makers <= {rows}

    def _place(self, column: Column | None) -> int:
        assert column is not None
        return self.columns.index(column)

    def _group(self, kind: LawKind, kernels: list[KernelEvidence]) -> LawGroup:
        features = [kernel.binding.features for kernel in kernels]
        names = [
            name
            for name in features[0]
            if any(isinstance(one.get(name), Mapping) for one in features)
        ]
        forms = np.array([[self._form(one[name]) for one in features] for name in names])
        constant = [name for name in features[0] if name not in names]
        return LawGroup(
            kind=kind,
            kernels=tuple(kernels),
            names=tuple(names),
            forms=forms.reshape(len(names) * len(kernels), -1),
            constants={n: _shared([_constant(one[n]) for one in features]) for n in constant},
            parameters={
                name: _shared([kernel.law.parameters[name] for kernel in kernels])
                for name in kernels[0].law.parameters
            },
            collected=tuple(n for n, one in enumerate(kernels) if one.collected is not None),
        )

    def _form(self, feature: Feature) -> Floats:
        if isinstance(feature, Mapping):
            return self.compiled.vector(feature)
        if feature:
            raise AssertionError("a feature that is a form for one kernel must be one for all")
        return np.zeros(len(self.columns))


def _of_steps(values: Mapping[str, Floats | float]) -> dict[str, Floats | float]:
    """Values of kernels beside many steps."""
    return {
        name: value if isinstance(value, float) else value[:, None]
        for name, value in values.items()
    }


def _of_place(values: Floats | float, place: int, kernels: int) -> Floats:
    """The values of one kernel of a group."""
    array = np.asarray(values)
    return np.asarray(array[place] if array.ndim and len(array) == kernels else array)


_LEAST_SEEN = 1e-3
"""Rows that see nothing count as seeing next to nothing."""


def _shared(values: list[float]) -> Floats | float:
    """One number where all are equal, which is cheaper to work with."""
    return float(values[0]) if len(set(values)) == 1 else np.array(values)


def _constant(feature: Feature) -> float:
    assert not isinstance(feature, Mapping)
    return float(feature)
