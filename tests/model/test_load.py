from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model, model_from_config, model_names

NAME = "deepseek-v4.1-flash"


def test_packaged_model(model: Model) -> None:
    assert model.name == NAME
    assert model.revision == "fb2764a5cf321eaa5070ca8f9e892818f477c16d"
    assert model.unknown_keys == ()
    assert (model.hidden, model.vocab, model.max_context) == (5120, 129_280, 1_048_576)
    assert model.formats.experts.element_bits == 4


def test_packaged_config_is_the_official_file() -> None:
    raw = resources.find("profiles", NAME, "/config.json").read_bytes()
    assert len(raw) == 3311
    assert hashlib.sha256(raw).hexdigest().startswith("8be45ce0476004a3")


def test_names_list_every_generation() -> None:
    assert {NAME, "deepseek-v1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"} <= set(
        model_names()
    )


def test_a_file_gives_the_same_model_with_its_digest(tmp_path: Path, model: Model) -> None:
    folder = tmp_path / "my-checkpoint"
    folder.mkdir()
    raw = resources.find("profiles", NAME, "/config.json").read_bytes()
    (folder / "config.json").write_bytes(raw)
    for path in (folder, folder / "config.json", str(folder / "config.json")):
        mine = load_model(path)
        assert isinstance(mine, Model)
        assert mine.name == "my-checkpoint"
        assert mine.revision == f"sha256:{hashlib.sha256(raw).hexdigest()}"
        assert mine.layers == model.layers


def test_a_changed_packaged_config_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "profiles" / NAME
    folder.mkdir(parents=True)
    for file in ("config.json", "profile.yaml"):
        text = resources.find("profiles", NAME, f"/{file}").read_text()
        (folder / file).write_text(text.replace("5120", "5121"))
    monkeypatch.setenv(resources.SEARCH_PATH_VARIABLE, str(tmp_path))
    with pytest.raises(SchemaError, match="sha256 is"):
        load_model(NAME)


def test_an_unknown_name_lists_close_ones() -> None:
    with pytest.raises(MissingProfileError, match=r"deepseek-v4\.1-flash"):
        load_model("deepseek-v41-flash")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(MissingProfileError, match=r"nowhere/config\.json"):
        load_model("nowhere/config.json")


@pytest.mark.parametrize(
    "odd", ["", ".", "\0/", "~nobody-here/x", "x" * 5000 + "/", "../..", "a\nb"]
)
def test_odd_names_are_typed_errors(odd: str) -> None:
    with pytest.raises(AisimError):
        load_model(odd)


@pytest.mark.parametrize("odd", [None, 7, b"x", {}])
def test_other_types_are_refused(odd: Any) -> None:
    with pytest.raises(InvalidInputError, match="packaged name or a path"):
        load_model(odd)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "mapping"),
        ("{", "line 1"),
        ('{"a": NaN}', "finite"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model_type": "deepseek_v41"}', "quantization_config is missing"),
    ],
)
def test_broken_files_name_the_file(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match=what) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_a_tag_that_does_not_fit_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "bool.yaml"
    path.write_text("a: !!bool 7")
    with pytest.raises(SchemaError, match="a YAML tag does not fit its value"):
        load_model(path)


@pytest.mark.parametrize("name", ["config", "config.txt", "config.yaml"])
def test_json_is_known_by_its_content(tmp_path: Path, model: Model, name: str) -> None:
    raw = resources.find("profiles", NAME, "/config.json").read_bytes()
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf\n " + raw)
    mine = load_model(path)
    assert isinstance(mine, Model)
    assert mine.layers == model.layers
    assert mine.revision == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_a_pipe_is_refused_at_once() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(SchemaError, match="not a regular file"):
            load_model(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
        os.close(writer)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(resources.find("profiles", NAME, "/config.json").read_bytes())
    opened = []
    real = Path.open

    def counted(self: Path, *args: Any, **named: Any) -> Any:
        opened.append(self)
        return real(self, *args, **named)

    monkeypatch.setattr(Path, "open", counted)
    load_model(path)
    assert opened == [path]


def test_one_exception_not_a_chain(tmp_path: Path, config: dict[str, Any]) -> None:
    config["text_config"]["hidden_size"] = "wide"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(SchemaError) as caught:
        load_model(path)
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


def test_config_from_python_keeps_its_input(config: dict[str, Any]) -> None:
    before = json.dumps(config)
    model = model_from_config(config, name="mine", revision="r1")
    assert json.dumps(config) == before
    assert (model.name, model.revision) == ("mine", "r1")


@pytest.mark.parametrize("odd", [[], "x", 3, None])
def test_config_from_python_must_be_a_mapping(odd: Any) -> None:
    with pytest.raises(SchemaError, match="mapping"):
        model_from_config(odd, name="mine")


def test_pydantic_is_only_imported_when_a_file_is_read() -> None:
    modules = "aisim_v41.model.load, aisim_v41.model.sharding, aisim_v41.model.inventory"
    code = f"import sys, {modules}; print('pydantic' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
