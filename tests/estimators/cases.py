"""Models, GPUs, policies and requests that the tests of this folder share."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from aisim_v41.estimators.compiled import CompiledSol, compiled_sol
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.sol import Sol
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

GPUS = ("gb300", "h200", "mi355x")
"""Blackwell, a GPU without 4-bit units, another vendor."""

POLICIES = {
    "paper": policy("paper"),
    "paper, replay": policy("paper", decoder_replay=True),
    "paper, elementary": policy("paper", fusion="elementary", reindex_scoring="dense"),
    "sglang": policy("sglang"),
    "sglang, replay": policy("sglang", decoder_replay=True),
    "vllm": policy("vllm"),
    "vllm, boundary writes KV alone": policy("vllm", decoder_replay=True, boundary_layer="kv_only"),
    "atom, replay": policy("atom", decoder_replay=True),
    "trtllm, replay": policy("trtllm", decoder_replay=True),
    "separate encoder replay": policy("custom", base="sglang", encoder_replay="separate"),
    "shortcut, rectangle": policy("vllm", index_shortcut="decode", score_shape="rectangle"),
    "fewest experts": policy("trtllm", expert_routing="fewest"),
    "sglang, drafting": policy("sglang", decoder_replay=True, speculation="dspark"),
    "vllm, drafting": policy("vllm", speculation="dspark", expert_routing="independent"),
    "sglang, tables on hosts": policy("sglang", engram_residency="host_sharded"),
    "vllm, one host copy": policy("vllm", engram_residency="host_shared", engram_hit_share=0.25),
}

APART = tuple(name for name in POLICIES if name not in ("atom, replay", "shortcut, rectangle"))
"""Policies under which what one request runs does not depend on the others of the step."""

MONOTONE = ("paper, elementary", "vllm", "shortcut, rectangle", "vllm, drafting")
"""Policies without a cut, which hides rows from what an uncut extend sees, and without a candidate
pool, whose size falls by 7 when a new block begins."""


@cache
def model() -> Model:
    return load_model("deepseek-v4.1-flash")


@cache
def gpu(name: str = "gb300") -> Hardware:
    return load_hardware(name)


def step(runtime: RuntimePolicy, *, tp: int = 4, on: str = "gb300") -> CompiledSol:
    return compiled_sol(model(), gpu(on), Parallel(tp=tp), runtime)


def estimated(
    requests: list[Request], runtime: RuntimePolicy, *, tp: int = 4, on: str = "gb300"
) -> Estimate:
    return Sol().estimate(Plan(model(), requests, Parallel(tp=tp), runtime), gpu(on))


LENGTHS = (0, 1, 2, 63, 127, 128, 129, 512, 513, 1025, 1026, 4095, 16_384, 16_385)
lengths = st.one_of(st.sampled_from(LENGTHS), st.integers(0, 60_000))


@st.composite
def any_request(draw: st.DrawFn) -> Request:
    """Prefills of any part of a prompt, decodes and verify steps, several alike."""
    prefix, new = draw(lengths), draw(lengths)
    kind = draw(st.sampled_from(("prefill", "prefill", "decode", "verify")))
    count = draw(st.sampled_from((0, 1, 1, 1, 2, 7, 300)))
    if kind != "prefill":
        most = 1 if kind == "decode" else 6
        return Request(new_tokens=min(new, most), prefix_tokens=prefix, kind=kind, count=count)
    more = draw(st.sampled_from((0, 0, 1, 5000)))
    return Request(
        new_tokens=new, prefix_tokens=prefix, count=count, prompt_tokens=prefix + new + more
    )


steps = st.lists(any_request(), max_size=4)
policies = st.sampled_from(sorted(POLICIES))
policies_apart = st.sampled_from(APART)
