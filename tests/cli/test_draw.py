"""Pictures from the shell."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import aisim_v41 as aisim
from aisim_v41.cli.main import app

STEP = ["--decode", "4x4k", "--engine", "sglang", "--method", "sol"]
PICTURES = {
    "layers": [], "memory": ["--engine", "sglang"], "tokens": ["--prefill", "4k"],
    "breakdown": STEP, "evidence": STEP, "timeline": STEP, "roofline": STEP, "methods": STEP,
    "tornado": STEP,
}  # fmt: skip


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def refused(*arguments: str) -> str:
    done = run(*arguments)
    assert isinstance(done.exception, aisim.AisimError), done.output
    return str(done.exception)


@pytest.mark.parametrize("what", PICTURES)
def test_every_picture_is_written(tmp_path, what: str):
    path = tmp_path / "picture.svg"
    done = run("draw", what, "--to", str(path), *PICTURES[what], "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["picture"] == what
    assert told["file"] == str(path)
    assert told["title"]
    assert "deepseek-v4.1-flash" in told["caption"] or what == "layers"
    assert path.read_text().startswith("<?xml")


def test_replay_on_and_off_are_two_bars(tmp_path):
    path = tmp_path / "picture.png"
    done = run("draw", "breakdown", "--to", str(path), "--prefill", "4k", "--method", "sol",
               "--decoder-replay", "both", "--json")  # fmt: skip
    caption = json.loads(done.output)["caption"]
    assert "replay on: " in caption
    assert "replay off: " in caption
    pair = run("draw", "memory", "--to", str(path), "--decoder-replay", "both")
    assert pair.exit_code == 0
    assert pair.output == f"{path}: What fills a GPU's memory\n"


def test_dark_pages_are_dark(tmp_path):
    pages = {}
    for name, more in (("light", []), ("dark", ["--dark"])):
        path = tmp_path / f"{name}.svg"
        assert run("draw", "layers", "--to", str(path), *more).exit_code == 0
        pages[name] = path.read_text()
    assert "#16181d" in pages["dark"]
    assert "#16181d" not in pages["light"]


def test_pictures_of_a_sweep(tmp_path):
    folder = tmp_path / "sweep"
    aisim.sweep(
        {
            "hardware": ["gb300", "h200"], "parallel": {"tp": 4}, "policy": "sglang",
            "method": "sol",
            "requests": {"kind": "decode", "new_tokens": 1, "prefix_tokens": [1024, 8192],
                         "count": [1, 16]},
        },
        folder,
    )  # fmt: skip
    path = tmp_path / "front.svg"
    done = run("draw", "front", "--of", str(folder), "--by", "hardware", "--to", str(path))
    assert done.exit_code == 0, done.output
    assert path.exists()
    assert "more than once" in refused("draw", "surface", "--of", str(folder), "--to", str(path))
    aisim.sweep(
        {
            "hardware": "gb300", "parallel": {"tp": 4}, "method": "sol",
            "requests": {"new_tokens": [1, 16, 256], "prefix_tokens": [0, 8192]},
        },
        tmp_path / "grid",
    )  # fmt: skip
    done = run("draw", "surface", "--of", str(tmp_path / "grid"), "--to", str(path), "--json")
    assert "method sol" in json.loads(done.output)["caption"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pie", "--to", "a.png"], "draw 'pie'"),
        (["layers", "--to", "a.bmp"], r".png, .svg, .pdf"),
        (["roofline", "--to", "a.png"], "no requests"),
        (["roofline", "--to", "a.png", "--prefill", "9", "--decoder-replay", "both"], "one step"),
        (["front", "--to", "a.png"], "--of: give the folder"),
        (["front", "--to", "a.png", "--of", "nowhere"], "nowhere"),
        (["measured", "--to", "a.png", "--by", "gpu", "--by", "class"], "one column"),
    ],
)
def test_bad_input_is_one_typed_error(tmp_path, monkeypatch, arguments: list[str], words: str):
    monkeypatch.chdir(tmp_path)
    assert words in refused("draw", *arguments)
    assert list(tmp_path.iterdir()) == []
