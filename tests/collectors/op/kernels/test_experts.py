"""Routed experts and the router: both ways against FP32, loads, blocks, padding."""

from __future__ import annotations

import json

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.errors import InputError, UnavailableError
from collectors.op.kernels.experts import HISTOGRAM_VARIABLE, routing
from collectors.op.kernels.experts_triton import blocks
from collectors.op.kinds.experts import slice_width
from collectors.op.kinds.registry import kind_of

SMALL = "routed_experts hidden=64 expert_width=128 experts_routed=8 experts_per_token=3"
CPU = torch.device("cpu")


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize(
    "text",
    [
        f"{SMALL} rows=1",
        f"{SMALL} rows=9 expert_load=balanced",
        f"{SMALL} rows=40 expert_load=power_law_1.2 tensor_parallel=2",
        f"{SMALL} rows=5 tensor_parallel=4 width_multiple=64",
        "router_select rows=5",
        "router_select rows=3 experts_routed=10 experts_per_token=4",
    ],
)
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize("load", ["uniform", "balanced", "power_law_1.01"])
def test_a_row_visits_different_experts(load: str):
    case = completed(f"{SMALL} rows=50 expert_load={load}")
    chosen, weights = routing(case, CPU)
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    assert torch.allclose(weights.sum(1), torch.tensor(1.5))
    again, _ = routing(case, CPU)
    assert torch.equal(chosen, again)


def test_loads_differ_as_they_say():
    def counts(load: str) -> list[int]:
        chosen, _ = routing(completed(f"{SMALL} rows=800 expert_load={load}"), CPU)
        return torch.bincount(chosen.flatten(), minlength=8).tolist()

    assert set(counts("balanced")) == {300}
    assert max(counts("uniform")) < 360
    steep = counts("power_law_1.2")
    assert steep[0] > 600 > 250 > steep[7]


def test_the_users_counts(tmp_path, monkeypatch: pytest.MonkeyPatch):
    case = completed(f"{SMALL} rows=400 expert_load=histogram")
    monkeypatch.delenv(HISTOGRAM_VARIABLE, raising=False)
    with pytest.raises(UnavailableError, match="needs"):
        routing(case, CPU)
    path = tmp_path / "counts.json"
    monkeypatch.setenv(HISTOGRAM_VARIABLE, str(path))
    for text, said in (("[1, 2]", "8 counts"), ("{", "not a JSON"), ("[0,0,0,0,0,0,0,0]", "must")):
        path.write_text(text)
        with pytest.raises(UnavailableError, match=said):
            routing(case, CPU)
    path.write_text(json.dumps([9, 9, 9, 9, 0, 0, 0, 0]))
    chosen, _ = routing(case, CPU)
    assert int(chosen.max()) < 4


def test_blocks_hold_every_visit_once_and_one_expert_each():
    chosen, _ = routing(completed(f"{SMALL} rows=21 expert_load=power_law_1.2"), CPU)
    order, expert, first, end = blocks(chosen, 8, 16)
    seen = []
    for block, (low, high) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        visits = order[low:high].tolist()
        assert all(int(chosen.flatten()[visit]) == int(expert[block]) for visit in visits)
        seen += visits
    assert sorted(seen) == list(range(63))


def test_slices_are_padded_as_asked():
    real = "routed_experts rows=1 hidden=5120 expert_width=2304 experts_routed=384"
    for tp, multiple, width in ((4, 32, 576), (4, 128, 640), (8, 32, 288), (8, 128, 384)):
        text = f"{real} experts_per_token=6 tensor_parallel={tp} width_multiple={multiple}"
        assert slice_width(completed(text)) == width
    with pytest.raises(InputError, match="do not divide"):
        slice_width(completed(f"{real} experts_per_token=6 tensor_parallel=5"))


def test_touched_experts_are_an_outcome():
    assert prepared(f"{SMALL} rows=1", "torch").outcome == {"touched": 3.0}
    assert prepared(f"{SMALL} rows=40", "torch").outcome == {"touched": 8.0}


def test_a_wrong_share_is_found():
    ready = prepared("router_select rows=4", "torch")
    inputs = inputs_of(ready)
    experts, weights = ready.run(*inputs)
    right = ready.reference(*inputs)
    assert ready.compare((experts, weights), right, inputs) is None
    assert "off by" in ready.compare((experts, weights * 1.01), right, inputs)
    assert "other experts" in ready.compare(((experts + 1) % 384, weights), right, inputs)


@pytest.mark.parametrize("text", [f"{SMALL} rows=40", "router_select rows=50"])
def test_memory_is_what_the_kind_says(text: str):
    case = completed(text)
    ready = prepared(text, "torch")
    inputs = inputs_of(ready)
    answer = ready.run(*inputs)
    held = memory_of(inputs) + memory_of(answer if isinstance(answer, tuple) else (answer,))
    assert 0.95 * held <= kind_of(case).input_bytes(case) <= 1.5 * held
