"""``aisim-v41 layers``: what each layer does and whose KV it reads."""

from __future__ import annotations

from dataclasses import asdict

from aisim_v41.cli.options import DEFAULT_MODEL, JsonOption, ModelOption
from aisim_v41.cli.output import print_json, print_table, print_text
from aisim_v41.model.description import Draft, Model
from aisim_v41.model.earlier import EarlierModel
from aisim_v41.model.load import load_model
from aisim_v41.plan.draft import block_layer


def layers(model: ModelOption = DEFAULT_MODEL, json: JsonOption = False) -> None:
    """Layer map: kind, ratio, KV owner, selection producer, candidate pool, Engram."""
    loaded = load_model(model)
    if isinstance(loaded, EarlierModel):
        _earlier(loaded, json=json)
        return
    rows = [
        {
            "layer": layer.index,
            "kind": str(layer.kind),
            "ratio": layer.ratio,
            "kv_owner": layer.kv_owner,
            "selection_producer": layer.selection_producer,
            "candidate_role": str(layer.candidate_role),
            "engram_module": layer.engram_module,
            "trimmed_by_replay": loaded.boundary is not None and layer.index > loaded.boundary,
        }
        for layer in loaded.layers
    ]
    if json:
        print_json(
            {
                "model": loaded.name,
                "revision": loaded.revision,
                "unknown_keys": list(loaded.unknown_keys),
                "layers": rows,
                "draft": asdict(loaded.draft) if loaded.draft is not None else None,
            }
        )
        return
    title = f"{loaded.name}, {loaded.revision}"
    print_table(
        title,
        ["layer", "kind", "ratio", "KV owner", "selection", "pool", "Engram", "trimmed by replay"],
        [
            (
                row["layer"], row["kind"], row["ratio"], row["kv_owner"],
                row["selection_producer"], row["candidate_role"], row["engram_module"],
                row["trimmed_by_replay"],
            )
            for row in rows
        ],
    )  # fmt: skip
    if loaded.draft is not None:
        print_text(_drafter(loaded, loaded.draft))
    if loaded.unknown_keys:
        print_text(f"config keys that change nothing modelled: {', '.join(loaded.unknown_keys)}")


def _drafter(model: Model, draft: Draft) -> str:
    """The draft blocks in one line."""
    first, last = block_layer(model, 0), block_layer(model, draft.blocks - 1)
    return (
        f"draft blocks, in reports as layers {first}-{last}: window_only, "
        f"{draft.experts.routed} experts, {draft.experts.top_k} a row, {draft.positions} "
        f"positions, taps at the inputs of layers {', '.join(map(str, draft.taps))}"
    )


def _earlier(model: EarlierModel, *, json: bool) -> None:
    facts = {
        "model": model.name,
        "layers": model.layers,
        "kv_bytes_per_token": float(model.kv_bytes_per_token),
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "source": model.source,
        "note": "for comparison between generations; its steps are not modelled",
    }
    if json:
        print_json(facts)
    else:
        print_text("\n".join(f"{name:<20} {value}" for name, value in facts.items()))
