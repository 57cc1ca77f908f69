"""The published test vectors of the engines' semantics, column by column.

`tests/data/ledger_vectors.json` holds inputs and expected counts of 41 vectors; its note says
where they come from. A vector of several chunks is several plans whose counts add up.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from oracle.draw import REAL
from oracle.rows import forwards
from oracle.walk import count_step

from aisim_v41.model.load import load_model
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

DATA = Path(__file__).resolve().parents[1] / "data" / "ledger_vectors.json"
VECTORS = {v["vector"]: v for v in json.loads(DATA.read_text(encoding="utf-8"))["vectors"]}

EARLY, LAST_OWNER, LATE = range(20), 20, range(21, 40)
RATIO_2, RATIO_2_OWNERS, REINDEX = range(2, 20), (2, 8, 14), (24, 28, 32, 36)

PRESETS = {
    "off": ("sglang", {}),
    "sgl": ("sglang", {"decoder_replay": True}),
    "vllm": ("vllm", {"decoder_replay": True, "hit_page_tokens": 1, "hit_min_tokens": 0}),
    "vllm+L20kv": ("vllm", {"decoder_replay": True, "boundary_layer": "kv_only"}),
    "atom133": ("atom", {"decoder_replay": True}),
    "trt": ("trtllm", {"decoder_replay": True}),
}


@cache
def model():
    return load_model(REAL)


def policy_of(vector: dict, scoring: str) -> RuntimePolicy:
    """The preset that a vector's policy stands for, with what its requests need switched on."""
    preset, overrides = PRESETS[vector["policy"]]
    requests = [request for step in vector["steps"] for request in step]
    overrides = {**overrides, "reindex_scoring": scoring}
    if any(request["replayed_tokens"] for request in requests):
        overrides |= {"encoder_replay": "folded", "hit_page_tokens": 1}
    if any(request["kind"] == "mixed_decode" for request in requests):
        overrides["decode_rows"] = "as_extend"
    return policy(preset, **overrides)


def request_of(entry: dict) -> Request:
    kind = "decode" if entry["kind"] == "mixed_decode" else entry["kind"]
    return Request(
        new_tokens=entry["new_tokens"],
        prefix_tokens=entry["prefix_tokens"],
        kind=kind,
        prompt_tokens=entry["prompt_tokens"] if kind == "prefill" else None,
        window="missing" if entry["replayed_tokens"] else "running",
        window_start=entry.get("window_start", 0),
    )


@cache
def ledgers(number: int, scoring: str) -> tuple[Ledger, ...]:
    vector = VECTORS[number]
    runtime = policy_of(vector, scoring)
    return tuple(
        ledger(Plan(model(), [request_of(entry) for entry in step], policy=runtime))
        for step in vector["steps"]
    )


def summed(number: int, count: Count, layers, scoring: str = "candidates") -> int:
    """A count summed over the chunks; every layer of ``layers`` must agree on it."""
    per_layer = {
        sum(step.total(count, layer) for step in ledgers(number, scoring)) for layer in layers
    }
    assert len(per_layer) == 1, f"layers {list(layers)} disagree on {count}: {per_layer}"
    return per_layer.pop()


@cache
def frames(number: int):
    return [step.to_frame() for step in ledgers(number, "candidates")]


def frame_column(number: int, layer: int, column: str) -> list[list[int]]:
    """One column of the printed ledger: a list a step, an item a request."""
    return [frame.loc[frame.layer == layer, column].tolist() for frame in frames(number)]


def late_rows(number: int) -> list[list[int]]:
    counted = [
        [step.value(Count.QUERY_ROWS, LATE[0], request=r) for r in range(len(step.plan.requests))]
        for step in ledgers(number, "candidates")
    ]
    assert all(frame_column(number, layer, "query_rows") == counted for layer in LATE)
    assert all(frame_column(number, layer, "kv_rows") == counted for layer in LATE)
    return counted


# What each column of the file is in the ledger.
COLUMNS = {
    "rows_l0_19": lambda n: summed(n, Count.QUERY_ROWS, EARLY),
    "l20_query_rows": lambda n: summed(n, Count.QUERY_ROWS, [LAST_OWNER]),
    "late_rows": late_rows,
    "late_floor": lambda n: frame_column(n, LATE[0], "window_floor"),
    "ratio2_entries": lambda n: summed(n, Count.ENTRIES_WRITTEN, RATIO_2_OWNERS),
    "ratio1_entries": lambda n: summed(n, Count.ENTRIES_WRITTEN, [LAST_OWNER]),
    "half_pairs": lambda n: [[end % 2 for end in step] for step in frame_column(n, 2, "end_row")],
    "token_layers": lambda n: sum(step.token_layers for step in ledgers(n, "candidates")),
    "window_pairs_l0_20": lambda n: summed(n, Count.WINDOW_PAIRS, EARLY),
    "window_pairs_l21_39": lambda n: summed(n, Count.WINDOW_PAIRS, LATE),
    "selected_l2_19": lambda n: summed(n, Count.SELECTED_ENTRIES, RATIO_2),
    "selected_l20": lambda n: summed(n, Count.SELECTED_ENTRIES, [LAST_OWNER]),
    "selected_l21_39": lambda n: summed(n, Count.SELECTED_ENTRIES, LATE),
    "scored_l2_8_14": lambda n: summed(n, Count.SCORED_POSITIONS, RATIO_2_OWNERS),
    "scored_l20": lambda n: summed(n, Count.SCORED_POSITIONS, [LAST_OWNER]),
    "scored_reindex_dense": lambda n: summed(n, Count.SCORED_POSITIONS, REINDEX, "dense"),
    "scored_reindex_candidates": lambda n: summed(n, Count.SCORED_POSITIONS, REINDEX),
}

CASES = [(number, column) for number, v in VECTORS.items() for column in v["expected"]]


@pytest.mark.parametrize(("number", "column"), CASES)
def test_vector(number: int, column: str):
    assert COLUMNS[column](number) == VECTORS[number]["expected"][column]


def test_the_file_is_whole():
    assert list(VECTORS) == list(range(1, 42))
    assert all(set(v["expected"]) == set(COLUMNS) for v in VECTORS.values())


@pytest.mark.parametrize("number", VECTORS)
def test_layer_20_reads_the_window_of_the_early_layers(number: int):
    """The column is headed L0-20; only layer 20's kept rows of #10 differ (its note)."""
    expected = VECTORS[number]["expected"]["window_pairs_l0_20"]
    assert summed(number, Count.WINDOW_PAIRS, [LAST_OWNER]) == (16384 if number == 10 else expected)


@pytest.mark.parametrize("number", VECTORS)
def test_window_rows_are_written_by_every_row_of_a_layer(number: int):
    expected = VECTORS[number]["expected"]
    assert summed(number, Count.KV_ROWS, [*EARLY, LAST_OWNER]) == expected["rows_l0_19"]
    late = sum(sum(step) for step in expected["late_rows"])
    assert summed(number, Count.KV_ROWS, LATE) == late


ORACLE_COLUMNS = {
    "rows_l0_19": (0, "query_rows"),
    "l20_query_rows": (20, "query_rows"),
    "ratio2_entries": (2, "entries_written"),
    "ratio1_entries": (20, "entries_written"),
    "window_pairs_l0_20": (0, "window_pairs"),
    "window_pairs_l21_39": (21, "window_pairs"),
    "selected_l2_19": (2, "selected_entries"),
    "selected_l20": (20, "selected_entries"),
    "selected_l21_39": (21, "selected_entries"),
    "scored_l2_8_14": (2, "scored_positions"),
    "scored_l20": (20, "scored_positions"),
}


def rows_of(vector: dict) -> int:
    return vector["expected"]["rows_l0_19"]


@pytest.mark.parametrize("number", [n for n, v in VECTORS.items() if rows_of(v) < 2000])
def test_the_oracle_agrees_with_the_vectors(number: int):
    check_oracle(number)


@pytest.mark.long
@pytest.mark.parametrize("number", [n for n, v in VECTORS.items() if rows_of(v) >= 2000])
def test_the_oracle_agrees_with_the_long_vectors(number: int):
    check_oracle(number)


def check_oracle(number: int) -> None:
    """The file's numbers come from another calculator than the oracle: both must agree."""
    vector, found = VECTORS[number], dict.fromkeys(ORACLE_COLUMNS, 0)
    floors, kept, pools = [], [], {"dense": 0, "candidates": 0}
    for step in vector["steps"]:
        requests = [request_of(entry) for entry in step]
        runtime = policy_of(vector, "candidates")
        (forward,) = forwards(model(), runtime, requests)
        floors.append([sequence.late_floor for sequence in forward.sequences])
        kept.append([len(sequence.late_queries) for sequence in forward.sequences])
        (layers,) = count_step(model(), runtime, requests)
        for column, (layer, name) in ORACLE_COLUMNS.items():
            found[column] += sum(counts[name] for counts in layers[layer])
        for scoring in pools:
            (layers,) = count_step(model(), policy_of(vector, scoring), requests)
            pools[scoring] += sum(counts["scored_positions"] for counts in layers[24])
    found |= {f"scored_reindex_{name}": value for name, value in pools.items()}
    found |= {"late_floor": floors, "late_rows": kept}
    assert found == {column: vector["expected"][column] for column in found}
