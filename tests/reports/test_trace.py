"""Traces by schema and by what must hold of them: nothing at once, nothing missing, sums equal."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import aisim_v41 as aisim
from aisim_v41.estimators.breakdown import Breakdown
from aisim_v41.estimators.fpm.forward import WholeForward
from aisim_v41.estimators.result import Estimate
from aisim_v41.io.traces.chrome import read_chrome
from aisim_v41.ops.operator import Family
from aisim_v41.reports.trace import COLOURS, MAX_STEPS, WAITING, trace, write_trace
from tests.reports.trace_cases import CASES, priced

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[1] / "data" / "trace_event_schema.json").read_text("utf-8"))
)
NS = 1.001e-3
"""Rounding of one moment to whole nanoseconds, in microseconds."""


def check_form(document: dict[str, Any]) -> None:
    """Against the schema: of events that differ in numbers alone, one."""
    kinds = {}
    for event in document["traceEvents"]:
        what = ("ph", "name", "cat", "cname", "pid", "tid", "bp")
        kinds[(*map(event.get, what), *event)] = event
    SCHEMA.validate(document | {"traceEvents": list(kinds.values())})


@cache
def traced(setting: str, step: str, method: str) -> dict[str, Any]:
    """The trace of an estimate."""
    answer = priced(setting, step, method)
    assert answer is not None
    return trace(answer)


def complete(document: dict[str, Any], *categories: str) -> list[dict[str, Any]]:
    """Events with a length, of some categories."""
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    return [event for event in events if not categories or event["cat"] in categories]


def end(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_trace_is_what_it_must_be(case: tuple[str, str, str]):
    answer = priced(*case)
    assert answer is not None
    document = traced(*case)
    check_form(document)
    events = complete(document)
    decides = 1 + (answer.rank or 0)
    # it begins at 0 and ends with the step
    assert min(event["ts"] for event in events) == 0
    assert max(map(end, events)) == pytest.approx(1e3 * answer.latency_ms, abs=NS)
    # no two events at once on one thread
    threads = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    for members in threads.values():
        members.sort(key=lambda event: (event["ts"], event["dur"]))
        for one, following in pairwise(members):
            assert end(one) <= following["ts"] + 1e-6, (one, following)
    # every thread and process has a name
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert {(e["pid"], e["tid"]) for e in named if e["name"] == "thread_name"} == set(threads)
    assert {e["pid"] for e in named if e["name"] == "process_name"} == {pid for pid, _ in threads}
    # the critical path has no gap, and its operators are those of the estimate
    inside = complete(document, "kernel", "wait", "repeat")
    path = sorted(
        (e for e in inside if e["pid"] == decides and e["args"]["critical"]),
        key=lambda event: (event["ts"], end(event)),
    )
    clock = 0.0
    for event in path:
        assert event["ts"] == pytest.approx(clock, abs=NS)
        clock = end(event)
    assert clock == pytest.approx(1e3 * answer.latency_ms, abs=NS)
    if all(forward.times == 1 for forward in answer.breakdown.forwards):
        spent: dict[str, float] = defaultdict(float)
        for event in path:
            spent[event["name"]] += event["dur"]
        for name, seconds in answer.path.items():
            calls = sum(event["name"] == name for event in path)
            assert spent[name] == pytest.approx(1e6 * seconds, abs=NS * (calls + 1)), name


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_kernel_is_there_with_its_work(case: tuple[str, str, str]):
    answer = priced(*case)
    assert answer is not None
    document = traced(*case)
    kernels = [
        event for event in complete(document, "kernel") if event["pid"] == 1 + (answer.rank or 0)
    ]
    by_name = defaultdict(lambda: defaultdict(float))
    for event in kernels:
        said = by_name[event["name"]]
        said["calls"] += 1
        said["us"] += event["dur"]
        said["flop"] += event["args"]["flop"]
        said["message"] += event["args"]["message_bytes"]
        said["bytes"] += sum(
            value for name, value in event["args"].items()
            if name.endswith("_bytes") and name != "message_bytes"
        )  # fmt: skip
        assert event["dur"] >= event["args"]["floor_us"] * (1 - 1e-9) - NS
        assert event["args"]["source"]
        assert event["args"]["bound"] in answer.resource_s
        assert event["args"]["replaces"]
    if any(forward.times > 1 for forward in answer.breakdown.forwards):
        return  # shown once
    rows = answer.to_frame().groupby("operator")[["calls", "flop", "bytes", "message_bytes",
                                                  "time_ms"]].sum()  # fmt: skip
    rows = rows[rows["time_ms"] > 0]
    assert set(by_name) == set(rows.index)
    for name, row in rows.iterrows():
        said = by_name[name]
        assert said["us"] == pytest.approx(1e3 * row["time_ms"], abs=NS * (said["calls"] + 1))
        assert said["flop"] == pytest.approx(row["flop"], rel=1e-9)
        assert said["bytes"] == pytest.approx(row["bytes"], rel=1e-9)
        assert said["message"] == pytest.approx(row["message_bytes"], rel=1e-9)


def test_ranks_that_run_other_rows_are_processes():
    answer = priced("data parallel", "prefill", "op")
    assert answer is not None
    document = trace(answer)
    last = {e["pid"]: 0.0 for e in complete(document)}
    assert set(last) == {1, 2}
    waits = [e for e in complete(document, "wait") if e["name"].startswith("waiting for rank")]
    assert {e["pid"] for e in waits} <= {2 - (answer.rank or 0)}
    for event in complete(document, "kernel", "wait"):
        last[event["pid"]] = max(last[event["pid"]], end(event))
    assert list(last.values()) == pytest.approx([1e3 * answer.latency_ms] * 2, abs=NS)


def test_links_hosts_and_transfers_have_threads():
    names: dict[str, set[str]] = {}
    for setting, step in (("sglang", "decode"), ("eager", "decode"), ("host tables", "decode")):
        answer = priced(setting, step, "op")
        assert answer is not None
        document = trace(answer)
        names[setting] = {
            event["args"]["name"].split(" ")[0]
            for event in document["traceEvents"]
            if event["name"] == "thread_name"
        }
        host = complete(document, "host")
        assert sum(event["dur"] for event in host) == pytest.approx(1e6 * answer.host_s, abs=NS)
    assert names["sglang"] >= {"steps", "stream", "links"}
    assert "host" in names["eager"]
    assert "transfers" in names["host tables"]


def test_arrows_follow_the_critical_path():
    answer = priced("sglang", "decode", "op")
    assert answer is not None
    document = trace(answer)
    begins = {(e["pid"], e["tid"], e["ts"]) for e in complete(document) if
              e["args"].get("critical")}  # fmt: skip
    starts = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "f"}
    assert len(starts) > 10
    assert set(starts) == set(ends)
    for number, one in starts.items():
        other = ends[number]
        assert one["tid"] != other["tid"]
        assert one["ts"] < other["ts"]
        for arrow in (one, other):
            assert (arrow["pid"], arrow["tid"], arrow["ts"]) in begins


def chunks() -> list[Any]:
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    return [
        aisim.estimate(aisim.Plan(model, [request], parallel=aisim.Parallel(tp=4)), gpu)
        for request in aisim.chunked(6000, chunk_tokens=2048)
    ]


def test_several_steps_stand_one_after_another():
    steps = chunks()
    document = trace(steps)
    check_form(document)
    shown = complete(document, "step")
    clock = 0.0
    for event, step in zip(shown, steps, strict=True):
        assert event["ts"] == pytest.approx(clock, abs=NS)
        assert event["dur"] == pytest.approx(1e3 * step.latency_ms, abs=2 * NS)
        clock += 1e3 * step.latency_ms
    said = document["otherData"]
    assert said["latency_ms"] == pytest.approx(clock / 1e3)
    assert said["band_ms"][0] < said["latency_ms"] < said["band_ms"][1]
    assert said["steps"] == 3


def whole(answer: Estimate, share: float) -> Estimate:
    """The same step as if its forwards had been measured to take a share of their kernels' time."""
    forwards = tuple(
        WholeForward(one, share * one.device_s, "measured")  # type: ignore[attr-defined,arg-type]
        for one in answer.breakdown.forwards
    )
    total = sum(one.times * one.total_s for one in forwards)
    return replace(
        answer, method="fpm", breakdown=Breakdown(forwards),
        latency_s=max(total, answer.bounds.graph_s),
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.4, 0.9, 1.7])
@pytest.mark.parametrize(
    ("setting", "step"),
    [("eager", "decode"), ("drafts", "verify"), ("host tables", "mixed"), ("vllm", "hits")],
)
def test_measured_wholes_end_when_they_were_measured_to(setting: str, step: str, share: float):
    answer = priced(setting, step, "op")
    assert answer is not None
    measured = whole(answer, share)
    spent = sum(one.times * one.total_s for one in measured.breakdown.forwards)
    assert sum(measured.path.values()) == pytest.approx(spent, rel=1e-9)
    document = trace(measured)
    check_form(document)
    assert max(map(end, complete(document))) == pytest.approx(1e3 * measured.latency_ms, abs=NS)
    clock = 0.0
    for event in sorted(
        (e for e in complete(document) if e["args"].get("critical")), key=lambda e: e["ts"]
    ):
        assert event["ts"] == pytest.approx(clock, abs=NS)
        clock = end(event)
    assert clock == pytest.approx(1e3 * measured.latency_ms, abs=NS)
    assert all("error_p90" not in event["args"] for event in complete(document))


def test_a_kernel_says_how_far_it_may_be_off():
    answer = priced("sglang", "decode", "op")
    assert answer is not None
    kernels = complete(trace(answer), "kernel")
    assert all(0 < event["args"]["error_p90"] < 1 for event in kernels)
    bound = priced("sglang", "decode", "sol")
    assert bound is not None
    assert not any("error_p90" in event["args"] for event in complete(trace(bound), "kernel"))


def test_families_have_colours_of_their_own():
    assert set(COLOURS) == set(Family)
    assert len({*COLOURS.values(), WAITING}) == len(Family) + 1
    answer = priced("sglang", "decode", "op")
    assert answer is not None
    for event in complete(trace(answer), "kernel"):
        assert event["cname"] == COLOURS[event["args"]["family"]]


def test_traces_are_not_larger_than_viewers_take(monkeypatch: pytest.MonkeyPatch):
    answer = priced("sglang", "decode", "op")
    assert answer is not None
    monkeypatch.setattr("aisim_v41.reports.trace.MAX_EVENTS", 2000)
    assert trace(answer)
    with pytest.raises(aisim.InvalidInputError, match="2 of 3 steps"):
        trace([answer] * 3)


@pytest.mark.parametrize("case", [("drafts", "mixed", "op"), ("data parallel", "mixed", "sol")])
def test_every_event_has_its_form(case: tuple[str, str, str]):
    SCHEMA.validate(traced(*case))


def test_bounds_have_no_upper_end():
    answer = priced("sglang", "decode", "sol")
    assert answer is not None
    assert trace(answer)["otherData"]["band_ms"][1] is None


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_file_is_read_by_the_importer(tmp_path: Path, name: str):
    answer = priced("sglang", "decode", "op")
    assert answer is not None
    document = trace(answer)
    write_trace(document, tmp_path / name)
    raw = (tmp_path / name).read_bytes()
    assert json.loads(gzip.decompress(raw) if name.endswith("gz") else raw) == document
    kernels = read_chrome(tmp_path / name).kernels
    assert sorted((k.name, k.start_us, k.duration_us) for k in kernels) == sorted(
        (e["name"], e["ts"], e["dur"]) for e in complete(document, "kernel")
    )


def test_what_is_no_trace(tmp_path: Path):
    answer = priced("sglang", "decode", "op")
    other = priced("vllm", "decode", "op")
    bound = priced("sglang", "decode", "sol")
    assert answer is not None
    for given, words in (
        ([], "0 estimates"),
        ([answer] * (MAX_STEPS + 1), "estimates"),
        ([answer, 3], "no estimate"),
        ([answer, other], "different hardware"),
        ([answer, bound], "different method"),
        ([answer, priced("experts", "decode", "op")], "mappings"),
    ):
        with pytest.raises(aisim.InvalidInputError, match=words):
            trace(given)  # type: ignore[arg-type]
    document = trace(answer)
    with pytest.raises(aisim.InvalidInputError, match="must end in"):
        write_trace(document, tmp_path / "trace.txt")
    with pytest.raises(aisim.InvalidInputError, match="cannot be written"):
        write_trace(document, tmp_path / "nowhere" / "t.json")
