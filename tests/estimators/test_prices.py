"""Seconds of a task on each resource, worked by hand: only dense peaks enter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.resources import Resource, price
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import Collective, Family, Operator, place
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from estimators.cases import gpu

ROWS, HEAD = Column(Count.LOGIT_ROWS), Column(Count.HEAD_ACTIVE)

PEAKS = {Arithmetic.FP8: 4e12, Arithmetic.BF16: 2e12, Arithmetic.FP32: 1e11, Arithmetic.FP4: 8e12}
ROUND = replace(
    gpu(), peak_flop_per_s=PEAKS, hbm_bandwidth_bytes_per_s=1e9, link_bytes_per_s=1e8,
    link_domain_gpus=8, in_network_reduction=False,
)  # fmt: skip


def seconds(hardware: Hardware = ROUND, **fields):
    task = place(
        Operator(name="t", family=Family.ENDS, launches=1 * Count.HEAD_ACTIVE,
                 axes=(Count.LOGIT_ROWS,), **fields),
        None,
    )  # fmt: skip
    found = price(task, hardware)
    return found.seconds, found.certain


@pytest.mark.parametrize(
    ("arithmetic", "resource", "peak"),
    [
        (Arithmetic.FP8, Resource.TENSOR, 4e12),
        (Arithmetic.BF16, Resource.TENSOR, 2e12),
        (Arithmetic.FP4, Resource.TENSOR, 8e12),
        (Arithmetic.FP32, Resource.SCALAR, 1e11),
        (Arithmetic.MXFP4_MXFP8, Resource.TENSOR, 4e12),  # no such units here: widened to FP8
        (Arithmetic.TF32, Resource.TENSOR, 2e12),  # as BF16 products
    ],
)
def test_work_at_the_peak_of_its_precision(arithmetic, resource, peak):
    spent, certain = seconds(flops={arithmetic: 300 * Count.LOGIT_ROWS})
    assert spent[resource] == {ROWS: pytest.approx(300 / peak, rel=1e-15)}
    assert certain[resource] == spent[resource]
    assert all(not form for other, form in spent.items() if other is not resource)


def test_precisions_share_the_matrix_units():
    spent, _ = seconds(
        flops={Arithmetic.FP8: 400 * Count.LOGIT_ROWS, Arithmetic.BF16: 600 * Count.LOGIT_ROWS}
    )
    assert spent[Resource.TENSOR] == {ROWS: pytest.approx(1e-10 + 3e-10, rel=1e-15)}


def test_bytes_at_the_bandwidth_and_those_that_no_cache_avoids():
    spent, certain = seconds(
        weights=5 * Count.HEAD_ACTIVE, kv_reads=1 * Count.LOGIT_ROWS,
        kv_rereads=2 * Count.LOGIT_ROWS, kv_writes=4 * Count.LOGIT_ROWS,
        table_reads=8 * Count.LOGIT_ROWS, workspace=16 * Count.LOGIT_ROWS,
        inputs={"a": 32 * Count.LOGIT_ROWS}, outputs={"b": 64 * Count.LOGIT_ROWS},
    )  # fmt: skip
    assert spent[Resource.HBM] == pytest.approx({HEAD: 5e-9, ROWS: 127e-9}, rel=1e-12)
    # Weights, old and written cache rows; not rereads, table rows (repeated text) or activations.
    assert certain[Resource.HBM] == pytest.approx({HEAD: 5e-9, ROWS: 5e-9}, rel=1e-12)


def test_messages_on_the_link():
    for collective, factor in ((Collective.ALL_REDUCE, 1.5), (Collective.ALL_GATHER, 0.75)):
        spent, certain = seconds(collective=collective, payload=200 * Count.LOGIT_ROWS, group=4)
        assert spent[Resource.LINK] == {ROWS: pytest.approx(200 * factor / 1e8, rel=1e-15)}
        assert certain[Resource.LINK] == spent[Resource.LINK]


def test_a_gpu_without_units_for_the_work_says_so():
    bare = replace(ROUND, peak_flop_per_s={Arithmetic.FP8: 1e12})
    with pytest.raises(UnsupportedPlanError, match="no units for bf16"):
        seconds(bare, flops={Arithmetic.BF16: 1 * Count.LOGIT_ROWS})
