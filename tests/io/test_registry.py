"""Formats by name and by content."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.io import IMPORTERS, read_steps, sniff
from tests.io import pairs
from tests.io.files import json_lines, load, measured, message, point, rank_file
from tests.io.test_sglang_bench import line
from tests.io.test_vllm_latency import saved as vllm_file
from tests.io.test_vllm_latency import twin

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "io.md"


def sources(folder: Path) -> dict[str, Path]:
    """A file of every format, under a name that says nothing."""
    (folder / "steps").write_text("new_tokens,latency_ms\n64,5\n")
    for name in ("benchmark", "pair", "vllm"):
        (folder / name).mkdir()
    rank_file(folder / "benchmark" / "benchmark.json",
              [measured(point(1, "prefill", 1, 64, 0), 0.01)])  # fmt: skip
    pairs.saved(folder / "pair")
    return {
        "dynamo_fpm": json_lines(folder / "a", [message(load(1, 64, 0, 0, 0))]),
        "self_benchmark": folder / "benchmark",
        "sglang_bench": json_lines(folder / "b", [line()]),
        "aisimulate_fpm": folder / "pair",
        "vllm_latency": vllm_file(folder / "vllm", twin()),
        "csv": folder / "steps",
    }


def test_every_format_is_known_by_what_it_holds(tmp_path: Path):
    found = sources(tmp_path)
    assert set(found) == set(IMPORTERS)
    for name, path in found.items():
        assert sniff(path) == name
        imported = read_steps(path)
        assert imported.records
        assert imported == read_steps(path, name) == IMPORTERS[name].read(path)


def test_single_files_and_other_layouts(tmp_path: Path):
    found = sources(tmp_path)
    file = found["self_benchmark"] / "benchmark.json"
    assert sniff(file) == "self_benchmark"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1))
    assert sniff(file) == "self_benchmark"
    assert sniff(found["aisimulate_fpm"] / "fpm_forward_perf.parquet") == "aisimulate_fpm"
    latency = found["vllm_latency"]
    latency.write_text(json.dumps(json.loads(latency.read_text()), indent=4))
    assert sniff(latency) == "vllm_latency"
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf\nlatency_ms, new_tokens \n")
    assert sniff(tmp_path / "bom.csv") == "csv"


@pytest.mark.parametrize(
    "content", ["", "a,b\n", "new_tokens\n", "{", '{"a": 1}', "[1]", "\x00", "x" * 10_000]
)
def test_what_is_none_of_them_lists_them(tmp_path: Path, content: str):
    (tmp_path / "file").write_text(content)
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(SchemaError, match=r": of no known format\. ") as caught:
            sniff(path)
        for entry in IMPORTERS.values():
            assert f"{entry.name}: {entry.known_by}" in str(caught.value)


def test_a_compressed_file_is_named_as_one(tmp_path: Path):
    (tmp_path / "file").write_bytes(gzip.compress(b"new_tokens,latency_ms\n64,5\n"))
    with pytest.raises(SchemaError, match="file: compressed with gzip; unpack it first"):
        read_steps(tmp_path / "file")


def test_quoted_columns_are_columns(tmp_path: Path):
    (tmp_path / "file").write_text('"new_tokens","latency_ms"\n64,5\n')
    assert len(read_steps(tmp_path / "file").records) == 1


def test_a_document_on_one_long_line(tmp_path: Path):
    padding = {"padding": "x" * (5 << 20)}
    document = {"artifact_type": "rank", "results": [], **padding}
    (tmp_path / "file").write_text(json.dumps(document))
    assert sniff(tmp_path / "file") == "self_benchmark"


def test_options_go_to_the_importer(tmp_path: Path):
    found = sources(tmp_path)
    assert read_steps(found["csv"], run="monday").records[0].run == "monday"
    with pytest.raises(InvalidInputError, match="csv has no option 'runs'; nearest: run"):
        read_steps(found["csv"], runs="monday")
    for name in ("path", "source"):
        with pytest.raises(InvalidInputError, match=f"csv has no option '{name}'"):
            read_steps(found["csv"], "csv", **{name: "x"})
    with pytest.raises(InvalidInputError, match="no format 'dynamo'; nearest: dynamo_fpm"):
        read_steps(found["csv"], "dynamo")
    with pytest.raises(MissingProfileError):
        read_steps(tmp_path / "none")


def test_the_page_has_a_section_for_each():
    text = DOCUMENT.read_text(encoding="utf-8")
    headings = [part.splitlines()[0] for part in text.split("\n## ")[1:]]
    assert headings == list(IMPORTERS)
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    assert [row.split("`")[1] for row in rows[: len(IMPORTERS)]] == list(IMPORTERS)
