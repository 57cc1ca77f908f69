"""The layer map and the token map, by what they draw."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.model.layers import LayerKind
from aisim_v41.pictures import layer_map, token_map
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.layers import KINDS, LANES, layer_text
from tests.pictures.reading import colour, key, spans


def cells(ax) -> dict[str, object]:
    return {patch.get_gid(): patch for patch in ax.patches if patch.get_gid()}


def test_every_layer_has_its_cells(model):
    ax = layer_map(model)
    found = cells(ax)
    for layer in model.layers:
        assert colour(found[f"kind {layer.index}"]) == KINDS[layer.kind]
        assert (f"KV owner {layer.index}" in found) == (layer.kv_owner is not None)
        assert (f"Engram {layer.index}" in found) == (layer.engram_module is not None)
        assert (f"draft taps {layer.index}" in found) == (layer.index in model.draft.taps)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(LANES)


def test_numbers_are_those_of_the_layer_that_is_followed(model):
    ax = layer_map(model)
    told = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text()
            for t in ax.texts if not t.get_gid()}  # fmt: skip
    for layer in model.layers:
        if layer.kv_owner is not None:
            assert told[layer.index, LANES.index("KV owner")] == str(layer.kv_owner)
            assert told[layer.index, LANES.index("selection")] == str(layer.selection_producer)


def test_owners_are_framed_and_share_their_colour_with_followers(model):
    found = cells(layer_map(model))
    for layer in model.layers:
        if layer.kv_owner is not None:
            cell = found[f"KV owner {layer.index}"]
            assert (cell.get_linewidth() > 0) == layer.owns_kv
            assert colour(cell) == colour(found[f"KV owner {layer.kv_owner}"])
    owners = {colour(found[f"KV owner {layer.index}"]) for layer in model.kv_owners}
    assert len(owners) == len(model.kv_owners)


def test_the_replay_cut_follows_the_last_owner(model):
    (cut,) = layer_map(model).get_lines()[-1:]
    assert list(cut.get_xdata()) == [model.boundary + 0.5] * 2


def test_a_layer_can_be_marked_and_is_described(model):
    ax = layer_map(model, layer=30)
    (mark,) = (patch for patch in ax.patches if patch.get_gid() == "marked")
    assert (mark.get_x(), mark.get_width()) == (29.5, 1.0)
    said = caption_of(ax)
    assert "Layer 30 (reuse, ratio 1): reads the KV of layer 20, follows the selection" in said
    told = {n: layer_text(model, n) for n in range(len(model.layers))}
    assert "owns its KV" in told[20]
    assert "publishes the candidate pool" in told[20]
    assert "sliding window alone, adds Engram module 0." in told[1]
    assert [n for n, text in told.items() if "replay" in text] == list(range(21, 40))
    for wrong in (40, -1, 2.0, True):
        with pytest.raises(aisim.InvalidInputError, match="has layers 0 to 39"):
            layer_map(model, layer=wrong)


def runs(ax, mark: str) -> dict[str, tuple[float, float]]:
    return {
        one.get_gid(): spans(one)[0]
        for one in ax.collections
        if (one.get_gid() or "").startswith(mark)
    }


def test_rows_of_every_layer_are_those_of_the_ledger(plans):
    plan = plans["prefill"]
    ax = token_map(plan)
    found = runs(ax, "run")
    frame = aisim.ledger(plan).to_frame()
    assert len(found) == len(plan.model.layers)
    for row in frame.itertuples():
        assert found[f"run 0 {row.layer}"] == (row.first_row, row.query_rows)
    assert f"{aisim.ledger(plan).token_layers:,} token-layers" in ax.get_title("left")
    assert found["run 0 39"][1] < found["run 0 20"][1]


def test_chunks_stand_side_by_side(model):
    policy = aisim.policy("sglang", decoder_replay=True)
    chunks = [
        aisim.Plan(model, [one], policy=policy) for one in aisim.chunked(4096, chunk_tokens=1024)
    ]
    ax = token_map(chunks)
    first_layer = [runs(ax, "run")[f"run {step} 0"] for step in range(4)]
    assert first_layer == [(1024.0 * step, 1024.0) for step in range(4)]
    assert ax.get_xlim() == (0, 4096)
    whole = sum(aisim.ledger(plan).token_layers for plan in chunks)
    assert f"{whole:,} token-layers in 4 steps" in ax.get_title("left")


def test_rows_with_their_kv_alone_are_faint(model):
    """The boundary layer projects the KV of every row, also where the tail alone queries."""
    policy = aisim.policy("paper", decoder_replay=True)
    plan = aisim.Plan(model, [aisim.Request(new_tokens=8192)], policy=policy)
    row = aisim.ledger(plan).to_frame().set_index("layer").loc[model.boundary]
    ax = token_map(plan)
    faint = runs(ax, "kv")
    if row["kv_rows"] == row["query_rows"]:
        assert faint == {}
    else:
        start, length = faint[f"kv 0 {model.boundary}"]
        assert start + length == row["first_row"]
        assert length == row["kv_rows"] - row["query_rows"]


def test_faces(model, plans):
    assert "fb2764a5" in caption_of(layer_map(model))
    ax = token_map(plans["prefill"])
    assert ax.get_xlabel() == "position in the sequence [tokens]"
    assert "1 prefill of 8,192 tokens" in caption_of(ax)
    assert key(ax)[:4] == [str(kind) for kind in LayerKind]


def test_refusals(model, plans):
    with pytest.raises(aisim.InvalidInputError, match="must be a Model"):
        layer_map("deepseek-v4.1-flash")
    with pytest.raises(aisim.InvalidInputError, match="no plans"):
        token_map([])
    with pytest.raises(aisim.InvalidInputError, match="request = 1: step 0 has requests 0 to 0"):
        token_map(plans["prefill"], request=1)
    with pytest.raises(aisim.InvalidInputError, match="must be a Plan"):
        token_map([3])
