"""Traces of profilers: both forms, steps, names to operators, and files that are none."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.io.traces.chrome import read_chrome
from aisim_v41.io.traces.names import UNKNOWN, by_operator, name_rules, operator_of
from aisim_v41.io.traces.nsight import read_nsight
from aisim_v41.plan.operators import OPERATORS

NAMES = ["nvjet_tst_64x8", "deep_gemm::sm100_fp8_gemm_1d1d_impl", "mhc_pre_big_fuse_kernel",
         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "my_own_kernel"]  # fmt: skip


def kernel(name: str, ts: float, dur: float, launch: int = 1, device: int = 0) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur,
            "args": {"device": device, "stream": 7, "correlation": launch}}  # fmt: skip


def step(start: float, launch: int, scale: float = 1.0) -> list[dict[str, Any]]:
    return [kernel(NAMES[n % 5], start + n, scale * (1.0 + n % 5), launch) for n in range(20)]


def chrome(folder: Path, events: list[dict[str, Any]], packed: bool = False) -> Path:
    path = folder / ("t.json.gz" if packed else "t.json")
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"})
    if packed:
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


STEPS = [*step(0, 1), *step(100, 2, 2.0), *step(200, 3, 3.0)]


@pytest.mark.parametrize("packed", [False, True])
def test_a_chrome_trace(tmp_path: Path, packed: bool):
    noise = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5},
             {"ph": "M", "name": "process_name"},
             {"ph": "X", "cat": "kernel", "ts": "x"}]  # fmt: skip
    trace = read_chrome(chrome(tmp_path, [*noise, *STEPS], packed))
    assert len(trace.kernels) == 60
    first = trace.kernels[0]
    assert (first.name, first.start_us, first.duration_us) == (NAMES[0], 0.0, 1.0)
    assert (first.device, first.stream, first.launch) == (0, 7, 1)


def test_replays_of_a_graph_are_steps(tmp_path: Path):
    trace = read_chrome(chrome(tmp_path, [*STEPS, kernel("copy", 300, 1, launch=9)]))
    assert [len(one) for one in trace.steps()] == [20, 20, 20]
    rows, steps = by_operator(trace)
    assert steps == 3
    times = {row.operator: row for row in rows}
    # five kernels of 1 to 5 us, four times a step, in the middle step twice as long
    assert times["product_fp8"].time_us == pytest.approx(4 * 2.0 * 2)
    assert times["all_reduce"].calls == 4
    assert times[UNKNOWN].kernels == ("my_own_kernel",)
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert [row.time_us for row in rows] == sorted((r.time_us for r in rows), reverse=True)


def test_annotations_are_steps(tmp_path: Path):
    marks = [{"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{n}", "ts": 100 * n,
              "dur": 50} for n in range(2)]  # fmt: skip
    trace = read_chrome(chrome(tmp_path, [*STEPS, *marks]))
    assert [len(one) for one in trace.steps(named="ProfilerStep")] == [20, 20]
    with pytest.raises(InvalidInputError, match="no range named 'Nothing'"):
        trace.steps(named="Nothing")
    with pytest.raises(InvalidInputError, match="no kernel on GPU 3"):
        trace.steps(device=3)


def test_without_graphs_all_is_one_step(tmp_path: Path):
    trace = read_chrome(chrome(tmp_path, [kernel("a", n, 1, launch=n) for n in range(30)]))
    assert [len(one) for one in trace.steps()] == [30]


def nsight(folder: Path, *, ranges: bool = True) -> Path:
    path = folder / "t.sqlite"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
                 "streamId INT, correlationId INT, demangledName INT)")  # fmt: skip
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
    rows = [(1000 * (place + 100 * turn), 1000 * (place + 100 * turn) + 500, 0, 7, turn, place % 5)
            for turn in range(3) for place in range(20)]  # fmt: skip
    base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
    if ranges:
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, "
                     "correlationId INT)")  # fmt: skip
        base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?)",
                         [(10 * turn + 1, 10 * turn + 2, turn) for turn in range(3)])  # fmt: skip
        base.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, textId INT)")
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)",
                         [(0, 5, "decode 1", None), (20, 25, "decode 2", None),
                          (3, None, "mark", None)])  # fmt: skip
    base.commit()
    base.close()
    return path


def test_an_export_of_nsight(tmp_path: Path):
    trace = read_nsight(nsight(tmp_path))
    assert len(trace.kernels) == 60
    assert trace.kernels[0].duration_us == 0.5
    assert [len(one) for one in trace.steps()] == [20, 20, 20]
    marked = trace.steps(named="decode 2")
    assert len(marked) == 1
    assert {one.launch for one in marked[0]} == {2}


def test_an_export_without_ranges(tmp_path: Path):
    assert read_nsight(nsight(tmp_path, ranges=False)).ranges == ()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE x (a INT)"], "no table CUPTI_ACTIVITY_KIND_KERNEL"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)"], "without end"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT)"],
         "without StringIds"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT)",
          "CREATE TABLE StringIds (id INT, value TEXT)"], "holds no kernel"),
    ],
)  # fmt: skip
def test_other_bases_are_refused(tmp_path: Path, statements: list[str], said: str):
    path = tmp_path / "t.sqlite"
    base = sqlite3.connect(path)
    for statement in statements:
        base.execute(statement)
    base.commit()
    base.close()
    with pytest.raises(SchemaError, match=said):
        read_nsight(path)


@pytest.mark.parametrize("read", [read_chrome, read_nsight])
def test_what_is_not_there(tmp_path: Path, read):
    with pytest.raises(MissingProfileError, match="no such file"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": [', '{"traceEvents": [{"ph": "X"',
                                  '{"traceEvents": []}', '{"traceEvents": 3}'])  # fmt: skip
def test_other_texts_are_refused(tmp_path: Path, text: str):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(SchemaError):
        read_chrome(tmp_path / "t.json")


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_damage_gives_typed_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    folder = tmp_path_factory.mktemp("damage")
    path = data.draw(st.sampled_from([
        lambda: chrome(folder, STEPS), lambda: chrome(folder, STEPS, packed=True),
        lambda: nsight(folder),
    ]))()  # fmt: skip
    raw = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=6)):
        raw[place] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    read = read_nsight if path.suffix == ".sqlite" else read_chrome
    try:
        assert read(path).kernels
    except AisimError:
        return


# --- names ---------------------------------------------------------------------------------------

BEYOND = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "product_fp8",
          "product_bf16", "sampling", "small_kernel", "mhc_fused", "engram_hash"}  # fmt: skip
"""Names beside those of the graph: libraries' messages and products, and what no layer holds."""


def test_rules_name_operators_that_there_are():
    for rule in name_rules():
        assert {rule.operator, *rule.also} <= OPERATORS | BEYOND, rule.operator


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("void deep_gemm::sm100_fp8_paged_mqa_logits<64, 128>()", "index_score"),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl", "product_fp8"),
        ("bmm_MxE4m3_E2m1Fp32_bA32_t128x8x512_s5", "routed_experts"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu", "routed_experts"),
        ("void flash_mla::sm100::decode::sparse_attn_fwd_kernel", "sparse_attention"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)", "all_gather"),
        ("tf32_hc_prenorm_gemm_impl", "mhc_statistics"),
        ("_mhc_post_per_token", "mhc_expand"),
        ("per_token_group_quant_8bit_kernel", "site_quantise"),
        ("nvjet_tst_64x24_64x16_4x1_v_bz_bias_TNT", "product_bf16"),
        ("void at::native::vectorized_elementwise_kernel<4>", "small_kernel"),
        ("something_new", None),
    ],
)
def test_real_names(name: str, operator: str | None):
    rule = operator_of(name, name_rules())
    assert (None if rule is None else rule.operator) == operator


@pytest.mark.parametrize(
    "text",
    [
        "patterns: []\nsources: {}", "sources: {a: b}", "patterns: [3]\nsources: {a: b}",
        'patterns: [{pattern: "(", operator: x, source: a}]\nsources: {a: b}',
        'patterns: [{pattern: "x", operator: x, source: z}]\nsources: {a: b}',
        'patterns: [{pattern: 3, operator: x, source: a}]\nsources: {a: b}',
    ],
)  # fmt: skip
def test_files_of_names_are_checked(tmp_path: Path, text: str):
    (tmp_path / "n.yaml").write_text(text)
    with pytest.raises(SchemaError):
        name_rules(tmp_path / "n.yaml")
