"""Builds, identities and steps that the tests of this folder share."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from aisim_v41 import Parallel, Request, load_hardware, load_model, policy
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.model.description import Model
from aisim_v41.plan.policy import RuntimePolicy


@cache
def model() -> Model:
    found = load_model("deepseek-v4.1-flash")
    assert isinstance(found, Model)
    return found


def build(**changes: Any) -> Build:
    fields: dict[str, Any] = {
        "checkpoint": "someone/model@1",
        "engine": "sglang",
        "engine_build": "not known",
        "image": "none",
        "topology": "one node, 4 GPUs",
        "modality": "text",
        "timer": "sync_wall",
        "settings": {"page_tokens": 256, "share": 0.5, "custom_all_reduce": False},
    }
    return Build(**fields | changes)


def eager(engine: str = "sglang", **overrides: Any) -> RuntimePolicy:
    fields = {"prefill_execution": "eager", "decode_execution": "eager"}
    return policy(engine, **fields | overrides)


def identity(gpu: str = "gb300", tp: int = 4, **changes: Any) -> Identity:
    """The identity of an eager run; ``changes`` name fields of the build or of the policy."""
    own = {name: changes.pop(name) for name in tuple(changes) if name in Build.__annotations__}
    return Identity.of(model(), load_hardware(gpu), Parallel(tp=tp), eager(**changes), build(**own))


lengths = st.integers(0, 1 << 20)
requests = st.one_of(
    st.builds(
        lambda new, prefix, more, count, first: Request(
            new_tokens=new,
            prefix_tokens=prefix,
            prompt_tokens=new + prefix + more,
            count=count,
            window_start=min(first, prefix),
        ),
        lengths, lengths, st.sampled_from([0, 0, 7]), st.integers(1, 3), st.sampled_from([0, 5]),
    ),
    st.builds(
        lambda prefix, window, logprobs: Request(
            new_tokens=3, prefix_tokens=prefix, window=window, prompt_logprobs=logprobs
        ),
        st.integers(1, 1 << 20), st.sampled_from(["cached", "missing", "snapshot"]), st.booleans(),
    ),
    st.builds(
        lambda new, rows: Request(new_tokens=new, image_tokens=min(new, rows)), lengths, lengths
    ),
    st.builds(lambda prefix: Request(new_tokens=1, prefix_tokens=prefix, kind="decode"), lengths),
    st.builds(
        lambda new, prefix: Request(new_tokens=new, prefix_tokens=prefix, kind="verify"),
        st.integers(1, 8), lengths,
    ),
)  # fmt: skip
ragged = st.lists(requests, min_size=1, max_size=5).map(tuple)
totals = st.builds(
    lambda prefills, new, past, decodes, kv, spread: StepTotals(
        prefill_requests=prefills,
        prefill_tokens=prefills + new if prefills else 0,
        prefill_kv_tokens=past if prefills else 0,
        prefill_length_variance=spread if prefills > 1 else None,
        decode_requests=decodes,
        decode_kv_tokens=kv if decodes else 0,
    ),
    st.integers(0, 3), lengths, lengths, st.integers(1, 3), lengths, st.floats(0, 1e9),
)  # fmt: skip
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
milliseconds = st.floats(1e-3, 1e6)


@st.composite
def records(draw: st.DrawFn, run: str | None = None) -> StepRecord:
    step = draw(st.one_of(ragged, totals))
    common: dict[str, Any] = {
        "step": step,
        "run": run or draw(words.filter(bool)),
        "order": draw(st.none() | st.integers(0, 1 << 30)),
        **{name: draw(words) for name in ("regime", "point", "source", "note")},
    }
    status = draw(st.sampled_from(["ok", "ok", "ok", "out_of_memory", "missing"]))
    if status != "ok":
        return StepRecord(status=status, **common)  # type: ignore[arg-type]
    samples = tuple(draw(st.lists(milliseconds, max_size=4)))
    if not samples:
        return StepRecord(latency_ms=draw(milliseconds), samples=draw(st.integers(1, 9)), **common)
    return StepRecord(latency_ms=sorted(samples)[len(samples) // 2], samples_ms=samples, **common)
