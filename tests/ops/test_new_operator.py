"""How an operator is added: one declaration, one place in the graph, one test.

The declaration below would be the whole of a file in ``aisim_v41/ops/``, and the lines of
`with_clamp` the one place in the graph; nothing else of the library knows of it.
"""

from __future__ import annotations

import pytest

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators import compiled
from aisim_v41.estimators.sol import Sol
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.backbone import Backbone, Step, backbone
from aisim_v41.ops.operator import Family, Operator, place
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from ops.graphs import model


def clamp(rank: Rank) -> Operator:
    """Clamp of the hidden rows after a layer: one comparison a value, read and written once."""
    row = rank.model.hidden * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name="clamp",
        family=Family.ELEMENTWISE,
        flops={Arithmetic.FP32: rank.model.hidden * Count.QUERY_ROWS},
        inputs={"sublayer": row},
        outputs={"clamped": row},
        source="an example",
    )


def with_clamp(rank: Rank, program) -> Backbone:
    graph = backbone(rank, program)
    last = len(rank.model.layers) - 1
    task = place(clamp(rank), program.classes[last])
    return Backbone((*graph.chain, Step(last, task)), graph.beside)


@pytest.fixture
def graph_with_clamp(monkeypatch: pytest.MonkeyPatch):
    compiled.compiled_sol.cache_clear()
    monkeypatch.setattr(compiled, "whole_forward", with_clamp)
    yield
    compiled.compiled_sol.cache_clear()


@pytest.mark.usefixtures("graph_with_clamp")
def test_a_new_operator_is_counted_priced_and_shown():
    gpu = load_hardware("gb300")
    rows = 1000
    plan = Plan(model(), [Request(new_tokens=rows)], Parallel(tp=4), policy("sglang"))
    estimate = Sol().estimate(plan, gpu)

    (row,) = (row for row in estimate.rows if row.operator == "clamp")
    assert (row.layers, row.calls, row.rows, row.launches) == ((39,), 1, rows, 1)
    assert row.flop == rows * 5120
    assert sum(row.bytes_by_kind.values()) == 2 * rows * 5120 * 2
    bandwidth = gpu.hbm_bandwidth_bytes_per_s
    assert row.seconds == pytest.approx(2 * rows * 5120 * 2 / bandwidth, rel=1e-12)
    assert row.bound == "hbm"

    frame = estimate.to_frame().set_index("operator")
    assert frame.loc["clamp", "time_ms"] == pytest.approx(row.seconds * 1000)
    assert "clamp" in set(estimate.timeline().operator)
    assert estimate.path["clamp"] == pytest.approx(row.seconds, rel=1e-12)


def test_and_without_it_nothing_of_it_is_left():
    plan = Plan(model(), [Request(new_tokens=1000)], Parallel(tp=4), policy("sglang"))
    names = {row.operator for row in Sol().estimate(plan, load_hardware("gb300")).rows}
    assert "clamp" not in names
