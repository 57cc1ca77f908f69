"""Memory and capacity of measured deployments, counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import aisim_v41 as aisim
from aisim_v41.units import GIB
from aisim_v41.validation.cases import Case
from aisim_v41.validation.sizes import counted


def value(model: aisim.Model, case: Case) -> float:
    size = counted(model, case)
    assert size is not None
    return size.value


def test_every_usable_size_has_a_figure(model: aisim.Model, cases: dict[str, Case]):
    sizes = [case for case in cases.values() if case.kind in ("memory", "capacity")]
    found = [case for case in sizes if case.usable == "zero_shot"]
    assert len(found) == 26
    for case in found:
        assert value(model, case) > 0


def test_parts_of_the_checkpoint_add_up(model: aisim.Model, cases: dict[str, Case]):
    parts = [n for n in cases if n.startswith("any-checkpoint-") and not n.endswith("total")]
    whole = value(model, cases["any-checkpoint-total"])
    assert len(parts) == 5
    assert sum(value(model, cases[name]) for name in parts) == pytest.approx(whole)


def test_index_scores_by_hand(model: aisim.Model, cases: dict[str, Case]):
    # rows x 2**20 keys x 2 bytes
    assert value(model, cases["any-indexer-logits-16384x1M"]) == 16384 * 2**20 * 2 / GIB


def test_runs_with_memory_beside_the_weights_hold_more(model: aisim.Model, cases: dict[str, Case]):
    for name in ("mi355-tp2dp2-weights-nontorch-hbm", "mi355-tp2dp2-weights-nontorch-host"):
        measured = cases[name].measured
        assert measured is not None
        assert 0.9 * measured < value(model, cases[name]) < measured


def test_a_pool_that_did_not_fit(model: aisim.Model, cases: dict[str, Case]):
    assert value(model, cases["mi300x-tp2-kv-pool-negative"]) < 0


def test_twice_the_pool_holds_about_twice_the_tokens(model: aisim.Model, cases: dict[str, Case]):
    case = cases["gb10-tp8-kv-tokens-300k"]
    assert case.workload.pool_gib is not None
    double = replace(case, workload=replace(case.workload, pool_gib=2 * case.workload.pool_gib))
    assert value(model, double) == pytest.approx(2 * value(model, case), rel=0.001)


def test_the_layout_is_named(model: aisim.Model, cases: dict[str, Case]):
    size = counted(model, cases["gb10-sglang-kv-tokens-7.2"])
    assert size is not None
    assert "rows of layout sglang_v4" in size.assumptions


def test_what_is_not_modelled_has_no_figure(model: aisim.Model, cases: dict[str, Case]):
    assert counted(model, cases["rtx5090-engram-host"]) is None
    assert counted(model, cases["gb200-sglang-swa-slots"]) is None
