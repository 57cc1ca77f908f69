"""The packaged forwards: all there, and the numbers of the open data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from aisim_v41 import Parallel, Plan, Request, load_hardware
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.forwards.identity import differing_from_plan
from aisim_v41.forwards.store import _read, find_tables
from aisim_v41.resources import data_root
from scripts.forward_tables.__main__ import main
from scripts.forward_tables.build import tables
from tests.forwards.worlds import eager, model

ROOT = Path(__file__).resolve().parents[2]
OPEN_DATA = ROOT.parent / "shared" / "data" / "measured"
PACKAGED = sorted((data_root() / "profiles").glob("*/fpm/*"))


@pytest.fixture(autouse=True)
def _only_packaged(monkeypatch):
    monkeypatch.delenv("AISIM_V41_PATH", raising=False)


def gb300(replay: bool):
    (found,) = (
        table
        for table in find_tables("gb300")
        if table.identity.execution["decoder_replay"] is replay
    )
    return found


def of(table, **wanted):
    return [
        record
        for record in table.measured
        if all(getattr(record, name) == value for name, value in wanted.items())
    ]


def test_what_there_is():
    assert [path.parent.parent.name for path in PACKAGED] == ["gb200", "gb300", "gb300"]
    for path in PACKAGED:
        assert _read(path).path == path
        assert {item.name for item in path.iterdir()} == {
            "table.json", json.loads((path / "table.json").read_text())["file"],
        }  # fmt: skip


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.name[:24])
def test_notices_and_sources(path):
    table = _read(path)
    assert table.licence == "Apache-2.0"
    assert "NVIDIA CORPORATION & AFFILIATES" in table.notice
    files = {(source["file"], source["commit"][:8]) for source in table.sources}
    assert {tuple(record.source.split("@")) for record in table.records} == files
    assert all(len(source["commit"]) == 40 for source in table.sources)
    assert len(table.remarks) >= 5


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.name[:24])
def test_plans_are_made_again_for_the_packaged_model(path):
    table = _read(path)
    parallel, policy = table.plan_setting()
    assert parallel == Parallel(tp=4)
    hardware = load_hardware(table.gpu)
    assert differing_from_plan(table.identity, model(), hardware, parallel, policy) == ()
    for record in table.records:
        Plan(model(), record.requests, parallel, policy)


@pytest.mark.parametrize("replay", [False, True])
def test_what_a_user_would_ask_for_is_what_was_measured(replay):
    ask = (model(), load_hardware("gb300"), Parallel(tp=4), eager(decoder_replay=replay))
    assert differing_from_plan(gb300(replay).identity, *ask) == ()


# --- gb300 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [False, True])
def test_two_runs_of_one_grid(replay):
    table = gb300(replay)
    assert table.identity.build.timer == "sync_wall"
    runs = {run: of(table, run=run) for run in ("study38_run1", "study38_run2")}
    assert len(table.records) == 76
    for run, repeats in (("study38_run1", 3), ("study38_run2", 10)):
        assert [record.order for record in runs[run]] == list(range(38))
        assert {record.samples for record in runs[run]} == {repeats}
        assert Counter(record.step[0].kind for record in runs[run]) == {"prefill": 28, "decode": 10}
    assert [record.step for record in runs["study38_run1"]] == [
        record.step for record in runs["study38_run2"]
    ]
    for record in table.records:
        assert record.latency_ms == median(record.samples_ms)


@pytest.mark.parametrize(("replay", "percent"), [(False, 5.3), (True, 3.1)])
def test_the_noise_between_the_runs(replay, percent):
    first, second = (of(gb300(replay), run=f"study38_run{n}") for n in (1, 2))
    pairs = zip(first, second, strict=True)
    apart = [abs(two.latency_ms / one.latency_ms - 1) for one, two in pairs]
    assert round(100 * median(apart), 1) == percent


def test_ranges_that_the_remarks_name():
    times = sorted(
        record.latency_ms for replay in (False, True) for record in gb300(replay).measured
    )
    assert (round(times[0]), round(times[-2]), round(times[-1])) == (154, 210, 380)
    bad = max(gb300(True).measured, key=lambda record: record.latency_ms)
    (again,) = of(gb300(True), run="study38_run2", step=bad.step)
    assert round(bad.latency_ms / again.latency_ms, 1) == 2.0
    beyond = max(
        sample / record.latency_ms
        for replay in (False, True)
        for record in gb300(replay).measured
        for sample in record.samples_ms
    )
    assert round(beyond, 2) == 1.45


def test_one_point_by_hand():
    """48 new tokens, second run, replay off: the first line of the source's file."""
    first = of(gb300(False), run="study38_run2", order=0)[0]
    assert first.step == (Request(new_tokens=48),)
    assert first.latency_ms == 192.46000348357484
    assert min(first.samples_ms) == 191.37622800190002
    assert max(first.samples_ms) == first.samples_ms[0] == 199.63081099558622


def test_a_decoded_token_is_not_in_its_own_past():
    last = of(gb300(False), run="study38_run1", point="decode-0009")[0]
    assert last.step == (Request(new_tokens=1, prefix_tokens=1792, kind="decode", count=2),)


# --- gb200 ----------------------------------------------------------------------------------------


def test_two_regimes_in_one_identity():
    (table,) = find_tables("gb200")
    assert table.identity.build.timer == "scheduler_wall"
    old, new = (of(table, regime=name) for name in ("historical_2026_09_10", "dl_diagnostic"))
    assert (len(old), len(new)) == (126, 10)
    assert table.statuses() == {"ok": 136, "missing": 2}
    assert {record.samples for record in old} == {1}
    assert {record.samples for record in new} == {5}
    assert {record.run for record in new} == {"native", "ordinary"}
    at = {record.step: record.latency_ms for record in old}
    ratios = [at[record.step] / record.latency_ms for record in new]
    assert (round(min(ratios), 1), round(max(ratios), 1)) == (5.1, 5.6)
    assert [round(f(r.latency_ms for r in old)) for f in (min, max)] == [696, 890]
    assert [round(f(s for r in new for s in r.samples_ms)) for f in (min, max)] == [140, 153]


def test_warm_ups_are_left_out_and_gaps_are_kept():
    (table,) = find_tables("gb200")
    missing = [record for record in table.records if record.status == "missing"]
    assert [(record.run, record.point) for record in missing] == [
        ("ordinary", "prefill-2"), ("ordinary", "decode-2"),
    ]  # fmt: skip
    assert {record.note for record in missing} == {
        "no unique ordinary dispatch with the planned exact geometry"
    }
    assert max(sample for record in table.measured for sample in record.samples_ms) < 1000
    assert "Left out: one warm-up a geometry" in " ".join(table.remarks)


# --- the script -----------------------------------------------------------------------------------


@pytest.mark.skipif(not OPEN_DATA.is_dir(), reason="the open data is not beside this checkout")
def test_the_packaged_tables_are_what_the_script_makes(tmp_path, capsys):
    assert main(["--data", str(OPEN_DATA), "--out", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PACKAGED)
    for path in PACKAGED:
        built = tmp_path / path.relative_to(data_root())
        assert _read(built) == _read(path)


STEP = (
    "phase,batch_size,new_tokens_per_request,past_tokens_per_request,tp_size,decoder_replay,"
    "execution_mode,latency_ms,source_file,source_commit"
)
"""Columns that every file has."""


@pytest.fixture
def data(tmp_path):
    """Small files of the same form."""
    (tmp_path / "gb300_forward_points.csv").write_text(
        f"{STEP},campaign,run_order,point_id,samples_per_point,timer\n"
        "prefill,2,48,0,4,off,eager,3.0,a.json,0123456789,study38_run1,1,p1,1,sync_wall\n"
        "decode,1,1,96,4,off,eager,2.0,a.json,0123456789,study38_run1,0,p0,3,sync_wall\n"
        "decode,1,1,96,4,on,eager,2.0,a.json,0123456789,study38_run2,0,p0,1,sync_wall\n"
        "decode,1,1,96,4,off,eager,2.0,a.json,0123456789,another,0,p0,1,sync_wall\n"
    )
    (tmp_path / "gb300_forward_repeats.csv").write_text(
        "campaign,point_id,decoder_replay,repeat_index,latency_ms\n"
        "study38_run1,p1,off,0,3.0\nstudy38_run2,p0,on,0,2.0\n"
        "study38_run1,p0,off,2,2.0\nstudy38_run1,p0,off,0,1.0\nstudy38_run1,p0,off,1,4.0\n"
    )
    (tmp_path / "gb200_forward_points.csv").write_text(
        f"{STEP},point_id,split,measurement_regime,samples_per_point\n"
        "decode,1,1,96,4,off,eager,700,b.json,abcdefabcd,c0,calibration,historical_2026_09_10,1\n"
        "decode,1,1,97,4,off,eager,700,b.json,abcdefabcd,h0,holdout,historical_2026_09_10,1\n"
    )
    (tmp_path / "gb200_forward_diagnostic.csv").write_text(
        f"{STEP},path,geometry_id,repeat_index,role,status,failure,measurement_regime\n"
        "decode,1,1,96,4,off,eager,900,c.csv,123412341,native,d1,,warmup,measured,,dl\n"
        "decode,1,1,96,4,off,eager,140,c.csv,123412341,native,d1,1.0,measurement,measured,,dl\n"
        "decode,1,1,96,4,off,eager,141,c.csv,123412341,native,d1,0.0,measurement,measured,,dl\n"
        "decode,1,1,96,4,off,eager,142,c.csv,123412341,native,d1,2.0,measurement,measured,,dl\n"
        "decode,2,1,96,4,off,eager,,c.csv,123412341,ordinary,d2,0.0,measurement,"
        "observation_unavailable,none seen,dl\n"
    )
    return tmp_path


def test_the_small_files(data):
    off, on, old = tables(data)
    assert [(r.run, r.order, r.samples_ms) for r in off.records] == [
        ("study38_run1", 0, (1.0, 4.0, 2.0)), ("study38_run1", 1, (3.0,)),
    ]  # fmt: skip
    assert off.records[0].source == "a.json@01234567"
    assert [record.run for record in on.records] == ["study38_run2"]
    historical, repeats, gap = old.records
    assert (historical.point, historical.samples_ms) == ("c0", (700.0,))
    assert (repeats.samples_ms, repeats.latency_ms) == ((141.0, 140.0, 142.0), 141.0)
    assert (gap.status, gap.note, gap.run) == ("missing", "none seen", "ordinary")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("gb300_forward_points.csv", "timer", "clock", "no column timer"),
        ("gb300_forward_points.csv", "sync_wall", "http", "timer is 'http', the identity says"),
        ("gb300_forward_points.csv", ",p1,1,", ",p1,2,", "samples_ms has 1"),
        ("gb200_forward_points.csv", ",4,off,", ",8,off,", "tp_size is '8'"),
        ("gb200_forward_diagnostic.csv", "native,d1,2.0,measurement,measured",
         "native,d1,2.0,measurement,lost", "some repeats are missing and some are not"),
    ],
)  # fmt: skip
def test_files_that_say_something_else(data, capsys, name, old, new, message):
    path = data / name
    path.write_text(path.read_text().replace(old, new))
    assert main(["--data", str(data), "--out", str(data / "out")]) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MissingProfileError, match=r"no gb300_forward_points\.csv"):
        next(tables(tmp_path))
    (tmp_path / "gb300_forward_points.csv").write_text("")
    with pytest.raises(SchemaError, match="no column phase"):
        next(tables(tmp_path))


def test_no_lock_is_left(data):
    assert main(["--data", str(data), "--out", str(data / "out")]) == 0
    assert len(list((data / "out").rglob("table.json"))) == 3
    assert not list((data / "out").rglob(".lock"))
