from __future__ import annotations

import pytest

from aisim_v41.model.description import Model
from aisim_v41.model.layers import CandidateRole, LayerKind


def test_kind_counts_of_the_official_model(model: Model) -> None:
    counts = {kind: model.count(kind) for kind in LayerKind}
    assert counts == {
        LayerKind.WINDOW_ONLY: 2,
        LayerKind.FULL: 4,
        LayerKind.REINDEX: 4,
        LayerKind.REUSE: 30,
    }


def test_owner_and_selection_of_layer_29_differ(model: Model) -> None:
    layer = model.layers[29]
    assert (layer.kind, layer.kv_owner, layer.selection_producer) == (LayerKind.REUSE, 20, 28)


@pytest.mark.parametrize(
    ("index", "kind", "ratio", "owner", "producer"),
    [  # model-facts §3, one row of its table each
        (0, LayerKind.WINDOW_ONLY, 0, None, None),
        (2, LayerKind.FULL, 2, 2, 2),
        (7, LayerKind.REUSE, 2, 2, 2),
        (14, LayerKind.FULL, 2, 14, 14),
        (19, LayerKind.REUSE, 2, 14, 14),
        (20, LayerKind.FULL, 1, 20, 20),
        (23, LayerKind.REUSE, 1, 20, 20),
        (24, LayerKind.REINDEX, 1, 20, 24),
        (39, LayerKind.REUSE, 1, 20, 36),
    ],
)
def test_roles_of_the_official_model(
    model: Model,
    index: int,
    kind: LayerKind,
    ratio: int,
    owner: int | None,
    producer: int | None,
) -> None:
    layer = model.layers[index]
    assert (layer.index, layer.kind, layer.ratio) == (index, kind, ratio)
    assert (layer.kv_owner, layer.selection_producer) == (owner, producer)


def test_the_last_three_ratios_belong_to_the_draft(model: Model) -> None:
    assert len(model.layers) == 40
    assert model.layers[-1].ratio == 1


def test_pool_is_made_at_20_and_used_by_the_reindex_layers(model: Model) -> None:
    roles = {layer.index: layer.candidate_role for layer in model.layers}
    assert [i for i, role in roles.items() if role is CandidateRole.SOURCE] == [20]
    assert [i for i, role in roles.items() if role is CandidateRole.USER] == [24, 28, 32, 36]


def test_engram_modules_and_boundary(model: Model) -> None:
    modules = {layer.index: layer.engram_module for layer in model.layers}
    assert {i: m for i, m in modules.items() if m is not None} == {1: 0, 14: 1}
    assert [owner.index for owner in model.kv_owners] == [2, 8, 14, 20]
    assert model.boundary == 20
