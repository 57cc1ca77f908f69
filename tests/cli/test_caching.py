"""``aisim-v41 prefix | restore | tiers | transfer``."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import inside


def answer(*arguments: str):
    done = inside(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_hit_under_each_engine():
    hit = ("prefix", "--prompt", "8256", "--found", "8193")
    folded = ("--set", "encoder_replay=folded")
    assert answer(*hit)["hit_tokens"] == 0
    assert answer(*hit, *folded)["rows"] == 64 + 128
    assert answer(*hit, "--engine", "paper")["replay_start"] == 8065
    found = answer(*hit, "--window", "8193", "--snapshot", "--engine", "trtllm")
    assert (found["hit_tokens"], found["window"]) == (8193, "replayed")  # 63 tokens are left
    shown = inside(*hit, *folded).stdout
    assert "8,193 -> 8,192: whole pages of 256 tokens" in shown
    assert "replayed rows [8,064, 8,192)" in shown
    many = inside("prefix", "--prompt", "1m", "--engine", "vllm").stdout
    assert "128 steps in all" in many


def test_fetch_or_compute():
    asked = ("restore", "--prefix", "8k", "--prefix", "64k", "--method", "sol")
    disk = ("--way", "disk", "--gb-per-s", "7", "--start-us", "100")
    found = answer(*asked, *disk, "--set", "hit_page_tokens=256", "--break-even")
    assert [p["prefix_tokens"] for p in found["prefixes"]] == [8192, 65_536]
    replayed = found["prefixes"][1]["choices"][2]
    assert replayed["moved_bytes"] == 890 * 65_536
    assert replayed["transfer_ms"] == pytest.approx(890 * 65_536 / 7e6 + 0.1)
    assert set(found["break_even_tokens"]) == {"restore", "replay"}
    short, long = (rates["replay"] for rates in found["break_even_bytes_per_s"])
    assert short > long > 0
    shown = inside(*asked, *disk, "--break-even").stdout
    assert "is faster than recompute from" in shown
    assert "65,536 tokens: restore from 0." in shown
    assert max(map(len, shown.splitlines()[4:])) <= 100
    waits = answer(*asked, *disk, "--at-once")["prefixes"][0]["choices"][1]
    assert waits["exposed_ms"] == pytest.approx(waits["transfer_ms"])


def test_tiers_of_the_report():
    found = answer("tiers", "--turns-per-s", "20", "--store-gb", "4000")["tiers"]
    assert found[0]["tier"] == "GPU memory"
    assert {row["bytes_per_token"] for row in found[::2]} == {890}
    assert found[2]["lasts_s"] == pytest.approx(4000e9 / (890 * 2000 * 20))
    given = answer("tiers", "--window-gb", "100")["tiers"][1]
    assert given["tails"] == 100e9 // given["bytes_per_tail"]
    assert "host window pool" in inside("tiers").stdout
    small = answer("tiers", "--gpu", "h100", "--tp", "1")["tiers"]
    assert [row["tier"] for row in small] == ["host window pool", "store of entries"]


def test_a_hand_over():
    found = answer(
        "transfer", "--prompt", "8k", "--engine", "paper", "--tp", "4", "--to-tp", "8",
        "--method", "sol", "--image", "1024x768",
    )  # fmt: skip
    assert found["bytes_by_domain"]["entries"] == 890 * 8192
    assert (found["copies"], found["copies_a_link"]) == (8, 2)
    assert found["images"]["copy_bytes"] == 475 * 10_240
    shown = inside("transfer", "--prompt", "8k", "--method", "sol", "--image", "640x480").stdout
    assert "ms layer by layer" in shown
    assert "images: 192 rows" in shown


REFUSED = [
    (("prefix", "--prompt", "0"), "prompt_tokens"),
    (("prefix", "--prompt", "x"), "--prompt"),
    (("prefix", "--prompt", "8", "--decoder-replay", "both"), "on or off"),
    (("restore", "--prefix", "8k", "--way", "disk"), "--gb-per-s"),
    (("restore", "--prefix", "8k", "--way", "tape"), "must be one of"),
    (("restore", "--prefix", "8k", "--gb-per-s", "-1"), "bytes_per_s"),
    (("restore", "--prefix", "2m"), "context"),
    (("tiers", "--turns-per-s", "0"), "turns_per_s"),
    (("tiers", "--gpu", "rtx_4090", "--way", "host"), "memory_gb"),
    (("transfer", "--prompt", "8k", "--image", "12"), "WxH"),
    (("transfer", "--prompt", "8k", "--to-engine", "vllm"), "as they lie"),
    (("transfer", "--prompt", "8k", "--to-set", "page_tokens=64"), "no engine converts"),
    (("transfer", "--prompt", "8k", "--set", "encoder_replay=folded"), "separate prefill"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED)
def test_what_cannot_be_answered(arguments: tuple[str, ...], reason: str):
    done = inside(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert reason in done.stderr
