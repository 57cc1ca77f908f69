"""Outcomes of a batch under each schedule: by hand from the compiled step, against brute force."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.outcomes import Speculation
from aisim_v41.speculation.schedule import step_curve

MODEL = aisim.load_model("deepseek-v4.1-flash")
GPU = aisim.load_hardware("b200")
FALLING = Acceptance((0.9, 0.8, 0.7, 0.6, 0.5))


def decode(count: int = 1, prefix: int = 8192) -> aisim.Request:
    return aisim.Request(new_tokens=1, prefix_tokens=prefix, kind="decode", count=count)


def verify(rows: int, count: int = 1, prefix: int = 8192) -> aisim.Request:
    return aisim.Request(new_tokens=rows, prefix_tokens=prefix, kind="verify", count=count)


def plan(*requests: aisim.Request, engine: str = "sglang", **changes) -> aisim.Plan:
    return aisim.Plan(MODEL, list(requests), aisim.Parallel(tp=4), aisim.policy(engine, **changes))


def compiled(engine: str = "sglang", **changes):
    runtime = aisim.policy(engine, **changes)
    return aisim.compile(MODEL, GPU, parallel=aisim.Parallel(tp=4), policy=runtime, method="op")


def test_plain_and_fixed_are_the_compiled_steps():
    found = Speculation(plan(decode(8)), GPU, FALLING, "op")
    assert found.off.step_s == compiled()([decode(8)])
    assert found.off.emitted == 8.0
    assert found.off.mean_interval_s == found.off.step_s
    drafting = compiled(speculation="dspark")
    # Survival .9, .72, .504, .3024, .1512: 1 + those are 3.5776 tokens of a step of five.
    for drafts, mean in enumerate((1.0, 1.9, 2.62, 3.124, 3.4264, 3.5776)):
        fixed = found.fixed(drafts)
        assert fixed.step_s == drafting([verify(1 + drafts, 8)])
        assert fixed.rows == 8 * (1 + drafts)
        assert fixed.emitted == pytest.approx(8 * mean)
        assert fixed.tokens_per_s == pytest.approx(8 * mean * fixed.steps_per_s)
        assert fixed.mean_interval_s == pytest.approx(fixed.step_s / mean)
        assert fixed.bursts.largest == 1 + drafts


def test_by_batch_is_the_best_fixed_number():
    for count in (1, 32):
        found = Speculation(plan(decode(count)), GPU, Acceptance.constant(0.3, 5), "op")
        rates = [outcome.tokens_per_s for outcome in found.every_fixed]
        assert found.by_batch.tokens_per_s == max(rates)
        assert set(found.by_batch.drafts) == {rates.index(max(rates))}


def test_rows_run_are_those_of_the_graph():
    """Seven requests of 6 rows: SGLang has a graph of 7 requests, of 8 after 9; vLLM's are
    multiples of 8 rows, up to whole requests. A bound fills none."""
    assert Speculation(plan(decode(7)), GPU, FALLING, "op").fixed(5).rows == 42
    assert Speculation(plan(decode(9)), GPU, FALLING, "op").fixed(5).rows == 60
    assert Speculation(plan(decode(7), engine="vllm"), GPU, FALLING, "op").fixed(5).rows == 42
    assert Speculation(plan(decode(9), engine="vllm"), GPU, FALLING, "op").fixed(5).rows == 60
    assert Speculation(plan(decode(9)), GPU, FALLING, "sol").fixed(5).rows == 54


def test_ranks_with_requests_of_their_own_fill_graphs_of_their_own():
    """Nine requests on four ranks are three and thrice two: decode graphs of 4 and 2, uniform
    verify graphs of 3 and 2, and ragged ones of 6 rows each where hardly a draft is worth it."""
    asked = aisim.Plan(MODEL, [decode(9)], aisim.Parallel(tp=1, dp=4, ep=4), aisim.policy("sglang"))
    found = Speculation(asked, GPU, FALLING, "op")
    assert found.off.rows == 4 + 3 * 2
    assert found.fixed(5).rows == 6 * (3 + 3 * 2)
    assert found.fixed(5).step_s > found.off.step_s
    assert found.confident.rows % 6 == 0
    few = Speculation(asked, GPU, Acceptance.constant(0.01, 5), "op")
    assert sum(few.confident.drafts) <= 24 - 9
    assert few.confident.rows == 24


def best_ragged(found: Speculation) -> float:
    """The highest output rate of any choice of drafts, each priced as its own step would be."""
    ragged = found.ragged
    rates = []
    for chosen in product(range(found.drafted + 1), repeat=len(found.acceptance)):
        emitted = sum(a.expected_emitted(k) for a, k in zip(found.acceptance, chosen, strict=True))
        step = [verify(1 + k) for k in chosen]
        rates.append(emitted / ragged(step))
    return max(rates)


values = st.lists(st.floats(0.05, 0.99), min_size=2, max_size=2).map(lambda v: Acceptance(tuple(v)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(values, min_size=1, max_size=4), st.sampled_from(["sglang", "vllm"]))
def test_no_choice_emits_more_than_confident(each: list[Acceptance], engine: str):
    """All choices of up to four requests. With equal contexts steps of one total differ little:
    whose the drafts are changes the experts expected, not the rows."""
    asked = plan(*[decode()] * len(each), engine=engine, draft_tokens=2)
    found = Speculation(asked, GPU, each, "op")
    assert found.confident.tokens_per_s == pytest.approx(best_ragged(found), rel=2e-3)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(values, min_size=1, max_size=4))
def test_without_graph_sizes_confident_is_never_worse_than_a_fixed_number(each: list[Acceptance]):
    sizes = {"decode_graph_sizes": "every", "verify_graph_sizes": "every"}
    asked = plan(*[decode()] * len(each), draft_tokens=2, **sizes)
    found = Speculation(asked, GPU, each, "op")
    assert found.confident.tokens_per_s >= found.by_batch.tokens_per_s * (1 - 1e-12)


def test_confident_verifies_what_survives():
    likely, unlikely = Acceptance.constant(0.95, 5), Acceptance.constant(0.05, 5)
    found = Speculation(plan(decode(24), decode(24)), GPU, [likely, unlikely], "op")
    chosen = found.confident
    assert min(chosen.drafts[:24]) > max(chosen.drafts[24:])
    assert chosen.tokens_per_s > found.by_batch.tokens_per_s
    # Its rows are a captured number: of requests with 6 rows each.
    assert chosen.rows % 6 == 0
    assert chosen.rows >= 48 + sum(chosen.drafts)


def test_a_profile_of_the_same_context_chooses_as_well_and_no_other_better():
    found = Speculation(plan(decode(16, 200_000)), GPU, FALLING, "op")
    assert found.profiled(200_000).drafts == found.confident.drafts
    for tokens in (0, 8192, 1_000_000):
        assert found.profiled(tokens).tokens_per_s <= found.confident.tokens_per_s


def test_cap_accept_computes_all_and_keeps_what_confident_would():
    likely, unlikely = Acceptance.constant(0.95, 5), Acceptance.constant(0.05, 5)
    found = Speculation(plan(decode(24), decode(24)), GPU, [likely, unlikely], "op")
    capped = found.cap_accept
    assert (capped.step_s, capped.rows) == (found.fixed(5).step_s, 48 * 6)
    assert (capped.emitted, capped.drafts) == (found.confident.emitted, found.confident.drafts)
    assert capped.tokens_per_s < found.fixed(5).tokens_per_s


def test_bursts_are_the_mean_over_requests():
    never, always = Acceptance((0.0, 0.0)), Acceptance((1.0, 1.0))
    found = Speculation(plan(decode(3), decode(1), draft_tokens=2), GPU, [never, always], "sol")
    assert found.fixed(2).bursts.distribution == (0.75, 0.0, 0.25)
    assert found.fixed(2).emitted == 3 + 3
    assert found.fixed(0).bursts.distribution == (1.0,)


def test_a_curve_of_many_requests_is_that_of_each():
    step = compiled(speculation="dspark", verify_lengths="ragged")
    curve = step_curve(step, [100, 5000, 5000], 2)
    lengths = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3)]
    for time, each in zip(curve, lengths, strict=True):
        alone = [verify(n, prefix=p) for n, p in zip(each, (100, 5000, 5000), strict=True)]
        assert time == pytest.approx(step(alone), rel=1e-12)


def test_ragged_sizes_make_stairs_of_the_curve():
    """Three requests: 3 to 18 rows in graphs of 6, 12 and 18. Between two sizes only the experts
    that real rows draw grow."""
    curve = step_curve(compiled(speculation="dspark", verify_lengths="ragged"), [8192] * 3, 5)
    rises = [(later - earlier, place) for place, (earlier, later) in enumerate(pairwise(curve), 1)]
    assert sorted(place for _, place in sorted(rises)[-2:]) == [4, 10]


@pytest.mark.parametrize(
    ("requests", "error", "message"),
    [
        ([verify(6)], InvalidInputError, "must decode one token"),
        ([aisim.Request(new_tokens=100)], InvalidInputError, "must decode one token"),
        ([], InvalidInputError, "no requests"),
        ([decode(0)], InvalidInputError, "no requests"),
        ([decode(4097)], OutOfRangeError, "up to 4096"),
    ],
)
def test_what_does_not_decode_is_refused(requests, error, message: str):
    with pytest.raises(error, match=message):
        Speculation(plan(*requests), GPU, FALLING)


def test_acceptance_must_fit_the_requests_and_the_drafts():
    with pytest.raises(InvalidInputError, match="2 acceptances and 1 entries"):
        Speculation(plan(decode()), GPU, [FALLING, FALLING])
    with pytest.raises(InvalidInputError, match=r"set draft_tokens=2"):
        Speculation(plan(decode()), GPU, Acceptance((0.5, 0.5)))
    for wrong in ([0.5], [None], "x", {"a": 1}):
        with pytest.raises(InvalidInputError, match="must be an Acceptance"):
            Speculation(plan(decode()), GPU, wrong)
    for wrong in (None, 0.5, 3):
        with pytest.raises(InvalidInputError, match="must be a list of Acceptance"):
            Speculation(plan(decode()), GPU, wrong)
    with pytest.raises(InvalidInputError, match=r"0 \.\.\. 5"):
        Speculation(plan(decode()), GPU, FALLING).fixed(6)


def test_mappings_that_no_step_has_are_refused_when_it_is_priced():
    asked = aisim.Plan(MODEL, [decode()], policy=aisim.policy("sglang"))
    found = Speculation(asked, aisim.load_hardware("h100"), FALLING)
    assert found.fixed(5).step_s > found.off.step_s
    with pytest.raises(UnsupportedPlanError):
        aisim.Plan(MODEL, [decode()], policy=aisim.policy("sglang", draft_tokens=300,
                                                          speculation="dspark"))  # fmt: skip
