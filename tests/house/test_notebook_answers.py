"""The answers that notebooks begin with, against the library of today."""

from __future__ import annotations

from pathlib import Path

import nbformat

import aisim_v41 as aisim
from aisim_v41.reports.whatif import decode_ms, prompt_ms
from notebooks.run import notebooks

FOUR = aisim.Parallel(tp=4)
MODEL = aisim.load_model("deepseek-v4.1-flash")


def book(number: int) -> Path:
    return notebooks()[number - 1]


def answer(number: int) -> str:
    """The paragraph, on one line."""
    source = nbformat.read(book(number), as_version=4).cells[0].source
    return " ".join(source.split("**Answer.**")[1].split())


def printed(number: int) -> str:
    """What its cells print; that this is current is checked where they run."""
    cells = nbformat.read(book(number), as_version=4).cells
    return "".join(o.text for c in cells for o in c.get("outputs", []) if o.output_type == "stream")


def test_one_prefill():
    plan = aisim.Plan(
        MODEL,
        [aisim.Request(new_tokens=8192)],
        parallel=FOUR,
        policy=aisim.policy("sglang", decoder_replay=True),
    )
    found = aisim.estimate(plan, aisim.load_hardware("gb300"))
    assert f"About {found.latency_ms:.0f} ms" in answer(1)
    assert round(found.latency_s / found.kernels_s) == 3  # a third
    assert 9 <= found.latency_ms / found.sol_ms <= 11  # a tenth


def test_where_engram_tables_decide():
    def room(gpu: str, **changes: str) -> aisim.CapacityReport:
        policy = aisim.policy("sglang", **changes)
        return aisim.capacity(MODEL, aisim.load_hardware(gpu), parallel=FOUR, policy=policy)

    here, hosted = room("gb300"), room("gb300", engram_residency="host_sharded")
    assert f"{here.tokens / 1e6:.0f} million tokens" in answer(3)
    assert f"{hosted.tokens / here.tokens - 1:.0%}".replace("%", " %") in answer(3)
    assert "on 4 × H200" in answer(3)
    assert room("h200").failing == "Engram tables"
    assert room("h200", engram_residency="host_sharded").starts


def test_what_an_eager_chunk_takes():
    def chunk_ms(gpu: str, tokens: int) -> float:
        policy = aisim.policy(
            "custom", base="sglang", decoder_replay=True, prefill_execution="eager"
        )
        step = aisim.compile(MODEL, aisim.load_hardware(gpu), parallel=FOUR, policy=policy)
        return float(prompt_ms(step, [tokens], tokens)[0])

    for gpu, said in (("b200", "0.11 s"), ("gb200", "0.19 s"), ("gb300", "0.19 s")):
        assert f"{chunk_ms(gpu, 8192) / 1e3:.2f} s" == said
        assert said in answer(4)
        assert chunk_ms(gpu, 1024) == chunk_ms(gpu, 8192)
    assert chunk_ms("h200", 4096) < chunk_ms("h200", 8192)  # its kernels take longer than its host


def test_what_drafts_save():
    def intervals(speculation: str) -> list[float]:
        policy = aisim.policy("sglang", speculation=speculation)
        step = aisim.compile(MODEL, aisim.load_hardware("gb300"), parallel=FOUR, policy=policy)
        return list(decode_ms(step, [1, 2, 4, 8, 16, 32, 64, 128, 256], 8192))

    longer = [a / b for a, b in zip(intervals("dspark"), intervals("off"), strict=True)]
    assert f"a factor of {3.5 / longer[0]:.1f} for one request" in answer(5)
    assert f"of {3.5 / longer[-1]:.1f} for 256" in answer(5)
    assert f"{min(longer):.1f} to {max(longer):.1f} times" in answer(5)
    assert "from about 4 requests on" in answer(5)
    assert all(2.0 / ratio < 1.1 for ratio in longer[2:])
    assert 2.0 / longer[1] > 1.1


def test_what_twenty_steps_tell():
    said = answer(7)
    for line in printed(7).splitlines():
        for start in ("not seen: ", "measured again: ", "median error"):
            if line.startswith(start):
                error = line.split("median error ")[1].split(",")[0]
                assert error.replace("%", " %") in said
    assert ", interpolated" in printed(7)
