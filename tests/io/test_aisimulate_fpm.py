"""AISimulate's tables of whole forwards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.forwards.records import StepTotals
from aisim_v41.io import read_aisimulate_fpm
from tests.io.pairs import NEW_IN_6, NEW_IN_7, ROWS, row, saved

STEPS = [
    (Request(new_tokens=512),),
    (Request(new_tokens=48, prefix_tokens=1536, count=2),),
    (
        Request(new_tokens=1, prefix_tokens=1001, kind="decode"),
        Request(new_tokens=1, prefix_tokens=1000, kind="decode", count=3),
    ),
]


def test_balanced_points_become_requests(tmp_path: Path):
    imported = read_aisimulate_fpm(saved(tmp_path))
    assert [record.step for record in imported.records] == STEPS
    assert [record.latency_ms for record in imported.records] == [20.0, 24.0, 9.5]
    record = imported.records[2]
    assert (record.point, record.run, record.order) == ("decode-b4-n0-kv4001", "r", None)
    assert record.source == "fpm_forward_perf.parquet: row 2"
    assert imported.skipped == ()
    assert read_aisimulate_fpm(tmp_path) == imported


def test_what_the_cell_says_of_the_build(tmp_path: Path):
    hints = read_aisimulate_fpm(saved(tmp_path)).build_hints
    assert hints == {
        "timer": "scheduler_wall", "checkpoint": "m", "gpu": "b200", "engine": "vllm",
        "engine_build": "0.30.0", "tp": 4, "pp": 1, "dp": 1, "cp": 1, "ep": 1,
        "modality": "text", "decoder_replay": True, "settings.moe_tp": 4,
        "settings.weight_quantization": "fp8", "settings.gemm_quant_mode": "fp8",
        "settings.moe_quant_mode": "mxfp4", "settings.fmha_quant_mode": "fp8",
        "settings.comm_quant_mode": "half", "settings.kv_cache_dtype": "fp8",
        "settings.moe_backend": "auto", "settings.attention_backend": "auto",
        "settings.enable_wideep": False, "settings.enable_eplb": False,
        "settings.engram_residency": "hbm",
    }  # fmt: skip


@pytest.mark.parametrize("version", [5, 6, 7, 7.0])
def test_neighbouring_schemas(tmp_path: Path, version: float):
    rows = [
        {
            **{
                name: value
                for name, value in entry.items()
                if (version > 6 or name not in NEW_IN_7) and (version > 5 or name not in NEW_IN_6)
            },
            **({"backend_axis": "a", "backend_policy": "p"} if version == 5 else {}),
        }
        for entry in ROWS
    ]
    imported = read_aisimulate_fpm(saved(tmp_path, rows, schema_version=version))
    assert [record.step for record in imported.records] == STEPS
    assert ("decoder_replay" in imported.build_hints) == (version == 7)


@pytest.mark.parametrize(
    ("word", "config"),
    [("fake_fallback", ""), ("skip:unknown", ""), ("legacy", ""), (None, ""), ("n/a", "")],
)
def test_decodes_over_kv_that_no_model_computed(tmp_path: Path, word, config):
    rows = [row("decode", 4, 0, 4000, 9.5, kv_seed_regime=word, model_config_sha256=config)]
    file = saved(tmp_path, rows)
    imported = read_aisimulate_fpm(file)
    assert imported.records == ()
    [entry] = imported.skipped
    assert entry.reason == (
        f"the KV that it reads was not computed (kv_seed_regime {word or 'absent'})"
    )
    [record] = read_aisimulate_fpm(file, fake_kv="mark", regime="monday").records
    assert (record.regime, record.note) == ("fake_kv", entry.reason)


@pytest.mark.parametrize(
    ("word", "config", "kept"),
    [("n/a", "", True), (None, "", True), ("n/a", "abc", False), ("real_kv", "abc", True),
     ("fake_fallback", "", False)],
)  # fmt: skip
def test_prefixes_are_computed_before_the_step_unless_said_otherwise(
    tmp_path: Path, word, config, kept
):
    hit = {"kv_seed_regime": word, "model_config_sha256": config}
    rows = [row("prefill", 1, 64, 128, 9.5, **hit)]
    assert len(read_aisimulate_fpm(saved(tmp_path, rows)).records) == kept
    cold = [row("prefill", 1, 64, 0, 9.5, **hit)]
    assert len(read_aisimulate_fpm(saved(tmp_path, cold)).records) == 1


def test_prefixes_of_a_batch_need_a_block_size(tmp_path: Path):
    file = saved(tmp_path, [row("prefill", 2, 96, 48, 9.5)])
    imported = read_aisimulate_fpm(file)
    assert isinstance(imported.records[0].step, StepTotals)
    assert imported.remarks[1].startswith("1 points read as sums")
    [record] = read_aisimulate_fpm(file, block_tokens=1).records
    assert record.step == (Request(new_tokens=48, prefix_tokens=24, count=2),)


def test_cells_never_mix(tmp_path: Path):
    other = [row("prefill", 1, 512, 0, 30.0, tp=2, moe_tp=2)]
    file = saved(tmp_path, ROWS + other)
    with pytest.raises(InvalidInputError, match="2 cells, which must not be mixed") as caught:
        read_aisimulate_fpm(file)
    assert "They differ in tp: 2, 4; moe_tp: 2, 4. Choose with cell=" in str(caught.value)
    assert read_aisimulate_fpm(file, cell={"tp": 2}).records[0].latency_ms == 30.0
    assert len(read_aisimulate_fpm(file, cell={"tp": 4, "moe_tp": 4}).records) == 3
    with pytest.raises(InvalidInputError, match=r"no cell with \{'tp': 8\}; there are .*'2', '4'"):
        read_aisimulate_fpm(file, cell={"tp": 8})
    with pytest.raises(InvalidInputError, match="no column 'tq'; nearest: tp"):
        read_aisimulate_fpm(file, cell={"tq": 8})


def test_the_same_point_twice(tmp_path: Path):
    with pytest.raises(SchemaError, match="rows 0 and 3 are the same point"):
        read_aisimulate_fpm(saved(tmp_path, [*ROWS, {**ROWS[0], "latency_ms": 21.0}]))
    runs = [*ROWS, {**ROWS[0], "runtime_run_id": "s"}]
    assert len(read_aisimulate_fpm(saved(tmp_path, runs)).records) == 4


@pytest.mark.parametrize(
    ("sidecar", "told"),
    [
        ({"schema_name": "other"}, "schema_name = 'other'; known: aic_fpm_forward_perf"),
        ({"schema_version": 8}, "schema_version = 8; known: 5, 6, 7"),
        ({"schema_version": True}, "schema_version = True"),
        ({"coordinate_system": None}, "coordinate_system = None"),
        ({"measurement_policy": "mean"}, "measurement_policy = 'mean'"),
        ({"parquet_sha256": "0" * 64}, "its digest is not that of fpm_forward_perf.parquet"),
        ({"row_count": 4}, "3 rows, its sidecar says 4"),
    ],
)
def test_a_sidecar_of_something_else(tmp_path: Path, sidecar, told):
    with pytest.raises(SchemaError, match="fpm_forward_perf") as caught:
        read_aisimulate_fpm(saved(tmp_path, **sidecar))
    assert told in str(caught.value)


def test_half_of_a_pair(tmp_path: Path):
    file = saved(tmp_path)
    file.with_suffix(".metadata.json").unlink()
    with pytest.raises(MissingProfileError, match="no sidecar fpm_forward_perf"):
        read_aisimulate_fpm(file)
    with pytest.raises(MissingProfileError, match="no such file"):
        read_aisimulate_fpm(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"latency_ms": float("nan")}, "StepRecord.latency_ms = nan"),
        ({"latency_ms": 0.0}, "StepRecord.latency_ms = 0.0"),
        ({"workload_kind": "mixed"}, "workload_kind = 'mixed': must be prefill or decode"),
        ({"partition_policy": "random"}, "partition_policy = 'random': not balanced_v1"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"total_prefill_tokens": 0}, "StepTotals.prefill_tokens = 0 of 1 requests"),
        ({"workload_kind": "decode", "total_kv_read_tokens": 0}, "a decode with 512 prefill"),
    ],
)
def test_rows_that_cannot_be(tmp_path: Path, change, told):
    imported = read_aisimulate_fpm(saved(tmp_path, [{**ROWS[0], **change}, ROWS[1]]))
    assert len(imported.records) == 1
    [entry] = imported.skipped
    assert entry.place == "fpm_forward_perf.parquet: row 0"
    assert entry.reason.startswith(told)


def test_decodes_without_a_context(tmp_path: Path):
    shortest = row("decode", 4, 0, 4, 9.5)
    [record] = read_aisimulate_fpm(saved(tmp_path, [shortest])).records
    assert record.step == (Request(new_tokens=1, prefix_tokens=1, kind="decode", count=4),)
    rows = [row("decode", 4, 0, 3, 9.5)]
    [entry] = read_aisimulate_fpm(saved(tmp_path, rows)).skipped
    assert entry.reason == "total_kv_read_tokens = 3: fewer than one for each of 4 decodes"


@pytest.mark.parametrize(
    ("name", "column", "told"),
    [
        ("latency_ms", None, "no column latency_ms"),
        ("latency_ms", pa.array([[1.0]] * 3), "column latency_ms holds list"),
        ("tp", pa.array([1] * 3, pa.timestamp("ns")), "column tp holds timestamp"),
    ],
)
def test_columns_of_another_form(tmp_path: Path, name, column, told):
    table = pa.Table.from_pylist(ROWS).drop([name])
    if column is not None:
        table = table.append_column(name, column)
    with pytest.raises(SchemaError, match=r"fpm_forward_perf\.parquet: ") as caught:
        read_aisimulate_fpm(saved(tmp_path, table))
    assert told in str(caught.value)


def test_a_table_without_rows(tmp_path: Path):
    empty = pa.Table.from_pylist(ROWS).slice(0, 0)
    with pytest.raises(SchemaError, match="no rows"):
        read_aisimulate_fpm(saved(tmp_path, empty))
