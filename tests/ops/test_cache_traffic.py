"""Cache rows that a step writes and reads (model-facts §5), by layout."""

from __future__ import annotations

import pytest

from aisim_v41.ops.operator import MUST_CROSS_HBM, Traffic
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from ops.graphs import ELEMENTARY, amount, built, counts, decode, moved

BIG = policy("sglang", kv_layout="sglang_v4", fusion="elementary")
"""584-byte rows for window and global entries."""
READS = (Traffic.KV_READ, Traffic.KV_REREAD)


def read_by(name: str, runtime, request: Request):
    tasks = [task for task in built(runtime).tasks if task.name == name]
    return moved(tasks, counts(runtime, request), *READS)


@pytest.mark.parametrize(
    ("runtime", "tokens", "window", "selected"),
    [
        (ELEMENTARY, 4096, 2_703_360, 5_603_328),
        (ELEMENTARY, 1 << 20, 2_703_360, 5_603_328),
        (BIG, 131_072, 2_990_080, 11_362_304),
    ],
)
def test_rows_attended_by_a_decoded_token(runtime, tokens: int, window: int, selected: int):
    """128 window rows in 40 layers, 512 selected rows in 38: 5,120 and 19,456 rows."""
    assert read_by("sparse_attention", runtime, decode(tokens)) == window + selected


@pytest.mark.parametrize(
    ("tokens", "expected"), [(4096, 1_810_432), (131_072, 26_738_688), (1 << 20, 182_714_368)]
)
def test_index_keys_scored_by_a_decoded_token(tokens: int, expected: int):
    """68 B x (3 floor(N / 2) + N + 4 min(N, 16,384))."""
    assert read_by("index_score", ELEMENTARY, decode(tokens)) == expected


def test_index_keys_of_unrestricted_scans():
    dense = policy("paper", fusion="elementary", reindex_scoring="dense")
    assert read_by("index_score", dense, decode(1 << 20)) == 463_470_592


@pytest.mark.parametrize(("runtime", "entry", "row"), [(ELEMENTARY, 356, 528), (BIG, 652, 584)])
def test_rows_written_by_decoded_tokens(runtime, entry: int, row: int):
    """A window row in 40 layers; an entry in layer 20, and every second token in three more."""
    written = [
        moved(built(runtime).tasks, counts(runtime, decode(n)), Traffic.KV_WRITE)
        for n in (4095, 4096)
    ]
    assert written == [40 * row + entry, 40 * row + 4 * entry]
    assert sum(written) / 2 - 40 * row == entry * (1 + 3 / 2)  # 890 and 1,630 B a token


def test_slope_of_global_kv():
    written = [
        moved(built(runtime).tasks, counts(runtime, Request(new_tokens=8192)), Traffic.KV_WRITE)
        for runtime in (ELEMENTARY, BIG)
    ]
    assert written == [8192 * (890 + 40 * 528), 8192 * (1630 + 40 * 584)]


def test_rows_written_by_a_cut_prompt():
    """The layer at the boundary writes a window row for every token although it queries with the
    tail; 19 layers write the tail alone; entries are complete."""
    runtime = policy("paper", decoder_replay=True)
    written = moved(
        built(runtime).tasks, counts(runtime, Request(new_tokens=8192)), Traffic.KV_WRITE
    )
    assert written == 528 * (21 * 8192 + 19 * 128) + 8192 * 890


def test_no_rank_holds_less_cache_than_another():
    """Cache rows are copied, not divided, under tensor parallelism (runtime-semantics §4.2)."""
    found = counts(ELEMENTARY, Request(new_tokens=300, prefix_tokens=5000))
    for kind in (*READS, Traffic.KV_WRITE):
        whole = moved(built(ELEMENTARY, 1).tasks, found, kind)
        assert [moved(built(ELEMENTARY, tp).tasks, found, kind) for tp in (2, 4, 8)] == [whole] * 3


def test_what_a_decoded_token_must_read_from_memory():
    """Context 4096, of which 4095 positions are older than the step. Window: 127 older rows in 40
    layers. Owners: 511 of their 512 selected rows at least are old; keys 3 x 2047 + 4095 are."""
    found = counts(ELEMENTARY, decode(4096))
    tasks = built(ELEMENTARY).tasks
    must = moved(tasks, found, Traffic.KV_READ)
    assert must == 40 * 127 * 528 + 4 * 511 * 288 + (3 * 2047 + 4095) * 68
    assert Traffic.KV_READ in MUST_CROSS_HBM
    assert Traffic.KV_REREAD not in MUST_CROSS_HBM


def test_a_cold_prompt_need_not_read_any_cache():
    """It has just written all rows that it reads."""
    found = counts(ELEMENTARY, Request(new_tokens=8192))
    assert moved(built(ELEMENTARY).tasks, found, Traffic.KV_READ) == 0
    assert moved(built(ELEMENTARY).tasks, found, Traffic.KV_REREAD) > 0


@pytest.mark.parametrize(
    "request_",
    [
        Request(new_tokens=1),
        Request(new_tokens=129),
        Request(new_tokens=64, prefix_tokens=8192),
        Request(new_tokens=3000, prefix_tokens=20_001),
        Request(new_tokens=6, prefix_tokens=700, kind="verify"),
        decode(1 << 20),
    ],
)
@pytest.mark.parametrize(
    "runtime", [ELEMENTARY, policy("paper", decoder_replay=True), policy("vllm")]
)
def test_reads_never_fall_below_zero(runtime, request_: Request):
    """Rereads are what is read beyond the unavoidable part, in every single operator."""
    found = counts(runtime, request_)
    for task in built(runtime).tasks:
        for kind in Traffic:
            assert amount(task.traffic[kind], found) >= 0, (task.name, kind)
