"""Steps worked by hand from the notes and tables of runtime-semantics, outside its §10 columns."""

from __future__ import annotations

from functools import cache

import pytest
from oracle.draw import REAL

from aisim_v41.model.load import load_model
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request, chunked

LATE = 21


@cache
def model():
    return load_model(REAL)


def step(runtime: RuntimePolicy, *requests: Request) -> Ledger:
    return ledger(Plan(model(), requests, policy=runtime))


def rows(found: Ledger, layer: int = 0) -> int:
    return found.total(Count.QUERY_ROWS, layer)


def triangle(n: int) -> int:
    return n * (n + 1) // 2


# --- chunking (§1.1, §1.2) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "chunk", "token_layers"),
    [
        (policy("sglang"), 32768, 40 * 32768),  # 1,310,720
        (policy("sglang", decoder_replay=True), 32768, 21 * 32768 + 19 * 128),  # 690,560
        (policy("sglang", decoder_replay=True), 8192, 21 * 32768 + 19 * 4 * 128),  # 697,856
        (policy("sglang", decoder_replay=True), 2048, 21 * 32768 + 19 * 16 * 128),  # 727,040
        (policy("trtllm", decoder_replay=True), 2048, 21 * 32768 + 19 * 128),
        (policy("paper", decoder_replay=True), 32768, 20 * 32768 + 20 * 128),
    ],
)
def test_a_prompt_of_32768_in_chunks(runtime: RuntimePolicy, chunk: int, token_layers: int):
    steps = chunked(32768, chunk_tokens=chunk)
    assert sum(step(runtime, request).token_layers for request in steps) == token_layers


def test_the_published_totals_are_those_of_the_formulas():
    """The figures that articles quote, next to the formula used above."""
    assert 40 * 32768 == 1_310_720
    found = [21 * 32768 + 19 * 128 * chunks for chunks in (1, 4, 16)]
    assert found == [690_560, 697_856, 727_040]


@pytest.mark.parametrize("prompt", [300, 8320, 8321])
def test_a_prompt_anchored_tail_is_the_same_for_every_chunking(prompt: int):
    """Every chunking runs the last 128 rows late, once, under one floor (§1.5, TensorRT-LLM)."""
    runtime = policy("trtllm", decoder_replay=True)
    for chunk in (64, 100, 128, 2048):
        found = [step(runtime, request) for request in chunked(prompt, chunk_tokens=chunk)]
        assert sum(rows(one, LATE) for one in found) == 128
        assert sum(one.total(Count.WINDOW_PAIRS, LATE) for one in found) == triangle(128)


def test_a_head_runs_once_a_prompt():
    """Only the row that ends the prompt reaches the head (model-facts §4.7)."""
    found = [step(policy("sglang"), r) for r in chunked(32768, chunk_tokens=8192)]
    assert [one.total(Count.LOGIT_ROWS, 39) for one in found] == [0, 0, 0, 1]


# --- prompt log-probabilities (§1.3) ----------------------------------------------------------


def test_prompt_logprobs_keep_two_floors():
    """Extends 300 and 200 that end at 400 and 200; the first wants prompt log-probabilities.

    Late rows 300 and 128; floor 100 for its first 172 rows, 272 for its last 128, 72 for the other.
    """
    runtime = policy("sglang", decoder_replay=True, prompt_logprobs="two_floors")
    found = step(
        runtime,
        Request(new_tokens=300, prefix_tokens=100, prompt_logprobs=True),
        Request(new_tokens=200),
    )
    for layer in range(LATE, 40):
        late = [found.value(Count.QUERY_ROWS, layer, request=r) for r in (0, 1)]
        pairs = [found.value(Count.WINDOW_PAIRS, layer, request=r) for r in (0, 1)]
        assert late == [300, 128]
        # Rows 100..271 see min(row - 99, 128) positions; the last 128 rows see 1, 2, ... 128.
        assert pairs == [triangle(128) + 44 * 128 + triangle(128), triangle(128)]
    frame = found.to_frame()
    assert frame.loc[frame.layer == LATE, "window_floor"].tolist() == [272, 72]
    assert [found.value(Count.LOGIT_ROWS, 39, request=r) for r in (0, 1)] == [300, 1]


def test_the_last_window_is_that_of_a_trimmed_run():
    runtime = policy("sglang", decoder_replay=True, prompt_logprobs="two_floors")
    wanted = Request(new_tokens=4000, prompt_logprobs=True)
    whole, trimmed = step(runtime, wanted), step(runtime, Request(new_tokens=4000))
    head = triangle(128) + (4000 - 128 - 128) * 128  # rows 0..3871, floor 0
    for count, before in ((Count.WINDOW_PAIRS, head), (Count.QUERY_ROWS, 4000 - 128)):
        assert whole.total(count, LATE) == before + trimmed.total(count, LATE)


def test_all_rows_run_as_without_replay():
    request = Request(new_tokens=1000, prefix_tokens=500, prompt_logprobs=True)
    for preset in ("vllm", "atom", "trtllm"):
        on, off = (step(policy(preset, decoder_replay=r), request) for r in (True, False))
        assert on.to_frame().equals(off.to_frame())


@pytest.mark.parametrize("floor", ["tail_start", "window_start", "prompt_window"])
def test_logprob_rows_of_a_chunk_before_the_tail_see_their_extend(floor: str):
    """A prompt-anchored tail that starts after the chunk: all its rows are earlier rows."""
    runtime = policy(
        "trtllm", decoder_replay=True, prompt_logprobs="two_floors", replay_floor=floor
    )
    early = Request(new_tokens=50, prefix_tokens=100, prompt_tokens=1000, prompt_logprobs=True)
    found = step(runtime, early)
    assert found.total(Count.WINDOW_PAIRS, LATE) == triangle(50)
    assert found.total(Count.WINDOW_ROWS, LATE) == rows(found, LATE) == 50
    assert found.total(Count.WINDOW_ROWS_CACHED, LATE) == 0


def test_the_boundary_layer_of_a_logprob_request_reads_full_windows():
    """With KV-only at layer 20, all rows query there and each sees its whole window (§1.6)."""
    runtime = policy(
        "sglang", decoder_replay=True, prompt_logprobs="two_floors", boundary_layer="kv_only"
    )
    found = step(runtime, Request(new_tokens=300, prefix_tokens=100, prompt_logprobs=True))
    # Row 100 sees 101 positions, row 127 and later see 128: 100..126 and then 273 rows.
    assert rows(found, 20) == 300
    assert found.total(Count.WINDOW_PAIRS, 20) == triangle(127) - triangle(100) + 273 * 128
    assert found.total(Count.WINDOW_ROWS, 20) == 400
    assert found.total(Count.WINDOW_ROWS_CACHED, 20) == 100
    assert found.total(Count.SELECTED_ENTRIES, 20) == triangle(400) - triangle(100)
    assert found.total(Count.SCORED_POSITIONS, 20) == triangle(400) - triangle(100)


# --- the last KV owner (§1.6, note to #10) ----------------------------------------------------


@pytest.mark.parametrize("preset", ["vllm", "paper", "trtllm"])
def test_kept_rows_of_layer_20_see_their_whole_window(preset: str):
    runtime = policy(preset, decoder_replay=True, boundary_layer="kv_only")
    found = step(runtime, Request(new_tokens=8192))
    assert found.total(Count.WINDOW_PAIRS, 20) == 16384
    assert found.total(Count.WINDOW_ROWS, 20) == 255
    assert found.total(Count.WINDOW_ROWS_CACHED, 20) == 0
    assert found.total(Count.KV_ROWS, 20) == found.total(Count.COMPRESSED_ROWS, 20) == 8192
    assert found.total(Count.SCORED_POSITIONS, 20) == 1_040_448  # 33.6 M without the split


# --- exact halo (§1.5) ------------------------------------------------------------------------


def test_an_exact_tail_is_19_windows_long():
    """19 x 127 + 1 = 2414 rows, 2560 as a multiple of 256."""
    for multiple, kept in ((1, 2414), (64, 2432), (256, 2560)):
        runtime = policy(
            "vllm", decoder_replay=True, replay_exact=True, replay_exact_multiple=multiple
        )
        assert rows(step(runtime, Request(new_tokens=16384)), LATE) == kept


def test_below_the_threshold_nothing_is_cut():
    runtime = policy("vllm", decoder_replay=True, replay_exact=True)
    short = Request(new_tokens=16383, prefix_tokens=4096)
    off = step(policy("vllm"), short)
    assert step(runtime, short).to_frame().equals(off.to_frame())
    # The threshold is one of the step: two requests reach it together.
    both = step(runtime, Request(new_tokens=8192, count=2))
    assert rows(both, LATE) == 2 * 2560


def test_the_threshold_counts_tokens_that_a_page_rounding_gives_back():
    """A hit of 8193 becomes 8192 and one more new row (§2.5), which the engine schedules."""
    runtime = policy("sglang", decoder_replay=True, replay_exact=True)
    found = step(runtime, Request(new_tokens=16383, prefix_tokens=8193, window="cached"))
    assert rows(found) == 16384
    assert rows(found, LATE) == 2560


# --- encoder replay (§2.1, §2.2, §2.5) --------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "hit", "replayed", "adopted"),
    [
        (policy("sglang", encoder_replay="folded"), 100, 0, 0),
        (policy("sglang", encoder_replay="folded"), 128, 0, 0),
        (policy("sglang", encoder_replay="folded"), 8192, 128, 8192),
        (policy("sglang", encoder_replay="folded"), 8193, 128, 8192),
        (policy("vllm"), 100, 0, 0),
        (policy("vllm"), 128, 0, 0),
        (policy("vllm"), 8192, 128, 8192),
        (policy("vllm"), 8193, 128, 8192),
        (policy("paper"), 100, 100, 100),
        (policy("paper"), 128, 128, 128),
        (policy("paper"), 8192, 128, 8192),
        (policy("paper"), 8193, 128, 8193),
    ],
)
def test_page_size_against_hit_length(
    runtime: RuntimePolicy, hit: int, replayed: int, adopted: int
):
    """The table of §2.5: rows replayed, and the hit that is left after page rounding."""
    found = step(runtime, Request(new_tokens=512, prefix_tokens=hit, window="missing"))
    end = hit + 512
    assert rows(found) == replayed + end - adopted
    assert found.total(Count.ENTRIES_WRITTEN, 2) == end // 2 - adopted // 2
    assert found.total(Count.ENTRIES_WRITTEN, 20) == end - adopted
    frame = found.to_frame()
    assert set(frame.window_floor) == {adopted - replayed}
    assert set(frame.first_row) == {adopted - replayed}


@pytest.mark.parametrize(("hit", "scheduled"), [(100, 612), (65536, 640)])
def test_scheduled_rows_of_a_hit_under_vllm(hit: int, scheduled: int):
    found = step(policy("vllm"), Request(new_tokens=512, prefix_tokens=hit, window="missing"))
    assert rows(found) == found.total(Count.TOKENS, 0) == scheduled


@pytest.mark.parametrize(("preset", "compressed"), [("vllm", 192), ("sglang", 64)])
def test_the_compressor_runs_on_replayed_rows_or_not(preset: str, compressed: int):
    """vLLM executes it and stores nothing; SGLang skips the rows (§2.1, §2.2)."""
    request = Request(new_tokens=64, prefix_tokens=8192, window="missing")
    found = step(policy(preset, encoder_replay="folded"), request)
    for owner, ratio in ((2, 2), (8, 2), (14, 2), (20, 1)):
        assert found.total(Count.COMPRESSED_ROWS, owner) == compressed
        assert found.total(Count.ENTRIES_WRITTEN, owner) == 64 // ratio


def test_separate_encoder_replay_is_a_forward_of_its_own():
    """SGLang's older form: #33 first, then the extend of #17 whose floor hides what it rebuilt."""
    request = Request(new_tokens=64, prefix_tokens=8192, window="missing", count=3)
    found = step(policy("sglang", encoder_replay="separate", decoder_replay=True), request)
    assert len(found.passes) == 2
    assert found.token_layers == 3 * (5120 + 2560)
    replay = [found.value(Count.WINDOW_PAIRS, layer, forward=0, request=0) for layer in range(40)]
    extend = [found.value(Count.WINDOW_PAIRS, layer, forward=1, request=0) for layer in range(40)]
    assert replay == [3 * 8256] * 40
    assert extend == [3 * 8192] * 21 + [3 * 2080] * 19
    assert found.total(Count.ENTRIES_WRITTEN, 2) == 3 * 32
    assert found.value(Count.SCORED_POSITIONS, 24, forward=0, request=0) == 3 * 1_040_448


def test_a_separate_replay_has_one_logits_row():
    """One extra forward a hit request, with one logits row (§2.1)."""
    request = Request(new_tokens=64, prefix_tokens=8192, window="missing")
    found = step(policy("sglang", encoder_replay="separate"), request)
    assert [found.value(Count.LOGIT_ROWS, 39, forward=f, request=0) for f in (0, 1)] == [1, 1]


def test_a_snapshot_is_restored_a_window_before_the_prompt_ends():
    """TensorRT-LLM: restored when P <= N - 128, otherwise the window is replayed (§2.3)."""
    runtime = policy("trtllm", decoder_replay=True)
    for new, expected in ((127, 127 + 128), (128, 128), (129, 129)):
        request = Request(new_tokens=new, prefix_tokens=511, window="snapshot")
        assert rows(step(runtime, request)) == expected


# --- many requests, index work ----------------------------------------------------------------


def test_a_million_requests():
    one = Request(new_tokens=1, prefix_tokens=8191, kind="decode")
    many = Request(new_tokens=1, prefix_tokens=8191, kind="decode", count=1_000_000)
    single, found = step(policy("sglang"), one), step(policy("sglang"), many)
    assert found.token_layers == 40_000_000
    for count in (Count.SELECTED_ENTRIES, Count.SCORED_POSITIONS, Count.ENTRIES_WRITTEN):
        assert found.total(count, 20) == 1_000_000 * single.total(count, 20) > 0


def test_a_decode_must_read_old_entries():
    """One new entry at most is new, so all but one of what is read was there before the step."""
    found = step(policy("sglang"), Request(new_tokens=1, prefix_tokens=131071, kind="decode"))
    for count, layer, read in (
        (Count.SELECTED_ROWS, 20, 512),
        (Count.SELECTED_ROWS, 2, 512),
        (Count.INDEX_KEYS, 20, 131072),
        (Count.INDEX_KEYS, 24, 16384),
        (Count.INDEX_KEYS, 2, 65536),
    ):
        assert found.total(count, layer) == read
        assert found.total(Count(f"{count}_cached"), layer) == read - 1


@pytest.mark.parametrize(
    ("end", "skipped"),
    [
        (512, (True, True)),
        (513, (True, False)),
        (1025, (True, False)),
        (1026, (False, False)),
    ],
)
def test_scoring_is_skipped_while_everything_is_selected(end: int, skipped: tuple[bool, bool]):
    """Switch points: ratio 2 at S = 1026, ratio 1 at S = 513 (§7)."""
    decode = Request(new_tokens=1, prefix_tokens=end - 1, kind="decode")
    found = step(policy("vllm", index_shortcut="decode"), decode)
    assert tuple(found.total(Count.SCORED_POSITIONS, layer) == 0 for layer in (2, 20)) == skipped
    prefill = step(policy("vllm", index_shortcut="decode"), decode, Request(new_tokens=1))
    assert prefill.total(Count.INDEX_ROWS, 2) == 2


def test_a_rectangle_scores_the_upper_triangle_too():
    square = step(policy("sglang", score_shape="rectangle"), Request(new_tokens=8192))
    assert square.total(Count.SCORED_POSITIONS, 20) == 8192**2
    assert square.total(Count.SCORED_POSITIONS, 2) == 8192 * 4096
    assert square.total(Count.SELECTED_ENTRIES, 20) == 4_063_488
