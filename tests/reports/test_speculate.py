"""Schedules side by side, as frame, data and text."""

from __future__ import annotations

import json

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.reports.speculate import SCHEDULES, speculate, speculate_by_batch
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.outcomes import Speculation

MODEL = aisim.load_model("deepseek-v4.1-flash")
GPU = aisim.load_hardware("b200")
ACCEPTANCE = Acceptance((0.9, 0.8, 0.7, 0.6, 0.5))
WIDTH = 100


def plan(count: int = 4, **changes) -> aisim.Plan:
    one = aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=count)
    return aisim.Plan(MODEL, [one], aisim.Parallel(tp=4), aisim.policy("sglang", **changes))


def test_one_row_a_schedule_with_step_and_output_rate_apart():
    frame = speculate(plan(), GPU, ACCEPTANCE).to_frame().set_index("schedule")
    assert list(frame.index) == [
        "off", "fixed 0", "fixed 1", "fixed 2", "fixed 3", "fixed 4", "fixed 5",
        "by-batch", "confident", "profiled", "cap-accept",
    ]  # fmt: skip
    assert frame.steps_per_s.to_numpy() == pytest.approx(1e3 / frame.step_ms.to_numpy())
    assert frame.tokens_per_s.to_numpy() == pytest.approx(
        (frame.tokens_per_step * frame.steps_per_s).to_numpy()
    )
    assert frame.tokens_per_s_request.to_numpy() == pytest.approx(frame.tokens_per_s.to_numpy() / 4)
    assert frame.mean_interval_ms.to_numpy() == pytest.approx(
        1e3 / frame.tokens_per_s_request.to_numpy()
    )
    assert frame.gain["off"] == 1.0
    assert frame.gain["fixed 0"] < 1.0 < frame.gain["fixed 5"]
    assert frame.waiting_share["off"] == 1.0
    assert frame.waiting_share["fixed 5"] == pytest.approx(1 / 3.5776)
    assert list(frame.largest_burst)[:7] == [1, 1, 2, 3, 4, 5, 6]


def test_schedules_are_those_asked_for_in_their_order():
    report = speculate(plan(), GPU, ACCEPTANCE, schedules=("confident", "off"))
    assert [outcome.schedule for outcome in report.outcomes] == ["confident", "off"]
    assert report.best.schedule == "confident"
    alone = Speculation(plan(), GPU, ACCEPTANCE).confident
    assert report.outcomes[0] == alone
    with pytest.raises(InvalidInputError, match="must be a list of names"):
        speculate(plan(), GPU, ACCEPTANCE, schedules=3)
    for tokens in (-1, 0.5, "8k"):
        with pytest.raises(InvalidInputError, match="prefix_tokens"):
            speculate(plan(), GPU, ACCEPTANCE, schedules=("profiled",), profile_tokens=tokens)
    with pytest.raises(OutOfRangeError, match="context of 1048576"):
        speculate(plan(), GPU, ACCEPTANCE, schedules=("profiled",), profile_tokens=1 << 21)
    for schedules in ((), ("confident", "always"), [None]):
        with pytest.raises(InvalidInputError, match="cap-accept"):
            speculate(plan(), GPU, ACCEPTANCE, schedules=schedules)


def test_data_is_plain_and_whole():
    document = speculate(plan(), GPU, ACCEPTANCE, "sol").to_dict()
    again = json.loads(json.dumps(document))
    assert again == document
    (request,) = document["requests"]
    assert request["accept_length"] == pytest.approx(3.5776)
    for row in document["schedules"]:
        assert len(row["drafts"]) == 4
        assert sum(row["bursts"]) == pytest.approx(1.0)
        mean = sum(size * share for size, share in enumerate(row["bursts"], 1))
        assert row["tokens_per_step"] == pytest.approx(4 * mean)


def test_acceptance_beyond_the_drafts_is_not_used():
    report = speculate(plan(draft_tokens=2), GPU, ACCEPTANCE)
    assert [o.schedule for o in report.outcomes][1:4] == ["fixed 0", "fixed 1", "fixed 2"]
    assert report.outcomes[3].emitted == pytest.approx(4 * 2.62)
    told = report.to_dict()["requests"][0]
    assert told["acceptance"] == [0.9, 0.8]


def test_texts_fit_a_terminal_and_say_what_was_asked():
    report = speculate(plan(verify_graph_sizes="every"), GPU, ACCEPTANCE)
    told = report.text()
    assert max(map(len, told.splitlines())) <= WIDTH
    for part in ("4 x b200", "verify_graph_sizes", "0.90 0.80 0.70", "likely", *SCHEDULES):
        assert part in told
    assert "at least" in speculate(plan(), GPU, ACCEPTANCE, "sol").text()


def test_batches_are_reports_of_their_size():
    compared = speculate_by_batch(plan(), GPU, ACCEPTANCE, [1, 64])
    frame = compared.to_frame()
    assert list(frame.requests) == [1, 1, 1, 64, 64, 64]
    alone = speculate(plan(64), GPU, ACCEPTANCE, schedules=("off", "by-batch", "confident"))
    assert compared.reports[1].outcomes == alone.outcomes
    assert max(map(len, compared.text().splitlines())) <= WIDTH
    assert compared.to_dict()[1]["requests"][0]["count"] == 64
    for batches in (3, None):
        with pytest.raises(InvalidInputError, match="must be a list of numbers"):
            speculate_by_batch(plan(), GPU, ACCEPTANCE, batches)
    for count in (-1, "a", 1.5):
        with pytest.raises(InvalidInputError, match=r"Request\.count"):
            speculate_by_batch(plan(), GPU, ACCEPTANCE, [count])
    for requests, batches in ((plan().requests, []), (plan().requests * 2, [1])):
        asked = aisim.Plan(MODEL, requests, policy=aisim.policy("sglang"))
        with pytest.raises(InvalidInputError, match="one kind of request"):
            speculate_by_batch(asked, GPU, ACCEPTANCE, batches)


def test_what_the_engine_refuses_is_left_out_and_said():
    """vLLM's adaptive verification: no ROCm. Asked for by name, it is an error."""
    gpu = aisim.load_hardware("mi355x")
    one = aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=4)
    asked = aisim.Plan(MODEL, [one], aisim.Parallel(tp=4), aisim.policy("vllm"))
    report = speculate(asked, gpu, ACCEPTANCE)
    assert [name for name, _ in report.refused] == ["confident", "profiled", "cap-accept"]
    assert report.outcomes[-1].schedule == "by-batch"
    assert "confident is not among them: ragged verify lengths" in report.text()
    assert "gfx950" in report.to_dict()["refused"]["profiled"]
    assert " - " in speculate_by_batch(asked, gpu, ACCEPTANCE, [4]).text()
    with pytest.raises(UnsupportedPlanError, match="gfx950"):
        speculate(asked, gpu, ACCEPTANCE, schedules=("confident",))
