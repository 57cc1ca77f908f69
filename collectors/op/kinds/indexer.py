"""Indexer: scores of cached keys, the best entries of each row, and the pool of candidate blocks.

Source: model-facts §4.2-§4.3; runtime-semantics §7.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import (
    BF16_BYTES,
    FP32_BYTES,
    INDEX_HEADS,
    INT32_BYTES,
    KEY,
    KEY_BYTES,
    QUERY_BYTES,
    SELECTED,
)
from collectors.op.kinds.spread import ROWS, ROWS_PER_REQUEST, ramp_of, requests_of

CANDIDATE_BLOCK = 8
"""Consecutive entries that enter or miss the pool together."""
CANDIDATE_BLOCKS = 2048
KEYS_PER_CANDIDATE = 8
"""Keys of a request for each candidate, where a case does not say: 16,384 of 131,072."""
SCORE_BYTES = {"bf16": BF16_BYTES, "fp32": FP32_BYTES}

_POSITIONS = SizeRule(
    "positions_per_row", "entries that a row scores, on average; later rows of a request see more",
    highest=1 << 22, whole=False,
)  # fmt: skip


def keys_of(case: Case) -> int:
    """Index keys of each request.

    Raises:
        InputError: fewer than the blocks of its candidates; a number where all are scored.
    """
    last, given = ramp_of(case, requests_of(case)).last, case.whole("keys")
    if case.options["form"] == "dense":
        if given:
            raise InputError(f"case {case.text}: keys are the positions; it is for form=candidates")
        return last
    pool = -(-last // CANDIDATE_BLOCK) * CANDIDATE_BLOCK
    keys = given // CANDIDATE_BLOCK * CANDIDATE_BLOCK or KEYS_PER_CANDIDATE * pool
    if keys < pool:
        raise InputError(f"case {case.text}: {pool} candidates are drawn from {keys} keys")
    return keys


def score_work(case: Case) -> Work:
    """A product of every head and visible key; a request's keys are read once."""
    rows, requests = case.whole("rows"), requests_of(case)
    pairs = rows * float(case.size("positions_per_row"))
    keys = case.options["key_format"]
    return Work(
        flops={keys: 2.0 * INDEX_HEADS * KEY * pairs},
        read_bytes=KEY_BYTES[keys] * requests.count * ramp_of(case, requests).last
        + rows * INDEX_HEADS * (QUERY_BYTES[keys] + BF16_BYTES),
        written_bytes=SCORE_BYTES[case.options["score_format"]] * pairs,
    )


def score_bytes(case: Case) -> float:
    """Memory [B] of keys, queries, candidate blocks and scores."""
    rows, requests = case.whole("rows"), requests_of(case)
    keys, last = case.options["key_format"], ramp_of(case, requests).last
    blocks = 0 if case.options["form"] == "dense" else -(-last // CANDIDATE_BLOCK)
    return (
        KEY_BYTES[keys] * requests.count * keys_of(case)
        + rows * INDEX_HEADS * (QUERY_BYTES[keys] + BF16_BYTES)
        + rows * blocks * INT32_BYTES
        + SCORE_BYTES[case.options["score_format"]] * rows * last
    )


def select_work(case: Case) -> Work:
    """Scores are read once and the chosen positions written; comparisons are no FLOP."""
    rows = case.whole("rows")
    chosen = case.whole("top_k") + case.sizes.get("candidate_blocks", 0)
    scores = SCORE_BYTES[case.options["score_format"]]
    return Work(
        read_bytes=scores * rows * float(case.size("positions_per_row")),
        written_bytes=INT32_BYTES * rows * chosen,
    )


def select_bytes(case: Case) -> float:
    """Memory [B] of scores and chosen positions."""
    last = ramp_of(case, requests_of(case)).last
    scores = SCORE_BYTES[case.options["score_format"]]
    return case.whole("rows") * scores * last + select_work(case).written_bytes


_SCORES = "collectors.op.kernels.index_score"
_SELECT = "collectors.op.kernels.index_select"
_SELECT_OPTIONS = {
    "score_pattern": ("random", "ordered", "equal"),
    "score_format": ("bf16", "fp32"),
}
_TOP_K = SizeRule("top_k", "entries that a row keeps", highest=4096, default=SELECTED)

INDEXER_KINDS: tuple[Kind, ...] = (
    Kind(
        operator="index_score",
        about="scores cached keys: sum over heads of weight x relu(query . key)",
        sizes=(
            ROWS,
            _POSITIONS,
            ROWS_PER_REQUEST,
            SizeRule(
                "keys",
                "index keys of a request that candidates are drawn from; "
                f"0: {KEYS_PER_CANDIDATE} for each candidate",
                lowest=0, default=0,
            ),
        ),
        options={
            "form": ("dense", "candidates"),
            "key_format": ("fp4", "fp8"),
            "score_format": ("bf16", "fp32"),
        },
        work=score_work,
        input_bytes=score_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_SCORES}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_SCORES}:build_torch"),
        ),
        source="model-facts §4.2",
    ),
    Kind(
        operator="index_select",
        about="positions of the best scores of each row, in the order of positions",
        sizes=(ROWS, _POSITIONS, ROWS_PER_REQUEST, _TOP_K),
        options=_SELECT_OPTIONS,
        work=select_work,
        input_bytes=select_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_SELECT}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_SELECT}:build_torch"),
        ),
        source="model-facts §4.2",
    ),
    Kind(
        operator="index_select_pool",
        about="the same, and the best blocks of 8 entries by their best score, the newest always",
        sizes=(
            ROWS,
            _POSITIONS,
            ROWS_PER_REQUEST,
            _TOP_K,
            SizeRule("candidate_blocks", "blocks of the pool", highest=1 << 16,
                     default=CANDIDATE_BLOCKS),
        ),
        options=_SELECT_OPTIONS,
        work=select_work,
        input_bytes=select_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_SELECT}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_SELECT}:build_torch"),
        ),
        source="model-facts §4.3",
    ),
)  # fmt: skip
