"""Runs: resumed, stopped, crashed into, and never ended by a case."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.errors import ConflictError, InputError, UnavailableError
from collectors.journal import read_journal
from collectors.op.results import Result
from collectors.op.run import Progress, RunOptions, run
from collectors.timing.record import TimingOptions
from tests.collectors.fakes import COMMAND, plan_of, timing

ROOT = Path(__file__).resolve().parents[3]
CPU = RunOptions(device="cpu", timeout_s=5.0)
ACTS = ("ok", "oom", "unsupported", "failed", "invalid", "crash", "exit", "ok")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def statuses(results: Path) -> dict[str, str]:
    return {record["asked"]: record["status"] for record in read_journal(results)[1]}


def test_no_case_ends_a_run(results: Path):
    texts = [f"small_kernel act={act} rows={n}" for n, act in enumerate(ACTS, 1)]
    told: list[Progress] = []
    done = run(plan_of(*texts), results, CPU, lambda p: told.append(p), command=COMMAND)
    assert done.done == len(ACTS) == len(told)
    found = statuses(results)
    expected = {"crash": "failed", "exit": "failed"}
    assert [found[text] for text in texts] == [expected.get(act, act) for act in ACTS]
    errors = [record["error"] for record in read_journal(results)[1]]
    assert "SIGKILL" in errors[5]
    assert "exit code 7" in errors[6]


def test_a_case_that_hangs_is_given_up(results: Path):
    plan = plan_of("small_kernel act=hang rows=1", "small_kernel rows=2")
    quick = RunOptions(device="cpu", timeout_s=0.5)
    run(plan, results, quick, command=COMMAND)
    assert list(statuses(results).values()) == ["timeout", "ok"]


def test_a_run_goes_on_where_it_stopped(results: Path):
    plan = plan_of(*(f"small_kernel rows={n}" for n in range(1, 7)))
    limited = RunOptions(device="cpu", limit_minutes=1e-9)
    first = run(plan, results, limited, command=COMMAND)
    assert (first.done, first.total) == (1, 6)
    asked: list[str] = []
    rest = run(plan, results, CPU, lambda p: asked.append(p.last.asked), command=COMMAND)  # type: ignore[union-attr]
    assert rest.done == 6
    assert len(asked) == 5
    assert len(read_journal(results)[1]) == 6
    assert run(plan, results, CPU, command=COMMAND).done == 6
    assert len(read_journal(results)[1]) == 6


def test_retries_and_choices(results: Path):
    plan = plan_of("small_kernel act=oom rows=1", "small_kernel rows=2", "site_norm rows=3")
    only = RunOptions(device="cpu", only=("small",))
    assert run(plan, results, only, command=COMMAND).total == 2
    again = RunOptions(device="cpu", only=("small",), retry=("oom",))
    run(plan, results, again, command=COMMAND)
    assert [r["status"] for r in read_journal(results)[1]] == ["oom", "ok", "oom"]


def test_another_plan_or_option_is_a_conflict(results: Path):
    run(plan_of("small_kernel rows=1"), results, CPU, command=COMMAND)
    with pytest.raises(ConflictError, match=r"plan.digest"):
        run(plan_of("small_kernel rows=2"), results, CPU, command=COMMAND)
    warm = RunOptions(device="cpu", timing=TimingOptions(cache_state="warm"))
    with pytest.raises(ConflictError, match=r"timing.cache_state"):
        run(plan_of("small_kernel rows=1"), results, warm, command=COMMAND)


def test_processes_that_do_not_come_up(results: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAKE_START", "dies")
    with pytest.raises(UnavailableError, match="exit code 3"):
        run(plan_of("small_kernel rows=1"), results, CPU, command=COMMAND)
    assert not results.exists()


def test_time_left_follows_what_was_seen(results: Path):
    plan = plan_of(*(f"small_kernel act=slow rows={n}" for n in range(1, 5)))
    told: list[tuple[float, float]] = []
    run(plan, results, CPU, lambda p: told.append((p.seconds, p.left_seconds)), command=COMMAND)
    spent, left = told[1]
    assert left == pytest.approx(spent, rel=0.3)  # two done, two to go, alike
    assert told[-1][1] == 0.0


@pytest.mark.parametrize(
    ("how", "said"), [({"device": "tpu"}, "cpu or cuda"), ({"retry": ("nothing",)}, "--retry")]
)
def test_impossible_options_are_refused(how, said: str):
    with pytest.raises(InputError, match=said):
        RunOptions(**{"device": "cpu", **how})


def test_results_that_contradict_themselves_are_refused():
    from collectors.case import Case

    case = Case.from_text("small_kernel rows=1")
    with pytest.raises(InputError):
        Result(case, "ok")
    with pytest.raises(InputError):
        Result(case, "failed", timing=timing(1.0))
    with pytest.raises(InputError):
        Result(case, "done")
    good = Result(case, "ok", timing=timing(1.0), outcome={"touched": 3.0})
    assert Result.from_dict(json.loads(json.dumps(good.to_dict()))) == good
    for broken in ({}, {"case": 3}, {**good.to_dict(), "timing": 3}, None):
        with pytest.raises(InputError):
            Result.from_dict(broken)  # type: ignore[arg-type]


ENDS = """
import os, sys, time
from collectors.op.worker import _end_with_the_run
if os.fork() == 0:
    _end_with_the_run()
    print(os.getpid(), flush=True)
    time.sleep(60)
os.wait()
"""


def test_processes_end_with_their_run():
    run_of = subprocess.Popen([sys.executable, "-c", ENDS], stdout=subprocess.PIPE, text=True)
    assert run_of.stdout is not None
    worker = int(run_of.stdout.readline())
    run_of.kill()
    run_of.communicate()
    until = time.monotonic() + 5
    while Path(f"/proc/{worker}").exists() and time.monotonic() < until:
        if "Z" in Path(f"/proc/{worker}/stat").read_text().split(")")[1][:3]:
            break
        time.sleep(0.02)
    assert time.monotonic() < until


# --- as a process --------------------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
from collectors.op.cli import SIGNAL_BASE
from collectors.op.run import RunOptions, run
from collectors.plan_file import PlanFile
from tests.collectors.fakes import COMMAND

def tell(progress):
    print(progress.last.asked, flush=True)

done = run(PlanFile.read(Path(sys.argv[1])), Path(sys.argv[2]), RunOptions(device="cpu"), tell,
           command=COMMAND)
sys.exit(SIGNAL_BASE + done.stopped if done.stopped else 0)
"""


def started(tmp_path: Path, plan) -> subprocess.Popen[str]:
    plan.write(tmp_path / "plan.json")
    files = [str(tmp_path / name) for name in ("plan.json", "results.jsonl")]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *files],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_cleanly(tmp_path: Path, results: Path, number: signal.Signals):
    plan = plan_of(*(f"small_kernel act=slow rows={n}" for n in range(1, 100)))
    process = started(tmp_path, plan)
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(2)]
    process.send_signal(number)
    began = time.monotonic()
    rest = process.communicate(timeout=10)[0].split("\n")
    assert time.monotonic() - began < 5
    assert process.returncode == 128 + number
    finished = list(statuses(results))
    assert finished == [line for line in [*told, *rest] if line]


def test_kill_at_random_moments_loses_no_finished_case(tmp_path: Path, results: Path):
    plan = plan_of(*(f"small_kernel rows={n}" for n in range(1, 2000)))
    draw = random.Random(41)
    told: set[str] = set()
    for _ in range(50):
        process = started(tmp_path, plan)
        time.sleep(draw.uniform(0.08, 0.32))
        process.kill()
        told |= set(process.communicate()[0].split("\n")[:-1])
        if results.exists():
            _, records = read_journal(results)
            assert told <= {record["asked"] for record in records}
    assert len(told) > 50
    _, records = read_journal(results)
    asked = [record["asked"] for record in records]
    assert len(asked) == len(set(asked))
    os.environ.pop("FAKE_START", None)
