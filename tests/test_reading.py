"""Files of other people: whatever they hold, the answer is quick and typed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.reading import MAX_FILE_BYTES, MAX_YAML_BYTES, read_mapping

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 5.0


def saved(folder: Path, content: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    """Message of the typed error, which names the file and comes soon."""
    start = time.process_time()
    with pytest.raises(SchemaError) as caught:
        read_mapping(path)
    assert time.process_time() - start < SECONDS
    told = str(caught.value)
    assert told.startswith(str(path))
    assert len(told) < len(str(path)) + 500
    return told.removeprefix(str(path))


MANY = 20_000
NUMBER = "1" + ":1" * 50_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{" + ",".join(f'"k{i}": 1' for i in range(MANY)) + ', "k7": 2, "k8": 2}', "'k7' occurs"),
        ("".join(f"k{i}: 1\n" for i in range(MANY // 2)) + "k7: 2\nk8: 2\n", "'k7' occurs twice"),
        ("{" + '"a": 1, ' * MANY + '"b": 1}', "'a' occurs twice"),
        ("a: 1\n" * MANY, "'a' occurs twice"),
        (f"? {'x' * 900}\n: 1\n" * 2, "xxx...' occurs twice"),
        ("a:\n" + "- 1\n" * 700_000, f"larger than {MAX_YAML_BYTES} bytes"),
        ("{" + " " * MAX_FILE_BYTES + "}", f"larger than {MAX_FILE_BYTES} bytes"),
        (f"a: {NUMBER}", "a number longer than 300 characters"),
        (f"a: {NUMBER}.5", "a number longer than 300 characters"),
        (f"a: !!int '{NUMBER}'", "a number longer than 300 characters"),
        (f"a: !!float '{NUMBER}'", "a number longer than 300 characters"),
        (f"{NUMBER}: a", "a number longer than 300 characters"),
        ('{"' + "x" * 1_000_000 + '": [' + "1, " * 900_000 + "1e999]}", "inf is not a finite"),
        ("a: !!bool 7", "a YAML tag does not fit its value"),
        ("a: !!float ''", "a YAML tag does not fit its value"),
        ("{a: 1}", "Expecting property name"),
    ],
    ids=range(16),
)
def test_what_costs_or_fits_nothing_is_refused_soon(tmp_path: Path, content: str, message: str):
    assert message in refusal(saved(tmp_path, content))


def test_long_text_and_many_keys_are_fine(tmp_path: Path):
    text = "x" * 100_000
    assert read_mapping(saved(tmp_path, f"a: {text}\nb: '{NUMBER}'")) == {"a": text, "b": NUMBER}
    keys = {f"k{i}": i for i in range(5000)}
    assert read_mapping(saved(tmp_path, "\n".join(f"{k}: {v}" for k, v in keys.items()))) == keys


@pytest.mark.parametrize("name", ["a", "a.json", "a.yaml", "a.txt"])
def test_content_decides_not_the_name(tmp_path: Path, name: str):
    for json in ('{"a": 1e-06}', '\n\t {"a": 1e-06}', '\ufeff{"a": 1e-06}'):
        assert read_mapping(saved(tmp_path, json, name)) == {"a": 1e-6}
    for yaml in ("a: 1.0e-06", "\ufeffa: 1.0e-06", "---\n{a: 1.0e-06}", "# note\na: 1.0e-06"):
        assert read_mapping(saved(tmp_path, yaml, name)) == {"a": 1e-6}


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    link = tmp_path / "link.yaml"
    link.symlink_to(pipe)
    for path in (pipe, link, tmp_path, Path(os.devnull), Path("/dev/zero")):
        assert "not a regular file" in refusal(path)


def test_links_to_files_are_followed(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(saved(tmp_path, "a: 1"))
    assert read_mapping(link) == {"a": 1}
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(MissingProfileError, match="no such file"):
        read_mapping(link)


def test_packaged_files_are_far_below_the_limit():
    paths = [p for folder in ("profiles", "hardware") for p in (ROOT / folder).rglob("*.yaml")]
    assert len(paths) > 20
    assert max(p.stat().st_size for p in paths) < MAX_YAML_BYTES / 4
    for path in paths:
        assert read_mapping(path)
