"""The table of collected kernels has a place for every kind, size and option."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.tables import FAMILIES
from collectors.case import Case
from collectors.op.kinds.registry import KINDS
from collectors.op.planning import AXES, _any_place
from collectors.op.shapes import lines_of, read_config
from collectors.op.value import _known

FAMILY = FAMILIES["v41_kernels"]
COLUMNS = {column.name: column for column in FAMILY.columns}
TIMED_WITH = ("execution", "cache_state", "timer")


def test_every_kind_is_an_operator_of_the_table():
    assert set(FAMILY.operators) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_sizes_and_options_have_columns(name: str):
    kind = KINDS[name]
    sizes = {rule.name for rule in kind.sizes}
    outcomes = set(FAMILY.operators[name]) - sizes
    assert sizes <= set(FAMILY.operators[name])
    assert outcomes <= {"touched"}
    for rule in kind.sizes:
        assert (COLUMNS[rule.name].kind == "whole") == rule.whole
        assert COLUMNS[rule.name].highest >= rule.highest
    for option, words in kind.options.items():
        column = COLUMNS[option]
        assert column.kind == "text"
        assert column.words is None or set(words) <= set(column.words)


MODEL = aisim.load_model("deepseek-v4.1-flash")
STEPS = {
    "decode": [aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32)],
    "prefill": [aisim.Request(new_tokens=8192)],
    "chunk": [aisim.Request(new_tokens=2048, prefix_tokens=30000)],
}


def missed(engine: str, tp: int) -> list[Case]:
    found = []
    for step in STEPS.values():
        plan = aisim.Plan(MODEL, step, parallel=aisim.Parallel(tp=tp), policy=aisim.policy(engine))
        frame = aisim.coverage(plan, aisim.load_hardware("gb300"))
        found += [Case.from_text(text) for text in frame["collector_case"] if text]
    return found


@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm", "atom"])
@pytest.mark.parametrize("tp", [1, 4, 8])
def test_what_coverage_misses_can_be_timed(engine: str, tp: int):
    """Every case is one of ours, and its fixed sizes are those that a plan makes of the config."""
    cases = missed(engine, tp)
    assert len(cases) > 30
    planned = {
        _without_axes(KINDS[line.base.operator].complete(_any_place(line)))
        for words in ("sglang", "vllm")
        for line in lines_of(read_config(), engine=words, tp=tp)
    }
    assert {_without_axes(_known(case)) for case in cases} - planned == set()


def _without_axes(case: Case) -> tuple[str, tuple[tuple[str, float], ...]]:
    fixed = {name: value for name, value in case.sizes.items() if name not in AXES}
    return case.operator, tuple(sorted(fixed.items()))
