"""The flattened graph against plain recursion, on real graphs and on random ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.estimators.program import ProgramBuilder
from aisim_v41.estimators.resources import Price, Resource
from aisim_v41.ops.graph import Node, fed, par, seq
from aisim_v41.ops.operator import Family, Operator, Task, place
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from estimators.cases import POLICIES, step
from estimators.recursion import seconds

RESOURCES = tuple(Resource)


@pytest.mark.parametrize(("tp", "gpu"), [(1, "gb300"), (4, "gb300"), (8, "h200"), (2, "mi355x")])
@pytest.mark.parametrize("name", POLICIES)
def test_real_graphs_on_random_counts(name: str, tp: int, gpu: str):
    """Counts of any size, whether or not a step has them: the limits of tasks change places.

    But no images without rows: what they save of the rows would be less than nothing.
    """
    compiled = step(POLICIES[name], tp=tp, on=gpu)
    columns = compiled.program.columns
    random = Random(f"{name} {tp}")
    for scale in (1, 1e3, 1e7):
        counts = [
            0.0
            if column.quantity is Count.IMAGE_ROWS
            else random.choice((0.0, 1.0, random.uniform(0, scale)))
            for column in columns
        ]
        value = dict(zip(columns, counts, strict=True))

        def cost(task: Task, value=value) -> list[float]:
            spent = compiled.price(task).seconds
            return [sum(v * value[c] for c, v in spent[r].items()) for r in RESOURCES]

        expected = seconds(compiled.graph, cost)
        found = compiled.time.seconds(np.array(counts))
        assert float(found) == pytest.approx(expected, rel=1e-12)
        many = compiled.time.seconds(np.array([counts] * 3).T)
        assert many.tolist() == pytest.approx([expected] * 3, rel=1e-12)


# --- random graphs -------------------------------------------------------------------------------

COLUMNS = (Column(Count.LOGIT_ROWS), Column(Count.HEAD_ACTIVE), Column(Count.QUERY_ROWS))
Spent = tuple[tuple[float, ...], ...]
"""Seconds a count of one task: [resources, columns]."""

amounts = st.sampled_from((0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 10.0, 0.25))
spent_by_a_task = st.tuples(*[st.tuples(*[amounts] * len(COLUMNS))] * len(RESOURCES))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Node, dict[int, Spent]]:
    """A graph in which tasks, sequences and blocks occur once or many times, at any depth."""
    tasks = [
        place(Operator(name=f"t{i}", family=Family.ENDS, launches=1 * Count.HEAD_ACTIVE,
                       axes=(Count.LOGIT_ROWS,)), None)
        for i in range(draw(st.integers(1, 5)))
    ]  # fmt: skip
    costs = {id(task): draw(spent_by_a_task) for task in tasks}
    nodes: list[Node] = list(tasks)
    for _ in range(draw(st.integers(0, 6))):
        members = draw(st.lists(st.sampled_from(range(len(nodes))), max_size=4))
        if len(members) == 4 and draw(st.booleans()):
            parts = [nodes[place] for place in members]
            gate = draw(st.integers(0, 2))
            nodes.append(fed([parts[0], parts[1], seq()], [None, parts[2], None],
                             [parts[3], parts[0]], [gate, draw(st.integers(gate, 2))]))  # fmt: skip
            continue
        join = draw(st.sampled_from((seq, par)))
        nodes.append(join(*(nodes[place] for place in members)))
    return nodes[-1], costs


counts_of_a_step = st.tuples(*[st.sampled_from((0.0, 1.0, 2.0, 5.0, 1000.0))] * len(COLUMNS))


def program_of(graph: Node, costs: dict[int, Spent]):
    def priced(task: Task) -> Price:
        spent = {
            resource: dict(zip(COLUMNS, row, strict=True))
            for resource, row in zip(RESOURCES, costs[id(task)], strict=True)
        }
        return Price(seconds=spent, certain=spent)

    return ProgramBuilder({column: i for i, column in enumerate(COLUMNS)}, priced).build(graph)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(made=graphs(), counts=st.lists(counts_of_a_step, min_size=1, max_size=3))
def test_random_graphs(made: tuple[Node, dict[int, Spent]], counts: list[tuple[float, ...]]):
    graph, costs = made
    program = program_of(graph, costs)
    expected = []
    for given_counts in counts:

        def cost(task: Task, counted=given_counts) -> list[float]:
            rows = costs[id(task)]
            return [sum(a * n for a, n in zip(row, counted, strict=True)) for row in rows]

        expected.append(seconds(graph, cost))
        assert float(program.seconds(np.array(given_counts))) == pytest.approx(
            expected[-1], rel=1e-12
        )
    assert program.seconds(np.array(counts).T).tolist() == pytest.approx(expected, rel=1e-12)


def test_a_block_takes_the_longest_member_or_the_busiest_resource():
    """Worked: a = (3 tensor, 1 HBM), b = (1, 2), both after c = (2, 2)."""
    a, b, c = (
        place(Operator(name=n, family=Family.ENDS, launches=1 * Count.HEAD_ACTIVE,
                       axes=(Count.LOGIT_ROWS,)), None)
        for n in "abc"
    )  # fmt: skip
    nothing = (0.0,) * len(COLUMNS)

    def on(tensor: float, hbm: float) -> Spent:
        rows = {Resource.TENSOR: (tensor, 0.0, 0.0), Resource.HBM: (hbm, 0.0, 0.0)}
        return tuple(rows.get(resource, nothing) for resource in RESOURCES)

    costs = {id(a): on(3, 1), id(b): on(1, 2), id(c): on(2, 2)}
    one = np.array([1.0, 0.0, 0.0])
    for graph, expected in (
        (seq(a, b), 3 + 2),
        (par(a, b), 3 + 1),  # tensor cores: 4; each alone would take 3 or 2
        (par(seq(a, b), c), 3 + 1 + 2),  # 5 after each other, 6 on the tensor cores
        (seq(c, par(a, b), c), 2 + 4 + 2),
        (par(seq(c, par(a, b)), c), 4 + 2 + 2),
        (par(seq(a, a, b), seq(b, b)), 3 + 3 + 1 + 1 + 1),
    ):
        assert float(program_of(graph, costs).seconds(one)) == expected
