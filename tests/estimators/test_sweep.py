"""Sweeps: many steps at once are the steps one by one, however they are cut."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from estimators.cases import POLICIES, step

FIELDS = ("new_tokens", "prefix_tokens", "count", "kind", "prompt_tokens")


def mixed_frame(rows: int, seed: int = 0) -> pd.DataFrame:
    """Homogeneous steps of all kinds and lengths."""
    draw = np.random.default_rng(seed)
    kind = draw.choice(["prefill", "decode", "verify"], rows)
    new = np.where(kind == "prefill", draw.integers(0, 9000, rows), draw.integers(0, 2, rows))
    prefix = draw.integers(0, 90_000, rows)
    return pd.DataFrame(
        {
            "note": [f"step {row}" for row in range(rows)],
            "new_tokens": new,
            "prefix_tokens": prefix,
            "count": draw.integers(0, 300, rows),
            "kind": kind,
            "prompt_tokens": new + prefix + draw.integers(0, 2, rows) * 700,
        },
        index=draw.permutation(rows) + 100,
    )


def request_of(row) -> Request:
    return Request(**{name: row[name] if name == "kind" else int(row[name]) for name in FIELDS})


@pytest.mark.parametrize("name", POLICIES)
def test_a_sweep_is_its_steps(name: str):
    compiled, frame = step(POLICIES[name]), mixed_frame(40)
    swept = compiled.sweep(frame).latency_ms
    alone = [1000 * compiled([request_of(row)]) for _, row in frame.iterrows()]
    assert swept.tolist() == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("name", ["paper", "sglang, replay", "vllm", "shortcut, rectangle"])
def test_the_same_bits_wherever_a_sweep_is_cut(name: str):
    compiled, frame = step(POLICIES[name]), mixed_frame(1000)
    whole = compiled.sweep(frame).latency_ms.to_numpy()
    for chunk in (1, 3, 17, 64, 100, 999, 1000, 5000):
        rows = 60 if chunk < 10 else 1000
        cut = compiled.sweep(frame.head(rows), chunk_steps=chunk).latency_ms.to_numpy()
        assert cut.tobytes() == whole[:rows].tobytes(), chunk


def test_the_same_bits_in_any_order_of_rows():
    compiled, frame = step(POLICIES["sglang, replay"]), mixed_frame(500)
    order = np.random.default_rng(1).permutation(500)
    shuffled = compiled.sweep(frame.iloc[order])
    assert shuffled.loc[frame.index].equals(compiled.sweep(frame))


def test_the_frame_comes_back_with_one_more_column():
    frame = mixed_frame(20)
    before = frame.copy(deep=True)
    after = step(POLICIES["vllm"]).sweep(frame)
    assert frame.equals(before)
    assert list(after.columns) == [*frame.columns, "latency_ms"]
    assert after.drop(columns="latency_ms").equals(before)
    assert after.latency_ms.dtype == np.float64


def test_missing_columns_take_the_defaults_of_a_request():
    compiled = step(POLICIES["paper"])
    (only,) = compiled.sweep(pd.DataFrame({"new_tokens": [700]})).latency_ms
    assert only == pytest.approx(1000 * compiled([Request(new_tokens=700)]), rel=1e-12)


def test_columns_of_any_numeric_type():
    compiled = step(POLICIES["paper"])
    values = [1, 7, 100]
    expected = compiled.sweep(pd.DataFrame({"new_tokens": values})).latency_ms.tolist()
    for kind in ("uint8", "int32", "float32", "float64", "Int64"):
        frame = pd.DataFrame({"new_tokens": pd.array(values, dtype=kind)})
        assert compiled.sweep(frame).latency_ms.tolist() == expected
    kinds = pd.DataFrame({"new_tokens": [1, 1], "kind": pd.Categorical(["decode", "verify"])})
    assert len(compiled.sweep(kinds)) == 2


def test_hits_in_a_sweep():
    """Window states and prompt log-probabilities are fields like the others."""
    runtime = policy("vllm", decoder_replay=True)
    compiled = step(runtime)
    frame = pd.DataFrame(
        {
            "new_tokens": [64, 64, 64, 64],
            "prefix_tokens": [8192, 8192, 8192, 8192],
            "window": ["running", "cached", "missing", "running"],
            "window_start": [5, 0, 0, 0],
            "prompt_logprobs": [False, False, False, True],
        }
    )
    alone = [
        1000 * compiled([Request(new_tokens=64, prefix_tokens=8192, window=w, window_start=s,
                                 prompt_logprobs=p)])
        for w, s, p in zip(frame.window, frame.window_start.tolist(),
                           frame.prompt_logprobs.tolist(), strict=True)
    ]  # fmt: skip
    assert compiled.sweep(frame).latency_ms.tolist() == pytest.approx(alone, rel=1e-12)
    assert len({round(time, 9) for time in alone}) > 1


def test_a_stream_of_frames():
    compiled = step(POLICIES["vllm"])
    parts = [mixed_frame(30, seed) for seed in range(3)]
    swept = list(compiled.sweep_frames(iter(parts)))
    assert all(s.equals(compiled.sweep(part)) for s, part in zip(swept, parts, strict=True))
    assert list(compiled.sweep_frames([])) == []


def test_no_rows_no_times():
    swept = step(POLICIES["paper"]).sweep(pd.DataFrame({"new_tokens": []}))
    assert list(swept.columns) == ["new_tokens", "latency_ms"]
    assert len(swept) == 0


BAD = {
    "negative": ({"new_tokens": [1, -1]}, InvalidInputError, r"row 1: new_tokens = -1"),
    "a half": ({"new_tokens": [0.5]}, InvalidInputError, r"row 0: new_tokens = 0\.5"),
    "nan": ({"new_tokens": [1, float("nan")]}, InvalidInputError, r"row 1: new_tokens = nan"),
    "infinite": ({"new_tokens": [float("inf")]}, InvalidInputError, r"row 0: new_tokens = inf"),
    "none": (
        {"new_tokens": [1, 1, None]}, InvalidInputError, r"row 2: new_tokens = nan"),
    "huge": ({"new_tokens": [1 << 50]}, InvalidInputError, r"row 0: new_tokens"),
    "words": (
        {"new_tokens": ["few"]}, InvalidInputError, r"row 0: new_tokens = 'few': must be"),
    "other column": (
        {"new_tokens": [1, 1], "prefix_tokens": [0, -2]}, InvalidInputError,
        r"row 1: prefix_tokens = -2"),
    "unknown kind": (
        {"new_tokens": [1], "kind": ["prefil"]}, InvalidInputError,
        r"row 0: kind = 'prefil'; nearest: prefill"),
    "unknown window": (
        {"new_tokens": [1], "window": ["lost"]}, InvalidInputError, r"row 0: window = 'lost'"),
    "decode of two": (
        {"new_tokens": [1, 2], "kind": ["decode"] * 2}, InvalidInputError,
        r"row 1: Request\.new_tokens = 2 with kind 'decode'"),
    "prompt too short": (
        {"new_tokens": [4, 4], "prompt_tokens": [4, 3]}, InvalidInputError,
        r"row 1: Request\.prompt_tokens = 3"),
    "window beyond prefix": (
        {"new_tokens": [1], "prefix_tokens": [2], "window_start": [3]}, InvalidInputError,
        r"row 0: Request\.window_start = 3"),
    "logprobs of two": (
        {"new_tokens": [1], "prompt_logprobs": [2]}, InvalidInputError,
        r"row 0: prompt_logprobs = 2"),
    "no new tokens": ({"prefix_tokens": [1]}, InvalidInputError, r"no column new_tokens"),
    "beyond the context": (
        {"new_tokens": [1, 1_048_577]}, OutOfRangeError, r"row 1: 1048577 tokens.*1048576"),
    "too many to count": (
        {"new_tokens": [1_048_576], "count": [1 << 40]}, OutOfRangeError, r"row 0: count"),
    "a hit that cannot be used": (
        {"new_tokens": [1], "prefix_tokens": [500], "window": ["snapshot"]},
        UnsupportedPlanError, r"row 0: .*window='snapshot'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_frames_are_refused_by_column_and_row(name: str):
    columns, error, message = BAD[name]
    with pytest.raises(error, match=message):
        step(POLICIES["paper"]).sweep(pd.DataFrame(columns))


UNREFUSED = {
    "a column nearly named like a field": {"new_tokens": [1], "prefix_token": [3]},
    "numbers as text": {"new_tokens": ["12"]},
    "complex numbers": {"new_tokens": [1 + 2j]},
}
MISNAMED = {
    "prefix_token": "prefix_tokens", "prefix": "prefix_tokens", "Prefix_Tokens": "prefix_tokens",
    "prefix tokens": "prefix_tokens", "PREFIX": "prefix_tokens", "context": "prefix_tokens",
    "batch": "count", "Batch Size": "count", "Count": "count", "counts": "count",
    "kinds": "kind", "Kind": "kind", " kind": "kind", "NEW_TOKENS": "new_tokens",
    "prompt": "prompt_tokens", "Window": "window", "window-start": "window_start",
    "logprobs": "prompt_logprobs",
}  # fmt: skip
NO_NUMBERS = {
    "text": ["12"],
    "text of pandas": pd.array(["12"], dtype="string"),
    "truth": [True],
    "truth of pandas": pd.array([True], dtype="boolean"),
    "truth among objects": pd.Series([True], dtype=object),
    "complex": [1 + 2j],
    "complex among objects": pd.Series([1 + 2j, "x"], dtype=object).head(1),
    "numpy complex among objects": pd.Series([np.complex128(1), "x"], dtype=object).head(1),
    "dates": pd.to_datetime(["2026-01-01"]),
    "dates with zones": pd.to_datetime(["2026-01-01"]).tz_localize("UTC"),
    "durations": pd.to_timedelta([5], unit="s"),
    "durations among objects": pd.Series([np.timedelta64(5, "s"), 1], dtype=object).head(1),
    "lists": [[1]],
    "none": pd.Series([None], dtype=object),
    "missing": pd.array([None], dtype="Int64"),
    "integers beyond floats": pd.Series([1 << 2000], dtype=object),
}
NO_NAMES = [["decode"], {"decode": 1}, {"decode"}, np.array(["decode"]), ("decode",), 5, None, True]
NAMES_NO_ROW = {"new_tokens": [1, 1], "kind": ["prefill", "prefil"]}


@pytest.mark.parametrize("name", UNREFUSED)
def test_silent_defaults_are_refused(name: str):
    with pytest.raises(InvalidInputError):
        step(POLICIES["paper"]).sweep(pd.DataFrame(UNREFUSED[name]))


def test_unknown_names_are_refused_by_row():
    with pytest.raises(InvalidInputError, match=r"row 1: kind = 'prefil'"):
        step(POLICIES["paper"]).sweep(pd.DataFrame(NAMES_NO_ROW))


@pytest.mark.parametrize("name", MISNAMED)
def test_misnamed_columns_are_refused(name: str):
    frame = pd.DataFrame({"new_tokens": [1], name: [1]})
    with pytest.raises(InvalidInputError, match=f"'{MISNAMED[name]}' is. Rename it"):
        step(POLICIES["paper"]).sweep(frame)


@pytest.mark.parametrize("name", ["note", "step", "id", "tokens", "gpu", "time_ms", 5])
def test_columns_of_other_names_are_carried_along(name: object):
    frame = pd.DataFrame({"new_tokens": [1], name: [1]})
    assert list(step(POLICIES["paper"]).sweep(frame).columns) == ["new_tokens", name, "latency_ms"]


@pytest.mark.parametrize("column", ["new_tokens", "count"])
@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_is_refused(name: str, column: str):
    frame = pd.DataFrame({"new_tokens": [1]}).assign(**{column: NO_NUMBERS[name]})
    with pytest.raises(InvalidInputError, match=column):
        step(POLICIES["paper"]).sweep(frame)


@pytest.mark.parametrize("column", ["kind", "window"])
@pytest.mark.parametrize("value", NO_NAMES, ids=repr)
def test_what_is_no_name_is_refused_by_column_and_row(column: str, value: object):
    usual = {"kind": "prefill", "window": "running"}[column]
    frame = pd.DataFrame({"new_tokens": [1, 1], column: pd.Series([usual, value], dtype=object)})
    with pytest.raises(InvalidInputError, match=f"row 1: {column} = "):
        step(POLICIES["paper"]).sweep(frame)


def test_a_column_latency_ms_is_not_overwritten():
    frame = pd.DataFrame({"new_tokens": [1], "latency_ms": [7.0]})
    with pytest.raises(InvalidInputError, match="latency_ms, which a sweep adds; rename yours"):
        step(POLICIES["paper"]).sweep(frame)
    renamed = frame.rename(columns={"latency_ms": "measured_ms"})
    assert step(POLICIES["paper"]).sweep(renamed).measured_ms.tolist() == [7.0]


@pytest.mark.parametrize("name", ["new_tokens", "kind"])
def test_columns_that_occur_twice_are_refused(name: str):
    frame = pd.DataFrame([[1, "prefill", 2]], columns=["new_tokens", "kind", name])
    with pytest.raises(InvalidInputError, match=f"column {name} occurs 2 times"):
        step(POLICIES["paper"]).sweep(frame)


@pytest.mark.parametrize("frame", [None, 5, [1], {"new_tokens": [1]}, pd.Series([1]), "frame"])
def test_what_is_no_frame_is_refused(frame: object):
    with pytest.raises(InvalidInputError, match="takes a pandas frame, not"):
        step(POLICIES["paper"]).sweep(frame)


@pytest.mark.parametrize("frames", [None, 5])
def test_what_is_no_stream_of_frames_is_refused(frames: object):
    with pytest.raises(InvalidInputError, match="frames = "):
        list(step(POLICIES["paper"]).sweep_frames(frames))


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, "8"])
def test_a_chunk_is_a_number_of_rows(chunk: object):
    with pytest.raises(InvalidInputError, match="chunk_steps = "):
        step(POLICIES["paper"]).sweep(pd.DataFrame({"new_tokens": [1]}), chunk_steps=chunk)


def test_a_replay_that_takes_a_forward_of_its_own_is_refused():
    frame = pd.DataFrame({"new_tokens": [1], "prefix_tokens": [500], "window": ["missing"]})
    with pytest.raises(UnsupportedPlanError, match=r"'separate'.*window column"):
        step(POLICIES["separate encoder replay"]).sweep(frame)
