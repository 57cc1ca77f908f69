"""What each layer is, and which tokens it runs: the layer map and the token map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Model
from aisim_v41.model.layers import CandidateRole, Layer, LayerKind
from aisim_v41.pictures import canvas
from aisim_v41.pictures.palette import FAMILIES, NEUTRAL, ink_on, nth
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.words import plan_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LANES = ("kind", "KV owner", "selection", "candidate pool", "Engram", "draft taps")
"""Rows of the layer map, from above."""
KINDS = {
    LayerKind.WINDOW_ONLY: NEUTRAL,
    LayerKind.FULL: FAMILIES["experts"],
    LayerKind.REINDEX: FAMILIES["indexer"],
    LayerKind.REUSE: FAMILIES["projection"],
}
"""One colour a kind of layer."""
_POOL = {CandidateRole.SOURCE: FAMILIES["ends"], CandidateRole.USER: FAMILIES["indexer"]}
_FAINT = 0.35
"""Opacity of rows that only have their KV projected."""
_MARK = 0.3
"""Opacity of the stripe behind a marked layer."""
_NARROW = 0.02
"""Share of a sequence below which only its end, a window before the rows, is shown."""
_SHADES = (1.0, 0.72)
"""Opacity of steps in turn."""
_BESIDE = 0.45
"""Half the width of a cell; a layer is 1 wide."""


def layer_map(model: Model, ax: Axes | None = None, *, layer: int | None = None) -> Axes:
    """Layers across; kind, KV owner, selection, candidate pool, Engram and draft taps downwards.

    A cell carries the number of the layer that it follows, in that layer's colour; a frame marks
    the layers that own or produce. The dashed line is the replay cut: to its right a prefill under
    decoder replay runs its tail alone.

    Args:
        model: from `aisim_v41.load_model`.
        ax: where to draw; a new figure where left out.
        layer: one to mark, and to describe below.

    Raises:
        InvalidInputError: not a model whose layers are known, or no such layer.
        MissingProfileError: matplotlib is not installed.
    """
    if not isinstance(model, Model):
        raise InvalidInputError(f"model = {model!r}: must be a Model, not {type(model).__name__}")
    if layer is not None and (type(layer) is not int or not 0 <= layer < len(model.layers)):
        raise InvalidInputError(
            f"layer = {layer!r}: {model.name} has layers 0 to {len(model.layers) - 1}"
        )
    ax = canvas.axes(ax, 13.0, 3.6)
    owners = {layer.index: nth(place) for place, layer in enumerate(model.kv_owners)}
    taps = () if model.draft is None else model.draft.taps
    for one in model.layers:
        for lane, (text, colour, owns) in enumerate(_cells(one, owners, taps)):
            if colour:
                _cell(ax, one.index, lane, text, colour, owns=owns)
    if layer is not None:
        ax.axvspan(layer - 0.5, layer + 0.5, color=NEUTRAL, alpha=_MARK, zorder=0, gid="marked")
    for kind, colour in KINDS.items():
        ax.plot([], [], "s", color=colour, label=f"{kind} ({model.count(kind)})")
    if model.boundary is not None:
        ax.axvline(model.boundary + 0.5, color=NEUTRAL, linewidth=1.2, linestyle="--")
        ax.annotate(
            "replay cut: to the right, tail rows only", (model.boundary + 0.5, -0.62),
            xytext=(4, 0), textcoords="offset points", fontsize=canvas.SMALL, va="center",
        )  # fmt: skip
    ax.set_xlim(-0.7, len(model.layers) - 0.3)
    ax.set_ylim(len(LANES) - 0.45, -0.95)
    ax.set_yticks(range(len(LANES)), LANES)
    ax.set_xticks(range(0, len(model.layers), 2))
    ax.set_xlabel("layer")
    ax.legend(
        fontsize=canvas.PLAIN - 1, frameon=False, ncols=len(KINDS), loc="lower right",
        bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2,
    )  # fmt: skip
    canvas.finish(
        ax,
        title=f"{model.name}: what each layer does",
        caption=f"From the model's config ({model.revision[:12]}). Numbers: the layer whose KV or "
        "top-k selection is used; framed where a layer owns or makes it. Pool: "
        "S publishes candidate blocks, U score inside them. Engram: module of the n-gram "
        "memory. Taps feed the drafter."
        + ("" if layer is None else f"\n{layer_text(model, layer)}"),
    )
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    return ax


def layer_text(model: Model, layer: int) -> str:
    """What one layer does, in a sentence.

    >>> from aisim_v41 import load_model
    >>> layer_text(load_model("deepseek-v4.1-flash"), 24)  # doctest: +NORMALIZE_WHITESPACE
    'Layer 24 (reindex, ratio 1): reads the KV of layer 20, scores its keys anew and makes its own
    selection inside the candidate pool; runs tail rows alone under decoder replay.'
    """
    one = model.layers[layer]
    if one.kv_owner is None:
        does = ["attends to its sliding window alone"]
    elif one.owns_kv:
        does = ["compresses and owns its KV", "scores its keys and makes a selection"]
    else:
        does = [f"reads the KV of layer {one.kv_owner}"]
        does.append(
            "scores its keys anew and makes its own selection"
            if one.runs_indexer
            else f"follows the selection of layer {one.selection_producer}"
        )
    if one.candidate_role is CandidateRole.USER:
        does[-1] += " inside the candidate pool"
    if one.candidate_role is CandidateRole.SOURCE:
        does.append("publishes the candidate pool")
    if one.engram_module is not None:
        does.append(f"adds Engram module {one.engram_module}")
    late = model.boundary is not None and layer > model.boundary
    replay = "; runs tail rows alone under decoder replay" if late else ""
    ratio = f", ratio {one.ratio}" if one.ratio else ""
    return f"Layer {layer} ({one.kind}{ratio}): {', '.join(does)}{replay}."


def _cells(
    layer: Layer, owners: dict[int, str], taps: Sequence[int]
) -> list[tuple[str, str, bool]]:
    """Text, colour and frame of each lane of a layer; no colour where it has none."""
    owner, producer = layer.kv_owner, layer.selection_producer
    colour = "" if owner is None else owners[owner]
    return [
        ("", KINDS[layer.kind], False),
        ("" if owner is None else str(owner), colour, layer.owns_kv),
        ("" if producer is None else str(producer), colour, layer.runs_indexer),
        (
            {CandidateRole.SOURCE: "S", CandidateRole.USER: "U"}.get(layer.candidate_role, ""),
            _POOL.get(layer.candidate_role, ""),
            layer.candidate_role is CandidateRole.SOURCE,
        ),
        (
            "" if layer.engram_module is None else str(layer.engram_module),
            "" if layer.engram_module is None else FAMILIES["engram"],
            False,
        ),
        ("", NEUTRAL if layer.index in taps else "", False),
    ]


def _cell(ax: Axes, across: int, down: int, text: str, colour: str, *, owns: bool) -> None:
    from matplotlib.patches import Rectangle

    edge: dict[str, Any] = {"edgecolor": ax.yaxis.label.get_color(), "linewidth": 1.6}
    ax.add_patch(
        Rectangle(
            (across - _BESIDE, down - 0.38),
            2 * _BESIDE,
            0.76,
            facecolor=colour,
            **(edge if owns else {"linewidth": 0}),
            gid=f"{LANES[down]} {across}",
        )
    )
    if text:
        ax.text(
            across, down, text, ha="center", va="center", fontsize=canvas.SMALL,
            color=ink_on(colour),
        )  # fmt: skip


def token_map(
    plans: Plan | Ledger | Sequence[Plan | Ledger], ax: Axes | None = None, *, request: int = 0
) -> Axes:
    """Positions of one request across, layers downwards: which rows every layer runs.

    Several plans are steps of one prompt, such as its chunks, one after the other.

    Args:
        plans: steps, or their ledgers.
        ax: where to draw; a new figure where left out.
        request: which group of requests of each step.

    Raises:
        InvalidInputError: no plan, one without such a request, or a request that runs no rows.
        MissingProfileError: matplotlib is not installed.
    """
    steps = [plans] if not isinstance(plans, Iterable) else list(plans)
    if not steps:
        raise InvalidInputError("token_map: no plans; give one, or the steps of a prompt")
    counted = [step if isinstance(step, Ledger) else ledger(step) for step in steps]
    for place, one in enumerate(counted):
        if type(request) is not int or not 0 <= request < len(one.plan.requests):
            raise InvalidInputError(
                f"token_map: request = {request!r}: step {place} has requests 0 to "
                f"{len(one.plan.requests) - 1}"
            )
    layers = len(counted[0].plan.model.layers)
    lines = [_lines_of(one, request, layers) for one in counted]
    rows = sum(int(table["query_rows"].sum()) for table in lines)
    if not rows:
        raise InvalidInputError(f"token_map: request {request} runs no rows")
    ax = canvas.axes(ax, 9.0, 5.6)
    alone = [_rows_of_layer(ax, line, step) for step, table in enumerate(lines)
             for line in table.itertuples()]  # fmt: skip
    for kind, colour in KINDS.items():
        ax.barh([0], [0], color=colour, label=str(kind))
    if any(alone):
        ax.barh([0], [0], color=NEUTRAL, alpha=_FAINT, label="window KV alone")
    first = min(int(table["first_row"].min()) for table in lines)
    end = max(int(table["end_row"].max()) for table in lines)
    near = end - first < _NARROW * end
    ax.set_xlim(max(0, first - counted[0].plan.model.attention.window) if near else 0, end)
    ax.set_ylim(layers - 0.4, -0.6)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_xlabel("position in the sequence [tokens]")
    ax.set_ylabel("layer")
    ax.legend(fontsize=canvas.PLAIN - 1, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    plan = counted[0].plan
    one_step = f"; step: {plan_text(plan).partition('; step: ')[2]}" if len(counted) == 1 else ""
    return canvas.finish(
        ax,
        title=f"Rows that each layer runs: {rows:,} token-layers"
        + (f" in {len(counted)} steps" if len(counted) > 1 else ""),
        caption=f"{plan_text(plan).partition('; step: ')[0]}{one_step}. Exact counts of request "
        f"{request}; steps alternate in shade.",
    )


def _lines_of(counted: Ledger, request: int, layers: int) -> pd.DataFrame:
    """Rows of a request by layer; those of ranks that share its rows together."""
    frame = counted.to_frame()
    frame = frame[(frame["request"] == request) & (frame["layer"] < layers)]
    summed = frame.groupby(["forward", "layer"], as_index=False).agg(
        kind=("kind", "first"), first_row=("first_row", "min"), end_row=("end_row", "max"),
        query_rows=("query_rows", "sum"), kv_rows=("kv_rows", "sum"), count=("count", "max"),
    )  # fmt: skip
    return summed[summed["count"] > 0]


def _rows_of_layer(ax: Axes, line: Any, step: int) -> bool:
    """Rows that one layer runs in one step, and before them those whose KV alone it projects.

    Returns:
        Whether there are such.
    """
    colour, shade = KINDS[LayerKind(line.kind)], _SHADES[step % len(_SHADES)]
    low = line.layer - 0.42
    run = line.end_row - line.first_row
    first_kv = line.end_row - line.kv_rows // line.count
    if run > 0:
        ax.broken_barh(
            [(line.first_row, run)], (low, 0.84), facecolor=colour, alpha=shade, linewidth=0,
            gid=f"run {step} {line.layer}",
        )  # fmt: skip
    if first_kv < line.first_row:
        ax.broken_barh(
            [(first_kv, line.first_row - first_kv)], (low, 0.84), facecolor=colour,
            alpha=_FAINT * shade, linewidth=0, gid=f"kv {step} {line.layer}",
        )  # fmt: skip
    return bool(first_kv < line.first_row)
