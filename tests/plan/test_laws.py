"""Laws of the ledger that hold whatever the numbers are."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.draw import REAL, any_policy, any_requests, shrunken_model

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.model.load import load_model
from aisim_v41.plan.columns import OF_REPLICA, STORED, has_count
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import FRAME_COUNTS, Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

PER_STEP = {
    Count.EXPERTS_TOUCHED, Count.EXPERTS_EXPECTED, Count.ACTIVE, Count.KV_ACTIVE,
    Count.HEAD_ACTIVE, Count.INDEX_ACTIVE, Count.COMPRESS_ACTIVE,
    *OF_REPLICA, *STORED,
}  # fmt: skip
ADDITIVE = [count for count in Count if count not in PER_STEP]
LENGTHS = (0, 1, 2, 63, 127, 128, 129, 255, 512, 513, 1025, 1026, 4095, 16384, 16385, 1_048_576)
CONTEXT = 1_048_576

PER_REQUEST_POLICIES = (
    policy("paper"),
    policy("paper", decoder_replay=True),
    policy(
        "custom",
        base="sglang",
        decoder_replay=True,
        prompt_logprobs="two_floors",
        encoder_replay="folded",
    ),
    policy("vllm", decoder_replay=True, boundary_layer="kv_only", score_shape="rectangle"),
    policy("vllm", encoder_replay="separate"),
    policy("trtllm", decoder_replay=True),
)
"""Policies under which what one request runs does not depend on the others of the step."""


@cache
def model():
    return load_model(REAL)


def step(runtime: RuntimePolicy, requests) -> Ledger:
    return ledger(Plan(model(), requests, policy=runtime))


def totals(found: Ledger) -> dict[tuple[int, str], int]:
    """Every additive count of every layer."""
    layers = range(len(found.plan.model.layers))
    return {
        (layer, str(count)): found.total(count, layer) for layer in layers for count in ADDITIVE
    }


def frame_sums(found: Ledger) -> dict:
    frame = found.to_frame()
    names = [str(count) for count in FRAME_COUNTS]
    return frame.groupby("layer")[names].sum().to_dict()


lengths = st.one_of(
    st.sampled_from([length for length in LENGTHS if length < 20000]), st.integers(0, 20000)
)


@st.composite
def requests(draw) -> Request:
    prefix, new = draw(lengths), draw(lengths)
    count = draw(st.sampled_from((0, 1, 1, 1, 2, 3, 17)))
    kind = draw(st.sampled_from(("prefill", "prefill", "decode", "verify")))
    if kind != "prefill":
        rows = min(new, 1 if kind == "decode" else 6)
        return Request(new_tokens=rows, prefix_tokens=prefix, kind=kind, count=count)
    return Request(
        new_tokens=new,
        prefix_tokens=prefix,
        count=count,
        prompt_tokens=prefix + new + draw(st.sampled_from((0, 0, 1, 100, 5000))),
        window=draw(st.sampled_from(("running", "cached"))) if prefix else "running",
    )


steps = st.lists(requests(), min_size=0, max_size=4)
per_request_policies = st.sampled_from(PER_REQUEST_POLICIES)
any_seed = st.integers(0, 1 << 30)


def random_step(seed: int):
    """A shrunken model with any policy and requests, those that look across the step included."""
    random = Random(seed)
    small, runtime = shrunken_model(random), any_policy(random, small=True)
    return small, runtime, any_requests(random, runtime, small=True)


# --- sums -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(runtime=per_request_policies, first=steps, second=steps)
def test_additive_over_requests(runtime: RuntimePolicy, first: list, second: list):
    together, one, other = (totals(step(runtime, r)) for r in (first + second, first, second))
    assert together == {key: one[key] + other[key] for key in together}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=any_seed, order=st.randoms(use_true_random=False))
def test_order_changes_nothing(seed: int, order):
    small, runtime, listed = random_step(seed)
    shuffled = list(listed)
    order.shuffle(shuffled)
    one, other = (ledger(Plan(small, r, policy=runtime)) for r in (listed, shuffled))
    assert totals(one) == totals(other)
    assert frame_sums(one) == frame_sums(other)
    assert one.token_layers == other.token_layers


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=any_seed)
def test_grouping_changes_nothing(seed: int):
    small, runtime, listed = random_step(seed)
    grouped = [remade(request, count=min(request.count, 5)) for request in listed]
    copies = [remade(request, count=1) for request in grouped for _ in range(request.count)]
    one, other = (ledger(Plan(small, r, policy=runtime)) for r in (grouped, copies))
    assert totals(one) == totals(other)
    assert one.token_layers == other.token_layers
    if copies:
        assert frame_sums(one) == frame_sums(other)
    for name in PER_STEP:
        assert of_step(one, name) == pytest.approx(of_step(other, name))


def of_step(found: Ledger, name: Count) -> list[float]:
    """A per-step column of each forward that is not a copy of another."""
    last = found.passes[-1][1].totals
    return [
        float(last[found.program.position(name, cls)])
        for cls in found.program.classes
        if has_count(name, cls)
    ]


def remade(request: Request, *, count: int) -> Request:
    fields = ("new_tokens", "prefix_tokens", "kind", "prompt_tokens", "window", "window_start")
    same = {name: getattr(request, name) for name in (*fields, "prompt_logprobs")}
    return Request(**same, count=count)


# --- chunks -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    runtime=per_request_policies,
    chunks=st.lists(st.integers(1, 3000), min_size=1, max_size=12),
    prefix=st.integers(0, 3000),
)
def test_chunks_write_what_the_whole_writes(runtime: RuntimePolicy, chunks: list, prefix: int):
    """Entries, window rows and all work of the layers before the cut, for any chunk list."""
    prompt = prefix + sum(chunks)
    parts = []
    for done, size in zip(running_sums(chunks, prefix), chunks, strict=True):
        part = Request(new_tokens=size, prefix_tokens=done, prompt_tokens=prompt)
        parts.append(totals(step(runtime, [part])))
    whole = totals(step(runtime, [Request(new_tokens=sum(chunks), prefix_tokens=prefix)]))
    written = (Count.ENTRIES_WRITTEN, Count.COMPRESSED_ROWS, Count.LOGIT_ROWS, Count.TOKENS)
    early = (Count.KV_ROWS, Count.QUERY_ROWS, Count.WINDOW_PAIRS, Count.SELECTED_ENTRIES)
    for layer in range(40):
        for count in (*written, *(early if layer < 20 else ())):
            key = (layer, str(count))
            assert sum(part[key] for part in parts) == whole[key], key


def running_sums(sizes: list[int], first: int) -> list[int]:
    return [first + sum(sizes[:position]) for position in range(len(sizes))]


# --- monotone ---------------------------------------------------------------------------------

GROWS_WITH_NEW = (
    Count.QUERY_ROWS, Count.KV_ROWS, Count.WINDOW_PAIRS, Count.WINDOW_ROWS, Count.SELECTED_ENTRIES,
    Count.SELECTED_ROWS, Count.INDEX_ROWS, Count.SCORED_POSITIONS, Count.INDEX_KEYS,
    Count.COMPRESSED_ROWS, Count.ENTRIES_WRITTEN, Count.TOKENS, Count.LOGIT_ROWS,
)  # fmt: skip
GROWS_WITH_PREFIX = tuple(c for c in GROWS_WITH_NEW if c is not Count.ENTRIES_WRITTEN)
MONOTONE_POLICIES = (
    policy("vllm"),
    policy("sglang", decoder_replay=True, reindex_scoring="dense"),
    policy("sglang", reindex_scoring="dense", score_shape="rectangle"),
)
"""Not those where a cut hides rows that an uncut extend sees (#20 against #21), nor a candidate
pool, whose size falls by 7 when a new block begins (16,384 against 16,385 tokens)."""


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    runtime=st.sampled_from(MONOTONE_POLICIES),
    new=lengths,
    prefix=lengths,
    more=st.one_of(st.just(1), st.integers(1, 2000)),
)
def test_more_tokens_are_never_less_work(runtime: RuntimePolicy, new: int, prefix: int, more: int):
    base = totals(step(runtime, [Request(new_tokens=new, prefix_tokens=prefix)]))
    longer = totals(step(runtime, [Request(new_tokens=new + more, prefix_tokens=prefix)]))
    deeper = totals(step(runtime, [Request(new_tokens=new, prefix_tokens=prefix + more)]))
    for layer in range(40):
        for count in GROWS_WITH_NEW:
            assert longer[layer, str(count)] >= base[layer, str(count)], (layer, count)
        for count in GROWS_WITH_PREFIX:
            assert deeper[layer, str(count)] >= base[layer, str(count)], (layer, count)


# --- nothing ----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=any_seed, kind=st.sampled_from(("prefill", "decode", "verify")), at=st.integers(0, 50))
def test_a_request_of_no_tokens_or_no_copies_changes_nothing(seed: int, kind: str, at: int):
    small, runtime, listed = random_step(seed)
    nothing = [
        Request(new_tokens=0, prefix_tokens=at, kind=kind),
        Request(new_tokens=1, prefix_tokens=at, kind=kind, count=0),
    ]
    one, other = (ledger(Plan(small, r, policy=runtime)) for r in (listed, listed + nothing))
    assert totals(one) == totals(other)
    for name in PER_STEP:
        assert of_step(one, name) == of_step(other, name)


@pytest.mark.parametrize("nothing", [[], [Request(new_tokens=0)], [Request(new_tokens=9, count=0)]])
def test_zero_for_zero(nothing: list[Request]):
    for runtime in PER_REQUEST_POLICIES:
        found = step(runtime, nothing)
        assert found.token_layers == 0
        assert set(totals(found).values()) == {0}
        assert not any(any(of_step(found, name)) for name in PER_STEP)


# --- knees and limits -------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_a_cold_prompt_of_any_length(length: int):
    """Sums over positions of window, selection, scores and pool, written out."""
    candidates = step(policy("paper"), [Request(new_tokens=length)])
    dense = step(policy("vllm"), [Request(new_tokens=length)])
    seen = range(1, length + 1)
    window = sum(min(s, 128) for s in seen)
    pool = sum(s if s <= 16384 else 16384 - (-s) % 8 for s in seen)
    expected = {
        (0, Count.WINDOW_PAIRS): window,
        (39, Count.WINDOW_PAIRS): window,
        (2, Count.SELECTED_ENTRIES): sum(min(s // 2, 512) for s in seen),
        (20, Count.SELECTED_ENTRIES): sum(min(s, 512) for s in seen),
        (39, Count.SELECTED_ENTRIES): sum(min(s, 512) for s in seen),
        (2, Count.SCORED_POSITIONS): sum(s // 2 for s in seen),
        (20, Count.SCORED_POSITIONS): sum(seen),
        (2, Count.ENTRIES_WRITTEN): length // 2,
        (20, Count.ENTRIES_WRITTEN): length,
        (0, Count.WINDOW_ROWS): length,
        (0, Count.TOKENS): length,
    }
    for (layer, count), value in expected.items():
        assert candidates.total(count, layer) == dense.total(count, layer) == value, (layer, count)
    assert candidates.total(Count.SCORED_POSITIONS, 24) == pool
    assert dense.total(Count.SCORED_POSITIONS, 24) == sum(seen)
    assert candidates.token_layers == 40 * length


def test_counts_stay_exact_for_a_million_whole_contexts():
    one = step(policy("paper"), [Request(new_tokens=CONTEXT)])
    many = step(policy("paper"), [Request(new_tokens=CONTEXT, count=1_000_000)])
    assert totals(many) == {key: 1_000_000 * value for key, value in totals(one).items()}
    assert many.total(Count.SCORED_POSITIONS, 20) == 1_000_000 * CONTEXT * (CONTEXT + 1) // 2


@pytest.mark.parametrize(
    "too_many",
    [
        [Request(new_tokens=CONTEXT, count=20_000_000)],
        [Request(new_tokens=CONTEXT, count=4_000_000 + copy) for copy in range(5)],
        [Request(new_tokens=1, prefix_tokens=CONTEXT - 1, kind="decode", count=1 << 40)],
    ],
)
def test_what_would_overflow_is_refused(too_many: list[Request]):
    with pytest.raises(OutOfRangeError, match="64 bits"):
        step(policy("paper"), too_many)


@pytest.mark.parametrize(
    "request_",
    [
        Request(new_tokens=CONTEXT + 1),
        Request(new_tokens=1, prefix_tokens=CONTEXT),
        Request(new_tokens=1, prefix_tokens=CONTEXT, kind="decode"),
        Request(new_tokens=8192, prompt_tokens=CONTEXT + 1),
        Request(new_tokens=1 << 40),
    ],
)
def test_a_context_beyond_the_model_is_refused(request_: Request):
    with pytest.raises(OutOfRangeError, match=r"has a context of 1048576") as caught:
        step(policy("paper"), [Request(new_tokens=1), request_])
    assert "requests[1]" in str(caught.value)
    assert model().name in str(caught.value)


def test_the_last_position_of_the_context_is_accepted():
    last = Request(new_tokens=1, prefix_tokens=CONTEXT - 1, kind="decode")
    assert step(policy("paper"), [last]).total(Count.INDEX_KEYS, 20) == CONTEXT


# --- the printed ledger -----------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=any_seed)
def test_the_frame_sums_to_the_totals(seed: int):
    small, runtime, listed = random_step(seed)
    found = ledger(Plan(small, listed, policy=runtime))
    frame = found.to_frame()
    assert len(frame) == len(small.layers) * sum(len(f.requests) for f, _ in found.passes)
    for name, per_layer in frame_sums(found).items():
        assert per_layer == {
            layer: found.total(Count(name), layer) for layer in range(len(small.layers))
        }
    assert (frame.first_row <= frame.end_row).all()
    assert (frame.loc[frame.query_rows > 0, "window_floor"] <= frame.loc[
        frame.query_rows > 0, "end_row"]).all()  # fmt: skip
    assert json.loads(frame.to_json(orient="records"))


@pytest.mark.parametrize("count", sorted(PER_STEP))
def test_what_belongs_to_a_step_has_no_value_of_one_request(count: Count):
    found = step(policy("paper"), [Request(new_tokens=5), Request(new_tokens=7)])
    with pytest.raises(InvalidInputError, match=f"{count}.*whole step.*query_rows"):
        found.value(count, 0, request=1)


def test_only_a_plan_is_counted():
    with pytest.raises(InvalidInputError, match="must be a Plan, not NoneType"):
        ledger(None)  # type: ignore[arg-type]


def test_an_empty_plan_has_the_columns_of_any():
    empty = step(policy("paper"), []).to_frame()
    assert list(empty.columns) == list(step(policy("paper"), [Request(new_tokens=1)]).to_frame())
    assert len(empty) == 0


def test_a_step_below_the_threshold_is_not_cut():
    """21 x 8192 + 19 x 128 rows when cut, 40 x 8192 when not (runtime-semantics §1.4, §1.5)."""
    for least, rows in ((0, 174_464), (8192, 174_464), (8193, 327_680)):
        runtime = policy("vllm", decoder_replay=True, replay_min_tokens=least)
        assert step(runtime, [Request(new_tokens=8192)]).token_layers == rows
    both = policy("vllm", decoder_replay=True, replay_min_tokens=10_000)
    pair = [Request(new_tokens=8192), Request(new_tokens=2048)]
    assert step(both, pair).token_layers == 21 * (8192 + 2048) + 19 * 2 * 128
