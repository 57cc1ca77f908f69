"""Plain CSV of steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import Request
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.io import Imported, read_csv_steps
from aisim_v41.io.csv_steps import COLUMNS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "io.md"


@pytest.fixture
def read(tmp_path: Path):
    def made(content: str | bytes, **options: str) -> Imported:
        file = tmp_path / "steps.csv"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_csv_steps(file, **options)

    return made


def test_a_row_is_a_step(read):
    imported = read(
        "new_tokens,prefix_tokens,kind,count,latency_ms,run,order,point,regime,samples,note\n"
        "1,2048,decode,8,11.25,monday,3,d8,cold,20,first\n"
    )
    [record] = imported.records
    assert record.step == (Request(new_tokens=1, prefix_tokens=2048, kind="decode", count=8),)
    assert (record.latency_ms, record.run, record.order) == (11.25, "monday", 3)
    assert (record.point, record.regime, record.samples) == ("d8", "cold", 20)
    assert (record.note, record.source) == ("first", "steps.csv:2")
    assert imported.build_hints == {}


def test_lists_are_requests_and_single_entries_hold_for_all(read):
    [record] = read(
        "kind,new_tokens,prefix_tokens,count,prompt_tokens,latency_ms\n"
        'prefill;decode,"64; 1",1024,1;4,4096,5\n'
    ).records
    assert record.step == (
        Request(new_tokens=64, prefix_tokens=1024, prompt_tokens=4096),
        Request(new_tokens=1, prefix_tokens=1024, kind="decode", count=4, prompt_tokens=4096),
    )


def test_rows_of_images(read):
    imported = read("new_tokens,image_tokens,latency_ms\n64;32,40;0,5\n64,65,5\n")
    assert imported.records[0].step == (
        Request(new_tokens=64, image_tokens=40), Request(new_tokens=32),
    )  # fmt: skip
    assert imported.skipped[0].reason.startswith("Request.image_tokens = 65")


def test_columns_that_are_not_there(read):
    [record] = read("new_tokens,latency_ms\n64,5\n").records
    assert record.step == (Request(new_tokens=64),)
    assert (record.run, record.order, record.status) == ("steps", None, "ok")
    [record] = read("new_tokens,latency_ms\n64,5\n", run="a", regime="b").records
    assert (record.run, record.regime) == ("a", "b")


@pytest.mark.parametrize(("unit", "value"), [("ms", "25"), ("s", "0.025"), ("us", "25000")])
def test_the_unit_is_in_the_name(read, unit: str, value: str):
    [record] = read(f"new_tokens,latency_{unit}\n64,{value}\n").records
    assert record.latency_ms == pytest.approx(25.0, rel=1e-15)
    [record] = read(f"new_tokens,samples_{unit}\n64,{value}\n").records
    assert record.samples_ms == pytest.approx((25.0,), rel=1e-15)


def test_single_times_give_their_median(read):
    [record] = read("new_tokens,samples_ms\n64,7;5;9\n").records
    assert (record.latency_ms, record.samples_ms, record.samples) == (7.0, (7.0, 5.0, 9.0), 3)
    [record] = read("new_tokens,samples_ms,latency_ms\n64,7;5;9,6\n").records
    assert record.latency_ms == 6.0


def test_a_step_without_a_time_says_why(read):
    imported = read(
        "new_tokens,status,latency_ms\n64,out_of_memory,\n64,,\n64,lost,\n64,missing,5\n"
    )
    [record] = imported.records
    assert (record.status, record.latency_ms) == ("out_of_memory", None)
    assert [entry.reason.partition(":")[0] for entry in imported.skipped] == [
        "no time, and no status that says why",
        "StepRecord.status = 'lost'",
        "StepRecord.latency_ms = 5.0, samples_ms = () with status 'missing'",
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("64,0,1,5,6", "5 cells under 4 columns"),
        ("64", "1 cells under 4 columns"),
        (",0,1,5", "new_tokens is empty"),
        ("64,,,5", "prefix_tokens, count is empty"),
        ("64,0,0,5", "a time of a step that computes nothing"),
        ("0,64,1,5", "a time of a step that computes nothing"),
        ("64.5,0,1,5", "new_tokens = '64.5': must be a whole number"),
        ("-64,0,1,5", "new_tokens = '-64'"),
        ("٣,0,1,5", "new_tokens = '٣'"),
        ("64;1;1,0;0,1,5", "prefix_tokens has 2 entries, another column has 3"),
        ("64;,0,1,5", "new_tokens = '': must be a whole number"),
        ("64,0,1,nan", "latency_ms = 'nan': must be a finite number"),
        ("64,0,1,1e999", "latency_ms = '1e999'"),
        ("64,0,1,1_0", "latency_ms = '1_0'"),
        ("64,0,1,fast", "latency_ms = 'fast'"),
        ("64,0,1,-5", "StepRecord.latency_ms = -5.0"),
        ("64,0,1,0", "StepRecord.latency_ms = 0.0"),
        ("64,9999999999999,1,5", "Request.prefix_tokens = 9999999999999"),
        ("64,99999999999999999999,1,5", "prefix_tokens = '99999999999999999999'"),
    ],
)
def test_rows_that_are_no_step_are_skipped_with_the_reason(read, row: str, reason: str):
    imported = read(f"new_tokens,prefix_tokens,count,latency_ms\n{row}\n\n64,0,1,5\n")
    assert len(imported.records) == 1
    [entry] = imported.skipped
    assert entry.place == "steps.csv:2"
    assert entry.reason.startswith(reason)


@pytest.mark.parametrize("column", ["prefix_tokens", "kind", "count", "run"])
def test_an_empty_cell_is_not_a_default(read, column: str):
    [entry] = read(f"new_tokens,{column},latency_ms\n1,,5\n").skipped
    assert entry.reason == f"{column} is empty"


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_only_ends_of_lines_end_a_row(read, mark: str):
    imported = read(f"new_tokens,latency_ms,note\r\n64,5,a{mark}b\r65,6,c\n")
    assert [record.note for record in imported.records] == [f"a{mark}b", "c"]
    assert imported.skipped == ()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("new_token,latency_ms\n", "no column 'new_token'; nearest: new_tokens"),
        ("new_tokens,latency\n", "no column 'latency'; nearest: latency_"),
        ("new_tokens,past_tokens,latency_ms\n", "no column 'past_tokens'; nearest: "),
        ("new_tokens,new_tokens,latency_ms\n", "one column each, found new_tokens"),
        ("new_tokens,latency_ms,latency_ms\n", "one column each, found latency_ms"),
        ("new_tokens,latency_ms,latency_s\n", "one column each, found latency_ms, latency_s"),
        ("new_tokens,samples_ms,samples_s\n", "one column each, found samples_ms, samples_s"),
        ("new_tokens,samples\n", "needs new_tokens, and a time such as latency_ms"),
        ("latency_ms\n", "needs new_tokens"),
        ("", "needs new_tokens, and a time such as latency_ms; found nothing"),
        ('new_tokens,latency_ms\n64,"5\n', "not CSV (unexpected end of data)"),
        ('new_tokens,latency_ms\n64,"5"5\n', "not CSV"),
        ("new_tokens,latency_ms\n64," + "5" * 200_000, "not CSV (field larger than field limit"),
        (b"new_tokens\xff", "not UTF-8 text"),
    ],
)
def test_files_that_are_no_table_of_steps(read, content, told):
    with pytest.raises(SchemaError, match=r"steps\.csv") as caught:
        read(content)
    assert told in str(caught.value)


def test_no_file(tmp_path: Path):
    with pytest.raises(MissingProfileError):
        read_csv_steps(tmp_path / "none.csv")


def test_the_page_lists_the_columns():
    text = DOCUMENT.read_text(encoding="utf-8").partition("## csv\n")[2]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert [name.strip(" `") for row in rows for name in row.split(",")] == list(COLUMNS)


@given(
    st.lists(
        st.tuples(st.integers(1, 9999), st.integers(0, 9999), st.integers(1, 99)),
        min_size=1, max_size=8,
    ),
    st.floats(1e-3, 1e6),
)  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory, groups, latency_ms: float):
    requests = tuple(Request(new_tokens=n, prefix_tokens=p, count=c) for n, p, c in groups)
    cells = [";".join(str(group[place]) for group in groups) for place in range(3)]
    file = tmp_path_factory.mktemp("csv") / "steps.csv"
    file.write_text(
        f"new_tokens,prefix_tokens,count,latency_ms\n{','.join(cells)},{latency_ms!r}\n"
    )
    [record] = read_csv_steps(file).records
    assert (record.step, record.latency_ms) == (requests, latency_ms)
