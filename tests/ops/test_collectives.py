"""Messages under tensor parallelism (runtime-semantics §4.3; model-facts §9), and their price."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.messages import (
    bytes_by_level,
    domains_of,
    link_bandwidth,
    link_bytes_factor,
    seconds_by_level,
)
from aisim_v41.estimators.resources import Resource, price
from aisim_v41.hardware import load_hardware
from aisim_v41.ops.operator import Collective
from aisim_v41.plan.expert_groups import Scatter
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from ops.graphs import amount, built, counts

SPLIT_INDEXER = policy("paper", fusion="elementary")
ENGINE = policy("sglang", fusion="elementary")


def messages(runtime, tp: int = 4):
    return [task for task in built(runtime, tp).tasks if task.collective is not None]


def test_one_rank_sends_nothing():
    for runtime in (SPLIT_INDEXER, ENGINE, policy("sglang"), policy("vllm", decoder_replay=True)):
        assert messages(runtime, 1) == []


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_how_many_messages(tp: int):
    """All-reduces: embedding 1, two a layer, two Engram modules, and 8 index sources where their
    heads are split; then one gather of logits (model-facts §9)."""
    engine = {
        "all_reduce_embedding": 1, "all_reduce_attention": 40, "all_reduce_experts": 40,
        "all_reduce_engram": 2, "gather_logits": 1,
    }  # fmt: skip
    assert Counter(task.name for task in messages(ENGINE, tp)) == engine
    split = Counter(task.name for task in messages(SPLIT_INDEXER, tp))
    assert split == engine | {"all_reduce_scores": 8}


ROWS = 37
PAYLOADS = {
    "all_reduce_embedding": ROWS * 5120 * 2,  # [n, 5120] BF16
    "all_reduce_attention": ROWS * 5120 * 2,
    "all_reduce_experts": ROWS * 5120 * 2,
    "all_reduce_engram": ROWS * 24 * 256 * 2,  # [n, 24, 256]: 12,288 B a row
    "gather_logits": 129_280 * 2,  # one row of a finished prompt
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload(name: str):
    found = counts(ENGINE, Request(new_tokens=ROWS, prefix_tokens=500))
    for task in messages(ENGINE):
        if task.name == name:
            assert amount(task.payload, found) == PAYLOADS[name]
            assert task.group == 4


def test_payload_of_split_index_scores():
    """One FP32 partial sum for every scored position of one query at 4096."""
    found = counts(SPLIT_INDEXER, Request(new_tokens=1, prefix_tokens=4095, kind="decode"))
    sent = [amount(t.payload, found) for t in messages(SPLIT_INDEXER) if t.name.endswith("scores")]
    assert sent == [4 * 2048] * 3 + [4 * 4096] * 5


def test_choices_that_need_no_message():
    copied = {task.name for task in messages(policy("sglang", embedding="replicated"))}
    assert "all_reduce_embedding" not in copied
    shared = {task.name for task in messages(policy("sglang", engram_residency="host_shared"))}
    assert "all_reduce_engram" not in shared
    sharded = {task.name for task in messages(policy("sglang", engram_residency="host_sharded"))}
    assert "all_reduce_engram" in sharded


@pytest.mark.parametrize("group", [2, 4, 8])
def test_bytes_on_a_link(group: int):
    """All-reduce: (g - 1)/g out and (g - 1)/g back; a switch that adds halves it. All-gather: what
    a rank does not hold."""
    share = Fraction(group - 1, group)
    all_reduce, all_gather = Collective.ALL_REDUCE, Collective.ALL_GATHER
    assert link_bytes_factor(all_reduce, group, in_network=False) == 2 * share
    assert link_bytes_factor(all_reduce, group, in_network=True) == share
    assert link_bytes_factor(all_gather, group, in_network=False) == share
    assert link_bytes_factor(all_gather, group, in_network=True) == share


@pytest.mark.parametrize(("in_network", "factor"), [(False, 1.5), (True, 0.75)])
def test_seconds_on_a_link(in_network: bool, factor: float):
    gpu = replace(load_hardware("gb300"), in_network_reduction=in_network, link_bytes_per_s=1e12)
    task = next(t for t in messages(ENGINE) if t.name == "all_reduce_attention")
    spent = price(task, gpu)
    ((_, seconds),) = spent.seconds[Resource.LINK].items()
    assert seconds == pytest.approx(factor * 10_240 / 1e12, rel=1e-15)
    assert spent.certain[Resource.LINK] == spent.seconds[Resource.LINK]


def test_which_link_joins_a_group():
    gpu = replace(load_hardware("gb300"), link_domain_gpus=4, link_bytes_per_s=9e11)
    assert link_bandwidth(gpu, 4) == 9e11
    with pytest.raises(UnsupportedPlanError, match=r"tp = 8.*4 GPUs.*tp <= 4"):
        link_bandwidth(gpu, 8)
    alone = replace(gpu, link_domain_gpus=1, link_bytes_per_s=None, nic_bytes_per_s=5e10)
    assert link_bandwidth(alone, 2) == 5e10
    with pytest.raises(UnsupportedPlanError, match=r"no link or network"):
        link_bandwidth(replace(alone, nic_bytes_per_s=None), 2)


ACROSS = [
    # GPUs of a domain, domains; bytes on a link and on a network card for each byte of the message
    (Collective.ALL_REDUCE, 8, 4, 2 * Fraction(7, 8), 2 * Fraction(3, 4) / 8),
    (Collective.ALL_GATHER, 8, 4, Fraction(7, 8), Fraction(3, 4) / 8),
    (Collective.REDUCE_SCATTER, 8, 4, Fraction(7, 8), Fraction(3, 4) / 8),
    (Collective.ALL_REDUCE, 4, 1, 2 * Fraction(3, 4), 0),
]


@pytest.mark.parametrize(("collective", "inside", "domains", "link", "network"), ACROSS)
def test_two_levels(collective, inside: int, domains: int, link: Fraction, network: Fraction):
    """Every rank ends with the whole message: 1/(inside x domains) was its own, (domains - 1)/
    (inside x domains) came over its card, and the links brought the other (inside - 1)/inside."""
    found = bytes_by_level(collective, None, inside, domains, in_network=False)
    assert found == (pytest.approx(float(link)), pytest.approx(float(network)))


def test_rows_sent_to_the_ranks_of_their_experts():
    """Six of 384 experts on 16 ranks of 24: a rank is missed by C(360, 6)/C(384, 6) of the rows,
    a domain of 8 ranks by C(192, 6)/C(384, 6)."""
    rows = Scatter(384, 6, fewest=False)
    rank = 1 - Fraction(math.comb(360, 6), math.comb(384, 6))
    domain = 1 - Fraction(math.comb(192, 6), math.comb(384, 6))
    found = bytes_by_level(Collective.ALL_TO_ALL, rows, 8, 2, in_network=True)
    assert found == (pytest.approx(float(7 * rank)), pytest.approx(float(domain)))
    inside = bytes_by_level(Collective.ALL_TO_ALL, rows, 16, 1, in_network=True)
    assert inside == (pytest.approx(float(15 * rank)), 0)


def test_which_domains_a_group_fills():
    gpu = replace(load_hardware("h200"), link_domain_gpus=8, nic_bytes_per_s=5e10)
    assert domains_of(gpu, 8) == (8, 1)
    assert domains_of(gpu, 32) == (8, 4)
    with pytest.raises(UnsupportedPlanError, match=r"12 ranks.*multiple of 8"):
        domains_of(gpu, 12)
    with pytest.raises(UnsupportedPlanError, match=r"16 ranks.*nic_gb_per_s.*at most 8"):
        domains_of(replace(gpu, nic_bytes_per_s=None), 16)
    alone = replace(gpu, link_domain_gpus=1, link_bytes_per_s=None)
    assert domains_of(alone, 4) == (4, 1)


def test_seconds_across_domains():
    """16 GPUs of 8 a domain at 450 and 50 GB/s: an all-gather of 1 GB takes 7/8 over 450 GB/s on
    the links, and 1/2 of 1/8 over 50 GB/s on the cards."""
    gpu = replace(load_hardware("h200"), link_bytes_per_s=4.5e11, nic_bytes_per_s=5e10)
    found = seconds_by_level(gpu, Collective.ALL_GATHER, 16, None)
    assert found.link * 1e9 == pytest.approx(7 / 8 / 450)
    assert found.network * 1e9 == pytest.approx(1 / 16 / 50)
