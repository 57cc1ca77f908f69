"""The ledger against the oracle: random plans, every column, every request, every layer."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from oracle.draw import REAL, any_policy, any_requests, any_shares, shrunken_model
from oracle.experts import expert_draws, experts_touched
from oracle.rows import forwards
from oracle.walk import LIMITS, count_forward, region_of, rows_of

from aisim_v41.model.load import load_model
from aisim_v41.plan.columns import OF_REPLICA, STORED
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan

BATCH = 100
SMALL_BATCHES = 32
REAL_PLANS = 60
LONG_BATCHES = 1000

ROWS_OF = {"index_active": "index_rows", "compress_active": "compressed_rows"}
STEP_COUNTS = {
    "experts_touched",
    "experts_expected",
    "active",
    "kv_active",
    "head_active",
    *map(str, (*OF_REPLICA, *STORED)),
    *ROWS_OF,
}
PER_REQUEST = {str(count) for count in Count} - STEP_COUNTS


@cache
def real_model():
    return load_model(REAL)


def small_plan(seed: int) -> Plan:
    random = Random(seed)
    model = shrunken_model(random)
    policy = any_policy(random, small=True)
    requests = any_requests(random, policy, small=True)
    if random.random() < 0.2:
        policy = policy.with_overrides(expert_popularity=any_shares(random, model))
    return Plan(model, requests, policy=policy)


def real_plan(seed: int) -> Plan:
    random = Random(seed)
    policy = any_policy(random, small=False)
    return Plan(real_model(), any_requests(random, policy, small=False), policy=policy)


@pytest.mark.parametrize("batch", range(SMALL_BATCHES))
def test_shrunken_models(batch: int):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        check(small_plan(seed), seed)


@pytest.mark.parametrize("seed", range(REAL_PLANS))
def test_published_model(seed: int):
    check(real_plan(seed), seed)


@pytest.mark.long
@pytest.mark.parametrize("batch", range(LONG_BATCHES))
def test_many_more_shrunken_models(batch: int):
    first = 1_000_000 + batch * BATCH
    for seed in range(first, first + BATCH):
        check(small_plan(seed), seed)


def test_every_count_is_compared():
    """No count of the library escapes: each name is a per-request or a per-step column."""
    random = Random(1)
    names: set[str] = set()
    for _ in range(50):
        model, policy = shrunken_model(random), any_policy(random, small=True)
        requests = any_requests(random, policy, small=True)
        for forward in forwards(model, policy, requests):
            for layer in count_forward(model, policy, forward):
                names.update(*(request.keys() for request in layer))
    assert names == PER_REQUEST


def check(plan: Plan, seed: int) -> None:
    """Compare one plan; the message of a mismatch is enough to run it alone."""
    found = ledger(plan)
    expected = [
        (forward, count_forward(plan.model, plan.policy, forward))
        for forward in forwards(plan.model, plan.policy, plan.requests)
    ]
    problems = []
    if len(found.passes) != len(expected):
        problems.append(f"{len(found.passes)} forwards, the oracle has {len(expected)}")
    rows = 0
    for number, (forward, layers) in enumerate(expected[: len(found.passes)]):
        problems += _request_counts(found, number, forward, layers)
        problems += _step_counts(plan, found, number, forward, layers)
        rows += forward.times * sum(_over_requests(forward, one, "query_rows") for one in layers)
    if found.token_layers != rows:
        problems.append(f"token_layers = {found.token_layers}, the oracle has {rows}")
    assert not problems, describe(plan, seed, problems)


def _over_requests(forward, layer, name: str) -> int:
    return sum(c[name] * s.count for c, s in zip(layer, forward.sequences, strict=True))


def _request_counts(found: Ledger, number: int, forward, layers) -> list[str]:
    problems = []
    for index, layer in enumerate(layers):
        for position, counts in enumerate(layer):
            times = forward.sequences[position].count * forward.times
            for name in PER_REQUEST:
                value = found.value(Count(name), index, forward=number, request=position)
                oracle = counts.get(name, 0) * times
                if value > oracle if name in LIMITS else value != oracle:
                    problems.append(
                        f"{name}, forward {number}, layer {index}, request {position}: "
                        f"{value}, the oracle has {oracle}"
                    )
    return problems


def _step_counts(plan: Plan, found: Ledger, number: int, forward, layers) -> list[str]:
    """Columns that exist for a whole forward only, as the estimators read them."""
    problems = []
    totals, program = found.passes[number][1].totals, found.program

    for index, layer in enumerate(layers):
        queries = _over_requests(forward, layer, "query_rows")
        drawn = [
            (
                expert_draws(plan.policy, s, c["query_rows"] - image_queries(plan, index, s)),
                s.count,
            )
            for c, s in zip(layer, forward.sequences, strict=True)
        ]
        bound, expected = (sum(d[which] * count for d, count in drawn) for which in (0, 1))
        images = sum(s.count * image_queries(plan, index, s) for s in forward.sequences)
        fewest = plan.policy.expert_routing == "fewest"

        def touched(draws: float, images: int = images) -> float:
            return experts_touched(plan.model, plan.policy, draws, images)

        oracle = {
            "experts_touched": plan.model.experts.top_k * (queries > 0)
            if fewest
            else touched(bound),
            "experts_expected": touched(expected),
            "active": float(queries > 0),
            "kv_active": float(_over_requests(forward, layer, "kv_rows") > 0),
            "head_active": float(_over_requests(forward, layer, "logit_rows") > 0),
            "query_rows": float(queries),
            "logit_rows": float(_over_requests(forward, layer, "logit_rows")),
        }
        for name, rows in ROWS_OF.items():
            if layer and rows in layer[0]:
                oracle[name] = float(_over_requests(forward, layer, rows) > 0)
        for name, value in oracle.items():
            column = program.position(Count(name), program.classes[index])
            if totals[column] != pytest.approx(value, rel=1e-9, abs=1e-9):
                problems.append(
                    f"{name} of forward {number}, layer {index}: {totals[column]}, "
                    f"the oracle has {value}"
                )
    return problems


def image_queries(plan: Plan, layer: int, sequence) -> int:
    """Image rows among those that query in a layer."""
    region = region_of(plan.model, plan.policy, plan.model.layers[layer])
    return sum(query.position in sequence.images for query in rows_of(region, sequence)[0])


def describe(plan: Plan, seed: int, problems: list[str]) -> str:
    model = plan.model
    lines = [
        *problems[:8],
        f"... {len(problems)} in all",
        f"seed {seed}, policy {plan.policy.name}: {plan.policy.changed_fields()}",
        f"window {model.attention.window}, {model.indexer}, boundary {model.boundary}",
        f"layers {[(str(layer.kind), layer.ratio) for layer in model.layers]}",
        *map(str, plan.requests),
    ]
    return "\n".join(lines)
