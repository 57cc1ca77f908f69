"""Captured sizes: the lists, and the dummy rows that fill a step up to the next of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.model.load import load_model
from aisim_v41.plan.captured import CapturedSteps
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import ledger_program
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from aisim_v41.plan.sizes import captured_sizes

MODEL = load_model("deepseek-v4.1-flash")
SIZES = policy(
    "sglang",
    decode_graph_sizes="1, 2, 4, 8-32/8",
    verify_graph_sizes="1-4, 6, 16",
)


def test_lists_of_the_engines():
    """SGLang: 5 + 31 + 15 + 1 sizes to 512; vLLM: 3 + 31 + 49 to 1024."""
    sglang = captured_sizes(policy("sglang").decode_graph_sizes)
    assert sglang is not None
    assert (len(sglang), sglang[:6], sglang[-2:]) == (52, (1, 2, 4, 8, 12, 16), (496, 512))
    vllm = captured_sizes(policy("vllm").decode_graph_sizes)
    assert vllm is not None
    assert (len(vllm), vllm[:5], vllm[-1]) == (83, (1, 2, 4, 8, 16), 1024)
    assert captured_sizes("every") is None


def filled(requests: list[Request], runtime: RuntimePolicy = SIZES) -> tuple:
    program = ledger_program(MODEL, runtime)
    columns = pack(requests)
    totals = program.count(columns, one_step=True).totals
    counts, beyond = CapturedSteps(program).filled(columns, totals, one_step=True)
    return program, totals, counts, beyond


def rows(requests: list[Request], runtime: RuntimePolicy = SIZES) -> float:
    program, _, counts, _ = filled(requests, runtime)
    return float(counts[program.tokens_place])


def decode(count: int, prefix: int = 4096) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=prefix, kind="decode", count=count)]


def verify(count: int, drafted: int = 5) -> list[Request]:
    one = Request(new_tokens=1 + drafted, prefix_tokens=4096, kind="verify", count=count)
    return [one]


@pytest.mark.parametrize(("batch", "runs"), [(1, 1), (3, 4), (4, 4), (5, 8), (9, 16), (32, 32)])
def test_a_decode_step_runs_the_next_captured_size(batch: int, runs: int):
    assert rows(decode(batch)) == runs


@pytest.mark.parametrize(("batch", "runs"), [(1, 6), (4, 24), (5, 36), (7, 96), (16, 96)])
def test_a_verify_step_has_dummies_of_as_many_rows(batch: int, runs: int):
    assert rows(verify(batch)) == runs


def test_sizes_of_rows_are_rounded_up_to_whole_requests():
    """vLLM with 5 drafts captures 6, 12, 18, 24, ...: sizes 1-8, 16, 24 rounded up to six."""
    vllm = policy("vllm")
    assert [rows(verify(batch), vllm) for batch in (1, 2, 3, 4, 5)] == [6, 12, 18, 24, 36]
    assert [rows(decode(batch), vllm) for batch in (1, 3, 5, 257)] == [1, 4, 8, 272]


def test_above_the_largest_and_with_a_prefill_nothing_is_filled():
    _, totals, counts, beyond = filled(decode(33))
    assert counts is totals
    assert bool(beyond)
    for requests in ([Request(new_tokens=7)], [Request(new_tokens=7), *decode(3)], decode(0)):
        _, totals, counts, beyond = filled(requests)
        assert counts is totals
        assert beyond is None


def test_dummies_add_the_counts_of_requests_without_a_past():
    program, totals, counts, _ = filled(decode(5))
    dummy = program.count(pack(decode(1, prefix=0)), one_step=True).totals
    many = slice(0, program.additive)
    np.testing.assert_allclose(counts[many], totals[many] + 3 * dummy[many])


def test_dummies_of_a_verify_step_are_requests_of_as_many_rows():
    """So they are drafted for once each, not once a row."""
    runtime = SIZES.with_overrides(speculation="dspark")
    program, totals, counts, _ = filled(verify(5), runtime)
    one = Request(new_tokens=6, prefix_tokens=0, kind="verify")
    dummy = program.count(pack([one]), one_step=True).totals
    many = slice(0, program.additive)
    np.testing.assert_allclose(counts[many], totals[many] + dummy[many])
    touched, *_ = program.expert_columns(Count.EXPERTS_EXPECTED)[-1]
    assert totals[touched] < counts[touched] < 128


def test_all_dummies_of_a_step_touch_the_experts_of_one_more_draw():
    program, totals, counts, _ = filled(decode(5))
    six = program.count(pack(decode(6)), one_step=True).totals
    for touched, *_ in program.expert_columns(Count.EXPERTS_EXPECTED):
        assert totals[touched] < counts[touched] == pytest.approx(six[touched])


@given(batch=st.integers(0, 40), prefix=st.integers(0, 9000))
def test_filling_never_takes_away_and_never_passes_the_next_size(batch: int, prefix: int):
    program, totals, counts, beyond = filled(decode(batch, prefix))
    assert (counts >= totals - 1e-9).all()
    if beyond is None and batch:
        program, larger, _, _ = filled(decode(int(counts[program.tokens_place]), prefix))
        assert (counts <= larger + 1e-9).all()


def test_columns_of_steps_are_the_steps_one_by_one():
    program = ledger_program(MODEL, SIZES)
    captured = CapturedSteps(program)
    steps = [*decode(3), *verify(5), Request(new_tokens=40), *decode(33), *decode(0), *decode(8)]
    columns = pack(steps)
    totals = program.count(columns, one_step=False).totals
    counts, beyond = captured.filled(columns, totals, one_step=False)
    assert beyond is not None
    for place, request in enumerate(steps):
        _, _, alone, larger = filled([request])
        np.testing.assert_allclose(counts[:, place], alone)
        assert bool(beyond[place]) == (larger is not None)


# --- ragged verify steps --------------------------------------------------------------------------

RAGGED = SIZES.with_overrides(speculation="dspark", verify_lengths="ragged")


def ragged(*lengths: int, prefix: int = 4096) -> list[Request]:
    return [Request(new_tokens=n, prefix_tokens=prefix, kind="verify") for n in lengths]


@pytest.mark.parametrize(
    ("lengths", "runs", "drafts"),
    [((1,), 6, 1), ((6,), 6, 1), ((1, 2, 6), 12, 3), ((6, 6, 1), 18, 3), ((1,) * 5, 6, 6),
     ((2,) * 13, 36, 16), ((6,) * 16, 96, 16)],
)  # fmt: skip
def test_rows_of_ragged_steps_are_filled_whosever_they_are(lengths, runs: int, drafts: int):
    """Sizes 1-4, 6 and 16 of requests with 5 drafts are 6, 12, 18, 24, 36 and 96 rows; the draft
    pass is a graph of requests."""
    program, totals, counts, beyond = filled(ragged(*lengths), RAGGED)
    assert beyond is None
    assert counts[program.tokens_place] == counts[program.logits_place] == runs
    places = {str(c): place for place, c in enumerate(program.columns)}
    assert counts[places["query_rows draft"]] == 5 * drafts
    assert counts[places["query_rows draft_chain"]] == drafts
    assert (counts >= totals).all()


def test_ragged_sizes_of_rows_are_taken_as_they_are():
    vllm = policy("vllm", speculation="dspark", verify_lengths="ragged")
    assert [rows(ragged(*n), vllm) for n in ((3,), (4, 3), (6, 6, 1), (6,) * 6)] == [4, 8, 16, 40]
    program, _, counts, _ = filled(ragged(6, 6, 1), vllm)
    places = {str(c): place for place, c in enumerate(program.columns)}
    assert counts[places["query_rows draft"]] == 15


def test_ragged_steps_above_the_largest_run_as_they_are():
    _, totals, counts, beyond = filled(ragged(*[6] * 17), RAGGED)
    assert counts is totals
    assert bool(beyond)
    _, totals, counts, beyond = filled([Request(new_tokens=7), *ragged(6)], RAGGED)
    assert counts is totals
    assert beyond is None


def test_a_dummy_row_is_a_request_without_a_past_that_nothing_is_drafted_for():
    program, totals, counts, _ = filled(ragged(1, 2, 6), RAGGED)
    dummy = program.count(pack(decode(1, prefix=0)), one_step=True).totals
    for place, column in enumerate(program.columns[: program.additive]):
        drafts = column.region is not None and column.region.startswith("draft")
        if not drafts or column.region == "draft_context":
            assert counts[place] == totals[place] + 3 * dummy[place]
        else:
            assert counts[place] == totals[place]


def test_full_lengths_are_the_uniform_step_where_a_size_fits():
    uniform = SIZES.with_overrides(speculation="dspark")
    _, _, counts, _ = filled(verify(4), RAGGED)
    _, _, other, _ = filled(verify(4), uniform)
    np.testing.assert_array_equal(counts, other)


def test_columns_of_ragged_steps_are_the_steps_one_by_one():
    program = ledger_program(MODEL, RAGGED)
    captured = CapturedSteps(program)
    steps = [*verify(3, 2), *verify(5), Request(new_tokens=40), *verify(17), *decode(0), *decode(8)]
    columns = pack(steps)
    totals = program.count(columns, one_step=False).totals
    counts, beyond = captured.filled(columns, totals, one_step=False)
    assert beyond is not None
    for place, request in enumerate(steps):
        _, _, alone, larger = filled([request], RAGGED)
        np.testing.assert_allclose(counts[:, place], alone)
        assert bool(beyond[place]) == (larger is not None)
