"""Selecting: one identity or an error that says what differs; exact rows; round trip."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import aisim_v41.tables.load as load_module
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.tables import FAMILIES, FLAGS, load_table, read_table
from aisim_v41.tables.write import write_table
from tests.tables.conftest import SIDECAR, SOURCE, dense_frame, write_small


def test_what_is_written_is_read(small: Path):
    table = read_table(small)
    frame = table.to_frame()
    given = dense_frame()
    for column in ("operator", "engine", "latency_us", "flag", "expert_load"):
        merged = frame.sort_values("latency_us")[column].tolist()
        assert merged == given.sort_values("latency_us")[column].tolist()
    assert (table.gpu, table.family, len(table)) == ("gb200", "v41_dense", 12)
    assert table.sidecar["flags"]["faulty_node"]["rows"] == 1
    assert table.sidecar["units"]["latency_us"] == "microsecond"


def test_writing_twice_gives_the_same_bytes(tmp_path: Path):
    one, two = (write_small(tmp_path / name) for name in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()
    assert one.with_suffix(".json").read_bytes() == two.with_suffix(".json").read_bytes()
    shuffled = dense_frame().sample(frac=1, random_state=3)
    assert write_small(tmp_path / "c", shuffled).read_bytes() == one.read_bytes()


def test_a_partition_holds_its_operator_and_axes(small: Path):
    gate = read_table(small).select(operator="router_gate")
    assert gate.axes == ("rows", "outputs", "inputs")
    assert gate.sizes["rows"].tolist() == [1, 16, 128, 1024]
    assert gate.latency_us.tolist() == [20, 21, 22, 23]
    assert gate.samples.tolist() == [-1] * 4
    assert np.isnan(gate.spread_relative).all()
    assert gate.where(rows=16).latency_us.tolist() == [21]
    assert len(gate.where(rows=17)) == 0
    reduce = read_table(small).select(operator="all_reduce")
    assert reduce.axes == ("message_bytes", "ranks")
    assert reduce.exact(message_bytes=163840, ranks=4).samples == 5


def test_arrays_cannot_be_changed(small: Path):
    gate = read_table(small).select(operator="router_gate")
    for array in (gate.latency_us, gate.samples, gate.flag, gate.sizes["rows"],
                  gate.where(rows=16).latency_us):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        gate.identity["engine"] = "other"
    with pytest.raises(TypeError):
        read_table(small).sidecar["gpu"] = "other"


def test_flagged_rows_come_only_when_asked(small: Path):
    table = read_table(small)
    key = {"tokens": 128, "hidden": 5120, "expert_width": 2304, "experts_routed": 384,
           "experts_per_token": 6}  # fmt: skip
    assert table.select(operator="routed_experts").exact(**key) is None
    for flags in (("faulty_node",), FLAGS):
        row = table.select(operator="routed_experts", flags=flags).exact(**key)
        assert (row.latency_us, row.flag) == (302.0, "faulty_node")
    with pytest.raises(InvalidInputError, match="no flag 'faulty'; nearest: faulty_node"):
        table.select(operator="routed_experts", flags=["faulty"])


def test_several_identities_are_an_error_that_shows_the_fields():
    table = load_table("gb300", "gemm")
    with pytest.raises(InvalidInputError) as error:
        table.select(engine="sglang")
    for said in ("engine_version: 0.5.14, 0.5.20", "dtype: bf16, fp8_block128", "identities"):
        assert said in str(error.value)
    assert "kernel_source" not in str(error.value)
    with pytest.raises(InvalidInputError, match="no field leaves 12 identities"):
        table.select()
    assert len(table.matching(engine="sglang", dtype="bf16")) == 2


def test_graph_and_eager_never_mix():
    table = load_table("b300", "collectives")
    with pytest.raises(InvalidInputError, match="execution: eager, graph"):
        table.select(engine="sglang", operator="all_reduce")


def test_replay_modes_and_campaigns_never_mix():
    table = load_table("b300", "v41_modules")
    with pytest.raises(InvalidInputError) as error:
        table.select(operator="swa", phase="prefill")
    for field in ("decoder_replay: off, on", "campaign:", "tensor_parallel: 2, 4"):
        assert field in str(error.value)
    assert len(table.select(operator="swa", phase="prefill", campaign="profile-full-b300_sxm"))


def test_nothing_that_matches_shows_what_there_is():
    table = load_table("h100", "gemm")
    with pytest.raises(MissingProfileError) as error:
        table.select(engine="vllm", dtype="nvfp4")
    for said in ("h100, gemm", "dtype='nvfp4'", "engine='vllm'", "bf16, fp8_block128", "docs/"):
        assert said in str(error.value)
    with pytest.raises(InvalidInputError, match="no identity field 'precision'"):
        table.select(precision="bf16")
    with pytest.raises(InvalidInputError, match="no identity field 'rows'"):
        table.select(engine="vllm", dtype="bf16", rows=1)


def test_a_key_must_name_every_axis():
    part = load_table("h100", "gemm").select(engine="vllm", dtype="bf16")
    assert part.exact(rows=3, outputs=512, inputs=512) is None
    with pytest.raises(InvalidInputError, match="has the axes rows, outputs, inputs; found rows"):
        part.exact(rows=1)
    with pytest.raises(InvalidInputError, match="has no axis 'tokens'"):
        part.where(tokens=1)


def test_names_that_do_not_exist():
    with pytest.raises(MissingProfileError, match=r"no family.*'gem'; nearest: gemm"):
        load_table("gb200", "gem")
    with pytest.raises(MissingProfileError, match=r"no gemm table of rtx_4090.*AISIM_V41_PATH"):
        load_table("rtx_4090", "gemm")
    for name in ("../gb200", "", "GB 200", 7, "x" * 99):
        with pytest.raises(InvalidInputError, match="not a GPU's name"):
            load_table(name, "gemm")
    with pytest.raises(InvalidInputError, match="no source 'web'"):
        load_table("gb200", "gemm", source="web")
    with pytest.raises(MissingProfileError):
        load_table("gb200", 3)


def test_a_table_lies_where_it_belongs(tmp_path: Path, small: Path):
    for place in ("gb200/gemm.parquet", "gb200/op/gemm.csv", "gb200/op/other.parquet"):
        with pytest.raises(SchemaError):
            read_table(tmp_path / place)
    with pytest.raises(MissingProfileError, match="no such file"):
        read_table(tmp_path / "gb200" / "op" / "gemm.parquet")
    small.with_suffix(".json").unlink()
    with pytest.raises(MissingProfileError, match=r"v41_dense\.json"):
        read_table(small)


def test_a_changed_file_is_read_again(small: Path):
    assert len(read_table(small)) == 12
    write_small(small.parents[2], dense_frame().head(9))
    assert len(read_table(small)) == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="engine"), "columns missing: engine"),
        (lambda f: f.assign(speed=1), "not known: speed"),
        (lambda f: f.head(0), "0 rows"),
        (lambda f: f.assign(engine=5), "column engine must hold text"),
        (lambda f: f.assign(latency_us="fast"), "column latency_us must hold numbers"),
        (lambda f: f.assign(ranks=f["ranks"] * 0.3), "column ranks must hold whole numbers"),
        (lambda f: f.assign(latency_us=-f["latency_us"]), "row 0, column latency_us: -3"),
        (lambda f: f.assign(latency_us=f["latency_us"] / 1e6), "Check the unit"),
        (lambda f: pd.concat([f, f.head(1)]), "have the same identity and key {'rows': 1"),
        (lambda f: f.assign(execution="lazy"), "'lazy' is none of graph, eager"),
        (lambda f: f.assign(flag="odd"), "column flag: 'odd' is not known"),
        (lambda f: f.assign(operator="conv"), "column operator: 'conv' is not known"),
        (lambda f: f.assign(rows=1, outputs=1, inputs=1), "a value, but the axes of"),
        (lambda f: f.assign(tokens=None), "no value, but the axes of routed_experts"),
        (lambda f: f.assign(campaign="a\tb"), "not a short printable name"),
        (lambda f: f.assign(campaign=""), "the name is empty"),
        (lambda f: f.assign(source="yours.csv"), "rows of each source"),
    ],
)
def test_the_writer_refuses(tmp_path: Path, change, said: str):
    with pytest.raises(SchemaError) as error:
        write_small(tmp_path, change(dense_frame()))
    assert said in str(error.value)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_the_writer_refuses_a_thin_sidecar(tmp_path: Path):
    for thin in ({"notice": " "}, {"sources": []}, {"timing": {"method": "m"}}, {"remarks": [""]}):
        with pytest.raises(SchemaError):
            write_small(tmp_path, **thin)
    with pytest.raises(SchemaError, match="an id occurs twice"):
        write_small(tmp_path, sources=[SOURCE, SOURCE])
    with pytest.raises(MissingProfileError):
        write_table(dense_frame(), gpu="gb200", family="none", folder=tmp_path, **SIDECAR)


def test_every_family_declares_what_it_needs():
    for family in FAMILIES.values():
        names = [column.name for column in family.columns]
        assert len(names) == len(set(names))
        assert {axis for axes in family.operators.values() for axis in axes} == set(family.axes)
        assert all(column.meaning for column in family.columns)
        assert not set(family.identity_names) & set(family.axes)


def test_the_example_of_the_loader_runs():
    assert doctest.testmod(load_module).failed == 0
