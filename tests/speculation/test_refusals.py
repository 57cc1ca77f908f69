"""What is no acceptance, list, seed or plan is refused; custom rules keep their warnings."""

from __future__ import annotations

import numpy as np
import pytest

import aisim_v41 as aisim
from aisim_v41.reports.speculate import speculate, speculate_by_batch
from aisim_v41.speculation.acceptance import Acceptance, drawn_emitted
from aisim_v41.speculation.schedule import confident

HALF = Acceptance((0.5,))
GB300 = aisim.load_hardware("gb300")
WRONG = {
    "by_position = None": lambda: Acceptance(None),
    "by_position = 0.5": lambda: Acceptance(0.5),
    "by_position = '0.5'": lambda: Acceptance("0.5"),
    "by_position holds True": lambda: Acceptance((True,)),
    "by_position holds nan": lambda: Acceptance((float("nan"),)),
    "survival = None": lambda: Acceptance.of_survival(None),
    "accept_length = '3.5'": lambda: Acceptance.of_accept_length("3.5", 5),
    "accept_length = True": lambda: Acceptance.simulated(True, 5),
    "seed = -1": lambda: drawn_emitted([HALF], [1], seed=-1),
    "seed = None": lambda: drawn_emitted([HALF], [1], seed=None),
    "requests = None": lambda: drawn_emitted(None, [1], seed=0),
    r"requests = \[0\.5\]": lambda: drawn_emitted([0.5], [1], seed=0),
    "1 requests and None": lambda: drawn_emitted([HALF], None, seed=0),
    r"requests = \['x'\]": lambda: confident(["x"], [1.0]),
    "curve": lambda: confident([HALF], None),
    "positive times": lambda: confident([HALF], ["1.0"]),
    "plan = None": lambda: speculate(None, GB300, HALF),
    "plan = 'x'": lambda: speculate_by_batch("x", GB300, HALF, [1]),
}


@pytest.mark.parametrize(("reason", "call"), WRONG.items(), ids=WRONG)
def test_arguments_of_the_wrong_kind(reason: str, call):
    with pytest.raises(aisim.InvalidInputError, match=reason):
        call()


def test_probabilities_of_numpy_are_numbers():
    by_position = np.array([0.9, 0.5])
    assert Acceptance(by_position) == Acceptance((0.9, 0.5))
    assert type(Acceptance(by_position).by_position[0]) is float
    assert Acceptance.of_survival(np.array([0.9, 0.45])).by_position == (0.9, 0.5)


def test_custom_rules_warn_beside_the_schedules():
    """Adaptive verification on ROCm, which vLLM refuses: said where a schedule needs it."""
    model = aisim.load_model("deepseek-v4.1-flash")
    decode = [aisim.Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=2)]
    free = aisim.policy("custom", base="vllm", draft_tokens=2, kv_layout="vllm_packed")
    plan = aisim.Plan(model, decode, aisim.Parallel(tp=8), free)
    rocm, likely = aisim.load_hardware("mi300x"), Acceptance.constant(0.8, 2)
    fixed = speculate(plan, rocm, likely, "sol", schedules=["fixed"])
    assert not any("ragged" in line for line in fixed.warnings)
    chosen = speculate(plan, rocm, likely, "sol")
    (line,) = (line for line in chosen.warnings if "ragged" in line)
    assert "this GPU (gfx942)" in line
    assert chosen.to_dict()["warnings"] == list(chosen.warnings)
    assert f"warning: {line}" in chosen.text()
    batches = speculate_by_batch(plan, rocm, likely, [1, 2], "sol").text()
    assert batches.count(f"warning: {line}") == 1
