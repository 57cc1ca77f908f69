"""``encode`` from the shell, and image tokens in a step."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from aisim_v41.cli.main import app
from aisim_v41.errors import InvalidInputError

run = CliRunner()


def document(*arguments: str) -> dict:
    result = run.invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_images_of_different_sizes() -> None:
    found = document("encode", "--gpu", "gb300", "--image", "1024x768", "--image", "2x448x448")
    assert [image["tokens"] for image in found["images"]] == [496, 184, 184]
    assert found["tokens"] == 864
    assert found["memory"]["embedding_bytes"] == 864 * 5120 * 2
    assert found["bounds_ms"]["graph"] < found["latency_ms"]


def test_text_names_tokens_time_and_bytes() -> None:
    arguments = ["encode", "--image", "1302x1302", "--tp", "4", "--ranks", "tensor"]
    result = run.invoke(app, [*arguments, "--send", "network"], catch_exceptions=False)
    assert "994 tokens of 1 images on 4 GPUs (tensor, one_by_one, eager)" in result.stdout
    assert "101.8 us (network)" in result.stdout
    assert "vision.blocks.attn.core" in result.stdout


def test_image_tokens_in_a_step() -> None:
    found = document("estimate", "--engine", "sglang", "--decoder-replay", "off",
                     "--prefill", "2x1200:994")  # fmt: skip
    assert found["requests"] == ["Request(new_tokens=1200, count=2, image_tokens=994)"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["encode"], "no images"),
        (["encode", "--image", "1024"], "WIDTHxHEIGHT"),
        (["encode", "--image", "axb"], "must be a whole number"),
        (["encode", "--image", "1x2x3x4"], "WIDTHxHEIGHT"),
        (["encode", "--image", "1000000x2x3"], "at most 100000 images"),
        (["estimate", "--decode", "8x8k:994"], "[COUNTx]CONTEXT"),
        (["estimate", "--prefill", "10:11"], "Request.image_tokens = 11"),
        (["estimate", "--prefill", "10:x"], "must be a whole number"),
    ],
)
def test_what_cannot_be_read(arguments: list[str], part: str) -> None:
    result = run.invoke(app, arguments)
    assert isinstance(result.exception, InvalidInputError)
    assert part in str(result.exception)
