"""Whole forwards from a live engine: what is asked, what was executed, and a table of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import CollectorError, ConflictError, InputError, UnavailableError
from collectors.fpm.check import checked, read_forwards
from collectors.fpm.drive import Prompts, measure
from collectors.fpm.engine import Engine
from collectors.fpm.points import ForwardsPlan, Point, points_of
from collectors.journal import read_journal
from tests.collectors.fpm.fake_engine import (
    PREFILL_S,
    STEP_S,
    STREAM_S,
    TOKEN_S,
    FakeEngine,
)

ROOT = Path(__file__).resolve().parents[3]
TEXT = "".join(chr(97 + (place * place) % 23) for place in range(5000))


LATE = 20
"""How many times as long a busy machine may take for what the engine does in an exact time."""


@pytest.fixture
def server() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def asked(server: FakeEngine, point: Point, timeout_s: float = 5.0):
    engine = Engine(server.url, timeout_s)
    facts = engine.connect()
    return measure(engine, point, Prompts([ord(letter) for letter in TEXT]), facts)


def test_an_engine_says_what_it_is_and_no_more(server: FakeEngine):
    facts = Engine(server.url).connect()
    assert facts == {"model": "DeepSeek-V4.1-Flash", "version": "0.6.0", "tp_size": 4,
                     "chunked_prefill_size": 8192, "page_size": 64}  # fmt: skip


def test_a_prefill_is_what_was_executed(server: FakeEngine):
    found = asked(server, Point("prefill", 2000, 0, 1))
    assert found.status == "ok", found.error
    (shape,) = found.requests
    assert shape["kind"] == "prefill"
    assert shape["new_tokens"] + shape["prefix_tokens"] == 2000
    exact = PREFILL_S + TOKEN_S * 2000
    assert exact <= found.seconds < LATE * exact


def test_a_prefix_is_sent_before_and_hit(server: FakeEngine):
    found = asked(server, Point("prefill", 64, 1000, 1))
    assert found.status == "ok", found.error
    (shape,) = found.requests
    assert shape == {"new_tokens": 64, "prefix_tokens": 1000, "kind": "prefill"}


def test_a_decode_is_timed_while_all_streams_run(server: FakeEngine):
    found = asked(server, Point("decode", 1, 200, 3))
    assert found.status == "ok", found.error
    assert [shape["kind"] for shape in found.requests] == ["decode"] * 3
    assert all(200 < shape["prefix_tokens"] < 260 for shape in found.requests)
    exact = (
        STEP_S + 3 * STREAM_S
    )  # between tokens: one that is read late comes early before the next
    assert exact / 2 < found.seconds < LATE * exact
    assert found.steps >= 10


def test_what_was_cut_into_chunks_is_no_single_forward():
    engine = FakeEngine(chunked_prefill_size=512)
    found = asked(engine, Point("prefill", 2000, 0, 1))
    engine.close()
    assert (found.status, found.steps) == ("several_forwards", 0)
    assert "chunks of 512" in found.error


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("status", "failed", "status 500: oops"),
        ("cut", "failed", r"without \[DONE\]"),
        ("garbage", "failed", "JSONDecodeError"),
        ("hang", "failed", "imed"),
        ("no_cache", "unknown_shape", "does not report cached tokens"),
    ],
)
def test_failures_are_told(mode: str, status: str, said: str):
    engine = FakeEngine(mode=mode)
    found = asked(engine, Point("prefill", 100, 0, 1), timeout_s=0.5)
    if mode == "hang":
        found = asked(engine, Point("decode", 1, 100, 1), timeout_s=0.5)
    engine.close()
    assert found.status == status
    import re

    assert re.search(said, found.error)


def test_nothing_there():
    with pytest.raises(UnavailableError, match="no answer"):
        Engine("http://127.0.0.1:9", 1.0).connect()
    for address in ("https://x", "nothing", "http://x/path", "http://x:99999999"):
        with pytest.raises(InputError):
            Engine(address)


def test_prompts_begin_differently():
    prompts = Prompts(list(range(1000)))
    taken = [prompts.take(300) for _ in range(5)]
    assert all(len(one) == 300 for one in taken)
    assert len({one[0] for one in taken}) == 5
    with pytest.raises(InputError, match="at least 64"):
        Prompts([1, 2])


@given(st.integers(1, 9000), st.integers(1, 300), st.integers(1, 70_000))
def test_points_fit_their_workload(chunk: int, batch: int, context: int):
    points = points_of(chunk=chunk, max_batch=batch, context=context)
    assert len({point.name for point in points}) == len(points)
    for point in points:
        assert point.new_tokens + point.prefix_tokens <= context + 1
        assert point.new_tokens <= chunk
        assert point.requests <= batch


def test_knees_are_points_and_minutes_are_kept():
    points = points_of(chunk=8192, max_batch=64, context=32_768)
    sizes = {point.new_tokens for point in points if point.kind == "prefill"}
    assert {128, 512, 1026, 8192} <= sizes
    assert 16_384 in {point.prefix_tokens for point in points}
    short = points_of(chunk=8192, max_batch=64, context=32_768, minutes=1.0)
    assert ForwardsPlan(short).minutes <= 1.0
    with pytest.raises(InputError, match="not one point"):
        points_of(chunk=64, max_batch=1, context=64, minutes=1e-6)


def test_plans_are_read_again_and_foreign_ones_refused(tmp_path: Path):
    plan = ForwardsPlan([Point("prefill", 8, 0, 1), Point("decode", 1, 8, 2)], 3, 1)
    plan.write(tmp_path / "p.json")
    assert ForwardsPlan.read(tmp_path / "p.json") == plan
    whole = json.loads((tmp_path / "p.json").read_text())
    for changed in ({"format": "x"}, {"version": 9}, {"points": 3}, {"points": [{"kind": "x"}]},
                    {"repeats": 4}, {"points": []}):  # fmt: skip
        (tmp_path / "q.json").write_text(json.dumps({**whole, **changed}))
        with pytest.raises(InputError):
            ForwardsPlan.read(tmp_path / "q.json")


@given(st.binary(max_size=200))
def test_any_file_is_a_plan_or_a_clear_error(raw: bytes):
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"plan-{os.getpid()}.json"
    path.write_bytes(raw)
    with pytest.raises(CollectorError):
        ForwardsPlan.read(path)
    path.unlink()


# --- the verbs, as processes ---------------------------------------------------------------------


def shell(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "collectors.fpm", *arguments], cwd=folder,
                          capture_output=True, text=True, env=environment, check=False)  # fmt: skip


POINTS = [Point("prefill", 100, 0, 1), Point("prefill", 800, 0, 1), Point("prefill", 64, 500, 1),
          Point("decode", 1, 100, 1), Point("decode", 1, 100, 4)]  # fmt: skip
IDENTITY = """
gpu: gb300
tp: 4
engine: sglang
decoder_replay: "off"
checkpoint: deepseek-ai/DeepSeek-V4.1-Flash at fb2764a5
engine_build: 0.6.0
image: none
topology: one node, 4 x GB300
"""


def test_an_evening_over_http(server: FakeEngine, tmp_path: Path):
    ForwardsPlan(POINTS, 3, 1).write(tmp_path / "forwards.json")
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "identity.yaml").write_text(IDENTITY)
    run = ("run", "--url", server.url, "--text", "text.txt", "--json")
    done = shell(tmp_path, *run)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"ok": 15}
    _, records = read_journal(tmp_path / "forwards.jsonl")
    assert [record["point"] for record in records] == [point.name for point in POINTS] * 3
    check = shell(tmp_path, "check", "forwards.jsonl", "--json")
    assert check.returncode == 0, check.stdout
    again = shell(tmp_path, *run)
    assert json.loads(again.stdout)["done"] == 15
    assert len(read_journal(tmp_path / "forwards.jsonl")[1]) == 15
    published = shell(tmp_path, "publish", "forwards.jsonl", "--to", "own", "--identity",
                      "identity.yaml", "--json")  # fmt: skip
    assert published.returncode == 0, published.stderr
    said = json.loads(published.stdout)
    assert said["records"] == 15
    measured = [record["samples"][0]["seconds"] for record in records if "x800@" in record["point"]]
    answer = predicted(tmp_path / "own", said["slug"])
    assert answer == pytest.approx(1000 * median(measured), rel=0.05)


def predicted(folder: Path, slug: str) -> float:
    """What the table says of a step that was measured [ms]."""
    import aisim_v41 as aisim

    before = os.environ.get("AISIM_V41_PATH")
    os.environ["AISIM_V41_PATH"] = str(folder)
    try:
        fpm = aisim.load_fpm("gb300", identity=slug)
        return float(fpm.predict([aisim.Request(new_tokens=800)]).latency_ms)
    finally:
        os.environ.pop("AISIM_V41_PATH")
        if before is not None:
            os.environ["AISIM_V41_PATH"] = before


def test_an_evening_with_the_schedulers_events(tmp_path: Path):
    events = tmp_path / "events.jsonl"
    events.write_text("")
    engine = FakeEngine(events)
    ForwardsPlan(POINTS[:2] + POINTS[3:4], 2, 0).write(tmp_path / "forwards.json")
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "identity.yaml").write_text(IDENTITY)
    done = shell(tmp_path, "run", "--url", engine.url, "--text", "text.txt", "--driver", "events",
                 "--events", "events.jsonl")  # fmt: skip
    engine.close()
    assert done.returncode == 0, done.stderr
    header, records = read_journal(tmp_path / "forwards.jsonl")
    assert header["timer"] == "scheduler_wall"
    shapes = [s["event"]["scheduled_requests"] for record in records for s in record["samples"]]
    assert {100, 800} <= {shape["sum_prefill_tokens"] for shape in shapes}
    published = shell(tmp_path, "publish", "forwards.jsonl", "--to", "own", "--identity",
                      "identity.yaml", "--json")  # fmt: skip
    assert published.returncode == 0, published.stderr
    said = json.loads(published.stdout)
    assert said["records"] >= len(records)
    exact = 1000 * (PREFILL_S + 800 * TOKEN_S)
    assert predicted(tmp_path / "own", said["slug"]) == pytest.approx(exact, rel=1e-6)


BENCH = """
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
names = ("--batch-size", "--input-len", "--output-len")
batch, length, steps = (int(given[name]) for name in names)
with open(given["--result-filename"], "a") as out:
    out.write(json.dumps({"run_name": "default", "batch_size": batch, "input_len": length,
        "output_len": steps, "prefill_latency": 0.01, "prefill_throughput": batch * length / 0.01,
        "median_decode_latency": 0.005, "median_decode_throughput": batch / 0.005,
        "total_latency": 0.01 + 0.005 * (steps - 1), "overall_throughput": 100.0}) + chr(10))
"""


def test_an_evening_with_bench_one_batch(tmp_path: Path):
    (tmp_path / "bench.py").write_text(BENCH)
    (tmp_path / "identity.yaml").write_text(IDENTITY)
    ForwardsPlan([Point("prefill", 512, 0, 1), Point("decode", 1, 256, 4), POINTS[2]], 1, 0).write(
        tmp_path / "forwards.json"
    )
    done = shell(tmp_path, "run", "--driver", "bench_one_batch", "--command",
                 f"{sys.executable} bench.py", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"ok": 2, "failed": 1}
    published = shell(tmp_path, "publish", "forwards.jsonl", "--to", "own", "--identity",
                      "identity.yaml", "--json")  # fmt: skip
    assert published.returncode == 0, published.stderr
    assert json.loads(published.stdout)["left_out"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_cleanly(server: FakeEngine, tmp_path: Path, number: signal.Signals):
    ForwardsPlan(POINTS, 50, 0).write(tmp_path / "forwards.json")
    (tmp_path / "text.txt").write_text(TEXT)
    process = subprocess.Popen(
        [sys.executable, "-m", "collectors.fpm", "run", "--url", server.url, "--text", "text.txt"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == 128 + number
    assert read_forwards(tmp_path / "forwards.jsonl").records


def test_kill_at_random_moments_loses_no_sample(server: FakeEngine, tmp_path: Path):
    ForwardsPlan(POINTS[:2], 400, 0).write(tmp_path / "forwards.json")
    (tmp_path / "text.txt").write_text(TEXT)
    draw, told = random.Random(5), 0
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-m", "collectors.fpm", "run", "--url", server.url, "--text",
             "text.txt"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        time.sleep(draw.uniform(0.15, 0.4))
        process.kill()
        lines = process.communicate()[1].strip().split("\n")
        whole = [line for line in lines if "  " in line]
        told = max([told, *(int(line.split("/")[0]) for line in whole)])
        if (tmp_path / "forwards.jsonl").exists():
            assert len(read_forwards(tmp_path / "forwards.jsonl").records) >= told
    assert told > 5


def test_runs_of_two_engines_do_not_mix(server: FakeEngine, tmp_path: Path):
    other = FakeEngine(tp_size=8)
    ForwardsPlan(POINTS[:1], 1, 0).write(tmp_path / "forwards.json")
    (tmp_path / "text.txt").write_text(TEXT)
    for number, engine in enumerate((server, other)):
        done = shell(tmp_path, "run", "--url", engine.url, "--text", "text.txt", "--results",
                     f"{number}.jsonl", "--run-name", f"run-{number}")  # fmt: skip
        assert done.returncode == 0, done.stderr
    other.close()
    findings = checked([tmp_path / "0.jsonl", tmp_path / "1.jsonl"])
    assert any(f.severity == "error" and "engine differs" in f.said for f in findings)
    resumed = shell(tmp_path, "run", "--url", server.url, "--text", "text.txt", "--results",
                    "1.jsonl", "--run-name", "run-1")  # fmt: skip
    assert resumed.returncode == 2
    assert ConflictError.__name__ in resumed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "--chunk", "0"), "chunk = 0"),
        (("run", "nowhere.json"), "nowhere.json: cannot be read"),
        (("check", "nowhere.jsonl"), "cannot be read"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str):
    done = shell(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
