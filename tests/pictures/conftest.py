"""Steps that pictures are drawn of, and figures that are closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import pytest

import aisim_v41 as aisim

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="session")
def model():
    return aisim.load_model("deepseek-v4.1-flash")


@pytest.fixture(scope="session")
def gb300():
    return aisim.load_hardware("gb300")


@pytest.fixture(scope="session")
def plans(model) -> dict[str, aisim.Plan]:
    """A prefill with decoder replay, a decode and a verifying step that drafts."""
    tp4 = aisim.Parallel(tp=4)
    decode = aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32)
    verify = aisim.Request(new_tokens=6, prefix_tokens=32768, kind="verify", count=8)
    return {
        "prefill": aisim.Plan(
            model,
            [aisim.Request(new_tokens=8192)],
            tp4,
            aisim.policy("sglang", decoder_replay=True),
        ),
        "decode": aisim.Plan(model, [decode], tp4, aisim.policy("sglang")),
        "verify": aisim.Plan(model, [verify], tp4, aisim.policy("sglang", speculation="dspark")),
    }


@pytest.fixture(scope="session")
def estimates(plans, gb300) -> dict[str, aisim.Estimate]:
    return {name: aisim.estimate(plan, gb300) for name, plan in plans.items()}
