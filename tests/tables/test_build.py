"""The build script: same input, same bytes; the packaged tables are what it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.resources import data_root
from aisim_v41.tables import GPUS, read_table
from aisim_v41.tables.checkout import ENGINE_TABLES
from scripts.operator_tables.__main__ import main
from scripts.operator_tables.build import build

ROOT = Path(__file__).resolve().parents[2]
OPEN_DATA = ROOT.parent / "shared" / "data"

NEW = """gpu,engine,version,gemm_dtype,m,n,k,us
gb200,sglang,0.5.20,bfloat16,1,512,512,2.54
gb200,sglang,0.5.20,bfloat16,16,512,512,2.6
gb200,trtllm,1.3.0rc20,fp8_block,1,512,512,5.0
h200,vllm,0.31.0,bfloat16,1,512,512,3.1
"""
OLD = """gpu,engine,gemm_dtype,m,n,k,us
gb200,sglang,bfloat16,1,512,512,9.99
gb200,sglang,bfloat16,2,512,512,2.7
gb200,trtllm,fp8_block,1,512,512,5.0
gb200,trtllm,nvfp4,1,512,512,4.0
gb200,sglang,fp8_block,8192,51200,512,2503.86
"""
COMM = """gpu,src,kernel_source,op,dt,num_gpus,bytes,us
gb200,nccl 2.23,NCCL,all_gather,half,16,1048576,31.47
gb200,sglang 0.5.20,SGLang_CustomAllReduce_eager,all_reduce,bfloat16,4,256,79.0
gb200,sglang 0.5.20,SGLang_CustomAllReduce_graph,all_reduce,bfloat16,4,256,3.6
gb200,sglang 0.5.20,SGLang_CustomAllReduce_graph,all_reduce,bfloat16,4,33554432,126.0
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "peer_graph_tables_gemm.csv").write_text(NEW)
    (folder / "peer_gb200_gb300_gemm.csv").write_text(OLD)
    (folder / "peer_graph_tables_comm.csv").write_text(COMM)
    return folder


def tables(out: Path) -> dict[str, bytes]:
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def test_the_same_csv_gives_the_same_bytes(data: Path, tmp_path: Path):
    for name in ("one", "two", "two"):  # written over, too
        list(build(data, tmp_path / name, families=["gemm", "collectives"]))
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    assert set(tables(tmp_path / "one")) == {
        f"{place}.{suffix}"
        for place in ("gb200/op/gemm", "h200/op/gemm", "gb200/op/collectives")
        for suffix in ("parquet", "json")
    }


def test_newer_rows_win_and_older_ones_fill_up(data: Path, tmp_path: Path):
    list(build(data, tmp_path / "out", families=["gemm"]))
    table = read_table(tmp_path / "out" / "gb200" / "op" / "gemm.parquet")
    key = {"outputs": 512, "inputs": 512}
    newest = table.select(engine="sglang", engine_version="0.5.20", dtype="bf16")
    assert newest.exact(rows=1, **key).latency_us == 2.54
    older = table.select(engine="sglang", engine_version="0.5.14", dtype="bf16")
    assert older.sizes["rows"].tolist() == [2]
    assert older.source[0] == "peer_gb200_gb300_gemm.csv"
    assert table.select(engine="trtllm", dtype="nvfp4").exact(rows=1, **key).latency_us == 4.0
    assert len(table.select(engine="trtllm", dtype="fp8_block128")) == 1
    (dropped,) = table.sidecar["dropped"]
    assert (dropped["source"], dropped["rows"]) == ("peer_gb200_gb300_gemm.csv", 2)
    assert table.sidecar["flags"]["noisy_minimum"]["rows"] == 1


def test_collectives_of_the_small_folder(data: Path, tmp_path: Path):
    list(build(data, tmp_path / "out", families=["collectives"]))
    table = read_table(tmp_path / "out" / "gb200" / "op" / "collectives.parquet")
    gather = table.select(operator="all_gather")
    assert gather.identity["engine_version"] == "2.27.7"
    assert gather.identity["reach"] == "across_trays"
    graph = table.select(operator="all_reduce", execution="graph")
    assert graph.caveat.tolist() == ["", "other_library_above"]


def test_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    assert main(["--data", str(data), "--out", str(out), "--family", "gemm"]) == 0
    assert "gb200/op/gemm.parquet 6 " in capsys.readouterr().out
    assert main(["--data", str(data), "--out", str(out), "--family", "experts"]) == 1
    assert "no peer_graph_tables_moe.csv in the data folder" in capsys.readouterr().err


def test_bad_csv_is_refused(data: Path, tmp_path: Path):
    new = data / "peer_graph_tables_gemm.csv"
    new.write_text(NEW.replace(",us\n", ",ms\n"))
    with pytest.raises(SchemaError, match=r"peer_graph_tables_gemm\.csv: no column us"):
        list(build(data, tmp_path, families=["gemm"]))
    new.write_text(NEW + "gb200,sglang,0.5.20,bfloat16,1,512,512,2.55\n")
    with pytest.raises(SchemaError, match="same identity and key"):
        list(build(data, tmp_path, families=["gemm"]))
    new.write_text(NEW.replace("2.54", "-2.54"))
    with pytest.raises(SchemaError, match="column latency_us"):
        list(build(data, tmp_path, families=["gemm"]))
    with pytest.raises(MissingProfileError):
        list(build(data, tmp_path, families=["quantise"]))


@pytest.mark.skipif(not OPEN_DATA.is_dir(), reason="the open data is not beside this checkout")
def test_the_packaged_tables_are_what_the_script_makes(tmp_path: Path):
    built = list(build(OPEN_DATA, tmp_path))
    assert len(built) == len(ENGINE_TABLES) * len(GPUS)
    for path, _ in built:
        packaged = data_root() / "profiles" / path.relative_to(tmp_path)
        assert read_table(path).to_frame().equals(read_table(packaged).to_frame())
        fresh, stored = (json.loads(p.with_suffix(".json").read_text()) for p in (path, packaged))
        assert {**fresh, "sha256": ""} == {**stored, "sha256": ""}  # pyarrow writes its version
