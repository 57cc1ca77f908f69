"""Groups of kernels: what a profile that sorts by name makes of the model's kernels."""

from __future__ import annotations

from collections import defaultdict

import pytest

import aisim_v41 as aisim
from aisim_v41.estimators.compiled import CompiledSol
from aisim_v41.validation.groups import GROUPS, SORTED_BY_NAME, group_of, kernel_group


@pytest.fixture(scope="module")
def tasks(model: aisim.Model) -> dict[str, tuple[str, ...]]:
    """Kernels of a vLLM step by group."""
    compiled = CompiledSol(
        model,
        aisim.load_hardware("b200"),
        aisim.Parallel(tp=4),
        aisim.policy("vllm", speculation="dspark"),
    )
    found: dict[str, set[str]] = defaultdict(set)
    for task in compiled.tasks:
        found[kernel_group(task)].add(task.name)
    return {group: tuple(names) for group, names in found.items()}


def test_every_kernel_has_a_group(tasks: dict[str, tuple[str, ...]]):
    assert "other" not in tasks
    assert set(tasks) == {*SORTED_BY_NAME.values(), "comm"}


def test_products_are_dense_whoever_calls_them(tasks: dict[str, tuple[str, ...]]):
    assert {"shared_expert", "router", "engram_project", "output_head", "index_weights",
            "compress_project"} <= set(tasks["dense_gemm"])  # fmt: skip
    assert set(tasks["moe"]) == {"routed_experts", "draft_routed_experts"}
    assert set(tasks["engram"]) == {"engram_lookup", "engram_gate"}


def test_groups_of_elementary_operators_are_apart(model: aisim.Model):
    """Unfused, every operator is in the group that the list names, and in one only."""
    unfused = aisim.policy("vllm", fusion="elementary", speculation="dspark")
    compiled = CompiledSol(model, aisim.load_hardware("b200"), aisim.Parallel(tp=4), unfused)
    names = {*SORTED_BY_NAME.values(), "comm"}
    for task in compiled.tasks:
        holding = [
            name
            for name in names
            if (group := group_of("b200-prof", name)) is not None and group.holds(task)
        ]
        expected = "comm" if task.family.value == "collective" else SORTED_BY_NAME[task.replaces[0]]
        assert holding == [expected], task.name


@pytest.mark.parametrize("name", sorted({*SORTED_BY_NAME.values(), "comm"} & set(GROUPS)))
def test_what_is_certain_is_inside(model: aisim.Model, name: str):
    group = group_of("b200-prof", name)
    assert group is not None
    assert group.operators <= {*SORTED_BY_NAME, "all_reduce_attention", "all_reduce_experts"}
    assert all(SORTED_BY_NAME.get(operator, "comm") == name for operator in group.operators)


def test_other_sources_keep_their_own_lines():
    assert group_of("mi355-idx", "indexer") is GROUPS["indexer"]
    assert group_of("b200-prof", "sum") is None
    with pytest.raises(KeyError):
        group_of("b200-prof", "no_such_group")


def test_spans_around_modules_hold_their_sums(model: aisim.Model):
    compiled = CompiledSol(
        model, aisim.load_hardware("gb10"), aisim.Parallel(tp=4), aisim.policy("sglang")
    )
    held: dict[str, set[str]] = {}
    for name in ("moe", "attention_incl_indexer"):
        span, alone = group_of("gb10-res", name), GROUPS[name]
        assert span is not None
        assert alone is not None
        tasks = [task for task in compiled.tasks if span.holds(task)]
        assert all(span.holds(task) for task in compiled.tasks if alone.holds(task))
        held[name] = {op for task in tasks for op in task.replaces if op.startswith("all_reduce")}
        assert span.operators == alone.operators
    assert held == {
        "moe": {"all_reduce_experts"}, "attention_incl_indexer": {"all_reduce_attention"}
    }  # fmt: skip
