"""A ledger as text: what changed in the policy, and of how many requests the numbers are."""

from __future__ import annotations

from oracle.draw import REAL

from aisim_v41.model.load import load_model
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request


def text(*requests: Request, runtime: RuntimePolicy | None = None) -> list[str]:
    plan = Plan(load_model(REAL), requests, policy=runtime or policy("paper"))
    return ledger(plan).to_text().splitlines()


def test_numbers_of_a_group_are_those_of_each() -> None:
    alone = Request(new_tokens=1, prefix_tokens=4096, kind="decode")
    many = Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=32)
    one, group = text(alone)[1:], text(many)[1:]
    assert "each" not in "".join(one)
    assert group[0].endswith("; below, each of the 32")
    assert all(" each rows " in line or " each reads " in line or " each writes " in line
               for line in group[1:])  # fmt: skip
    assert [line.replace(" each ", " ") for line in group[1:]] == one[1:]


def test_changed_fields_are_one_line() -> None:
    request = Request(new_tokens=8)
    assert [line for line in text(request) if line.startswith("changed")] == []
    runtime = policy("sglang", decoder_replay=True, page_tokens=64, wo_a="checkpoint")
    changed = "changed: decoder_replay=on, page_tokens=64, wo_a=checkpoint"
    assert text(request, runtime=runtime)[1] == changed


def test_a_policy_that_is_no_preset() -> None:
    (line,) = changed_lines(RuntimePolicy(name="mine", revision="1"))
    assert "'mine' is no preset" in line
