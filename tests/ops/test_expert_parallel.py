"""Experts in groups of ranks, and rows that are sent to them (runtime-semantics §4.1, §4.3)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from oracle.expert_groups import bytes_sent

import aisim_v41 as aisim
from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol
from aisim_v41.estimators.messages import bytes_by_level
from aisim_v41.estimators.resources import Resource
from aisim_v41.hardware import load_hardware
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules, weights_per_rank
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.ops.graph import tasks_of
from aisim_v41.ops.operator import Collective, Traffic
from aisim_v41.plan.expert_groups import Scatter
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from aisim_v41.units import GIB

ROWS = 37
SENT = {"expert_exchange": "all_to_all", "shared_expert": "replicated"}
MODEL = load_model("deepseek-v4.1-flash")
EXPERT = 3 * 5120 * 2304
REACHED = 4 * (1 - Fraction(math.comb(288, 6), math.comb(384, 6)))
"""Of four ranks with 96 experts each, those that hold an expert of a row: 3.30."""


@cache
def compiled(tp: int = 4, ep: int = 4, **fields) -> CompiledSol:
    runtime = policy("sglang", fusion="elementary", **fields)
    return CompiledSol(MODEL, load_hardware("gb300"), Parallel(tp=tp, ep=ep), runtime)


@cache
def counts(**fields):
    plan = Plan(MODEL, [Request(new_tokens=ROWS, prefix_tokens=500)],
                policy=policy("sglang", fusion="elementary", **fields))  # fmt: skip
    counted = ledger(plan)
    return counted, counted.passes[0][1].totals


def amount(form, program, totals) -> float:
    return sum(
        value * totals[program.columns.index(column)] for column, value in form.items()
    )  # fmt: skip


def task(name: str, **fields):
    step = compiled(**fields)
    return next(one for one in step.tasks if one.name == name), step


def of(name: str, what, **fields) -> float:
    found, step = task(name, **fields)
    runtime = {key: value for key, value in fields.items() if key not in ("tp", "ep")}
    return amount(what(found), step.program, counts(**runtime)[1])


# --- work and weights of a group ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ep", "width"),
    [(1, 640), (2, 1152), (4, 2304)],  # slices of 576 padded to 640; 1152 is 9 x 128; whole
)
def test_arithmetic_of_the_mean_rank(ep: int, width: int):
    flop = of("routed_experts", lambda t: t.flops[Arithmetic.MXFP4_MXFP8], ep=ep)
    assert flop == 2 * ROWS * 6 * 3 * 5120 * width / ep


@pytest.mark.parametrize(("tp", "ep", "width"), [(8, 1, 384), (8, 8, 2304), (4, 1, 640)])
def test_padded_slices_in_time_and_in_memory(tp: int, ep: int, width: int):
    """288 -> 384 and 576 -> 640: 44.8 GiB of routed experts a rank at TP8, 33.6 as EP8."""
    flop = of("routed_experts", lambda t: t.flops[Arithmetic.MXFP4_MXFP8], tp=tp, ep=ep)
    assert flop == 2 * ROWS * 6 * 3 * 5120 * width / ep
    rules = ShardingRules(expert_slice_multiple=128)
    held = weights_per_rank(MODEL, Parallel(tp=tp, ep=ep), rules)[TensorGroup.ROUTED_EXPERTS]
    stored = Fraction(17, 32)  # 4 bits and a scale byte per 32
    assert held == 40 * 384 // ep * 3 * 5120 * width * stored
    if tp == 8:
        assert round(held / GIB, 1) == (44.8 if ep == 1 else 33.6)


def test_weights_of_the_mean_rank():
    """All of 37 rows touch as many experts whatever the mapping; a rank reads a quarter of them."""
    touched, stored = [], EXPERT * 17 / 32
    for ep in (1, 4):
        fields = {"expert_slice_multiple": 1}
        read = of("routed_experts", lambda t: t.traffic[Traffic.WEIGHTS], ep=ep, **fields)
        touched.append(read / stored * 4)
    assert touched[0] == pytest.approx(touched[1], rel=1e-12)
    assert 6 < touched[0] < 6 * ROWS


# --- messages -------------------------------------------------------------------------------------


def test_how_many_messages():
    """Without an exchange those of tensor parallelism; with one, rows go and come back in each
    of 40 layers, and are gathered for the next."""
    for ep in (1, 2, 4):
        found = Counter(t.name for t in tasks_of(compiled(ep=ep).graph) if t.collective is not None)
        assert found["all_reduce_experts"] == found["all_reduce_attention"] == 40
    found = Counter(t.name for t in tasks_of(compiled(**SENT).graph) if t.collective is not None)
    assert found == {
        "all_reduce_embedding": 1, "all_reduce_attention": 40, "all_reduce_engram": 2,
        "gather_logits": 1, "dispatch_rows": 40, "combine_rows": 40, "gather_expert_rows": 40,
    }  # fmt: skip


PAYLOADS = {
    "dispatch_rows": Fraction(ROWS, 4) * 5120 * Fraction(33, 32),  # FP8, a scale byte per 32
    "combine_rows": Fraction(ROWS, 4) * 5120 * 2,
    "gather_expert_rows": ROWS * 5120 * 2,
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload(name: str):
    assert of(name, lambda t: t.payload, **SENT) == pytest.approx(float(PAYLOADS[name]), rel=1e-12)


@pytest.mark.parametrize("name", ["dispatch_rows", "combine_rows"])
def test_seconds_on_the_links(name: str):
    """A rank's quarter of the rows goes to (3/4) x 3.30 others over 900 GB/s."""
    found, step = task(name, **SENT)
    seconds = amount(step.price(found).seconds[Resource.LINK], step.program, counts(**SENT)[1])
    sent = float(PAYLOADS[name] * REACHED * Fraction(3, 4))
    assert seconds == pytest.approx(sent / 900e9, rel=1e-12)
    assert not step.price(found).certain[Resource.LINK]


def test_rows_that_stay_where_they_are():
    """If all rows choose the experts of their own rank, none is sent."""
    found, step = task("dispatch_rows", expert_routing="fewest", **SENT)
    assert set(step.price(found).seconds[Resource.LINK].values()) <= {0.0}


def test_router_and_shared_expert_run_on_own_rows():
    for name, macs in (("router_gate", 5120 * 384), ("shared_expert", EXPERT)):
        (kind,) = task(name, **SENT)[0].flops
        flop = of(name, lambda t, kind=kind: t.flops[kind], **SENT)
        assert flop == pytest.approx(2 * macs * ROWS / 4, rel=1e-12)
        assert task(name, **SENT)[0].row_share == 1 / 4


@pytest.mark.parametrize(("inside", "domains"), [(4, 1), (2, 2), (1, 4), (3, 2)])
def test_bytes_by_sending_every_row_there_can_be(inside: int, domains: int):
    """Twelve experts, three a row: every row from every rank, one after another."""
    found = bytes_by_level(
        Collective.ALL_TO_ALL, Scatter(12, 3, fewest=False), inside, domains, in_network=True
    )
    assert found == pytest.approx(bytes_sent(12, 3, inside, domains), rel=1e-12)


# --- across domains, and what is refused ----------------------------------------------------------


def answers(hardware, ep: int, *, method: str = "sol", **fields):
    plan = Plan(MODEL, [Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=64)],
                Parallel(tp=8, ep=ep), policy("sglang", **fields))  # fmt: skip
    return aisim.estimate(plan, hardware, method=method)


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize(("ep", "fields"), [(1, {}), (8, {}), (8, SENT)])
def test_two_domains_are_slower_than_one(method: str, ep: int, fields: dict):
    one = replace(load_hardware("b200"), name="one")
    two = replace(one, name="two", link_domain_gpus=4)
    near = answers(one, ep, method=method, **fields)
    far = answers(two, ep, method=method, **fields)
    assert near.resource_s["network"] == 0 < far.resource_s["network"]
    assert near.latency_s < far.latency_s


def test_domains_without_a_network_are_refused():
    gpu = replace(load_hardware("b200"), link_domain_gpus=4, nic_bytes_per_s=None)
    for fields in ({}, SENT):
        with pytest.raises(UnsupportedPlanError, match=r"8 ranks.*links\.nic_gb_per_s"):
            answers(gpu, 8, **fields)


@pytest.mark.parametrize(
    ("parallel", "fields", "message"),
    [
        (Parallel(tp=4, ep=3), {}, r"ep = 3 does not divide the 4 ranks"),
        (Parallel(tp=4, ep=8), {}, r"ep = 8 does not divide the 4 ranks"),
        (Parallel(tp=4), {"redundant_experts": 16}, r"redundant_experts = 16 and ep = 1"),
        (Parallel(tp=4, ep=4), {"redundant_experts": 2}, r"384 routed experts and 2 copies"),
        (Parallel(tp=3), {}, r"tp = 3 does not divide 8 o_groups.*allowed: 1, 2, 4, 8"),
        (Parallel(tp=7), {}, r"tp = 7 does not divide 8 o_groups"),
    ],
)
def test_refusals(parallel: Parallel, fields: dict, message: str):
    plan = Plan(MODEL, [Request(new_tokens=8)], parallel, policy("sglang", **fields))
    for method in ("sol", "op"):
        with pytest.raises(UnsupportedPlanError, match=message):
            aisim.estimate(plan, load_hardware("gb300"), method=method)


# --- the fullest rank -----------------------------------------------------------------------------


def test_op_takes_the_fullest_rank_and_sol_the_mean():
    gpu = load_hardware("gb300")
    by = {x: answers(gpu, 8, method="op", expert_imbalance=x).latency_s for x in (1, 1.5, None)}
    assert by[1] < by[None] < by[1.5]
    assert answers(gpu, 8).latency_s == answers(gpu, 8, expert_imbalance=1.5).latency_s


def test_copies_cost_memory_and_even_popularity_out():
    held = [
        weights_per_rank(MODEL, Parallel(tp=8, ep=8), ShardingRules(redundant_experts=copies))
        for copies in (0, 32)
    ]
    routed = [one[TensorGroup.ROUTED_EXPERTS] for one in held]
    assert Fraction(routed[1], routed[0]) == Fraction(384 + 32, 384)
    prompt = Plan(MODEL, [Request(new_tokens=8192)], Parallel(tp=8, ep=8), policy("vllm"))
    evened = replace(prompt, policy=prompt.policy.with_overrides(redundant_experts=32))
    gpu = load_hardware("b200")
    seconds = [aisim.estimate(one, gpu).kernels_s for one in (prompt, evened)]
    assert seconds[1] < seconds[0]


def test_a_draft_pass_has_groups_of_its_own_experts():
    """128 draft experts, 3 a row: on 4 ranks 32 each."""
    found, step = task("draft_dispatch_rows", speculation="dspark", **SENT)
    assert found.scatter == Scatter(128, 3, fewest=False)
    assert step.model is MODEL


# --- with ranks that have rows of their own -------------------------------------------------------


def at_ranks(parallel: Parallel, gpu: str = "b200", method: str = "sol", **fields):
    """A decode step of as many requests a rank, of whole experts on every rank."""
    request = Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=16 * parallel.dp)
    runtime = policy("vllm", fusion="elementary", **fields)
    return aisim.estimate(
        Plan(MODEL, [request], parallel, runtime), load_hardware(gpu), method=method
    )


def test_an_exchange_over_two_nodes():
    """16 rows a rank on 16 ranks of 24 experts in two nodes of 8, in 40 layers. A row of 5,280 and
    10,240 B goes to 7/16 of the ranks that it needs over 900 GB/s, and to the other node, where
    half of 2 (1 - C(192, 6)/C(384, 6)) rows have an expert, over 50 GB/s; the two tables and the
    logits need none of that."""
    found = at_ranks(Parallel(dp=16, ep=16), expert_exchange="all_to_all", engram_table="tensor")
    rank = 1 - Fraction(math.comb(360, 6), math.comb(384, 6))
    node = 1 - Fraction(math.comb(192, 6), math.comb(384, 6))
    sent = 40 * 16 * (5280 + 10_240)
    assert found.resource_s["link"] == pytest.approx(float(sent * 7 * rank) / 900e9, rel=1e-9)
    assert found.resource_s["network"] == pytest.approx(float(sent * node) / 50e9, rel=1e-9)


def test_gathering_sends_more_than_an_exchange():
    """A gather brings every row of the others, an exchange the rows that an expert here wants."""
    for parallel in (Parallel(dp=8, ep=8), Parallel(dp=16, ep=16)):
        gathered = at_ranks(parallel)
        sent = at_ranks(parallel, expert_exchange="all_to_all")
        for level in ("link", "network"):
            assert sent.resource_s[level] <= gathered.resource_s[level]
        assert sent.resource_s["link"] < gathered.resource_s["link"]


@pytest.mark.parametrize("method", ["sol", "op"])
def test_domains_that_would_not_be_full_are_refused(method: str):
    with pytest.raises(UnsupportedPlanError, match=r"12 ranks.*multiple of 8"):
        at_ranks(Parallel(dp=12, ep=12), method=method, expert_exchange="all_to_all")


def test_a_rack_of_72_is_one_domain():
    found = at_ranks(Parallel(dp=48, ep=48), "gb300", expert_exchange="all_to_all")
    assert found.resource_s["network"] == 0 < found.resource_s["link"]


def test_groups_that_do_not_divide_the_draft_experts():
    """48 groups of 8 experts: 128 draft experts do not divide, so that drafting is refused."""
    at_ranks(Parallel(dp=48, ep=48), "gb300")
    with pytest.raises(UnsupportedPlanError, match=r"128 routed experts of the draft"):
        at_ranks(Parallel(dp=48, ep=48), "gb300", speculation="dspark")


def test_a_decode_step_of_context_parallel_ranks_scatters_its_rows():
    """It runs as tensor parallelism over the same ranks: rows are gathered for the next layer."""
    split = {"expert_exchange": "all_to_all", "encoder_replay": "off"}
    with pytest.raises(UnsupportedPlanError, match="shared expert split"):
        at_ranks(Parallel(cp=4, ep=4), **split)
    found = at_ranks(Parallel(cp=4, ep=4), shared_expert="replicated", **split)
    like = at_ranks(Parallel(tp=4, ep=4), shared_expert="replicated", **split)
    assert found.latency_s == pytest.approx(like.latency_s, rel=1e-12)
