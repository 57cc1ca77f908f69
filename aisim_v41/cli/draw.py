"""``aisim-v41 draw``: a picture as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    CpOption,
    DecodeOption,
    DpOption,
    EngineOption,
    EpOption,
    GpuOption,
    JsonOption,
    ModelOption,
    PrefillOption,
    ReplayOption,
    SetOption,
    TpOption,
    VerifyOption,
    plans,
    policies,
    requests_from,
    step_model,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from aisim_v41.estimators.result import Estimate
    from aisim_v41.hardware import Hardware

Steps = Mapping[str, Plan]
"""Plans by the setting of decoder replay."""


def draw(
    what: Annotated[
        str,
        typer.Argument(
            help="layers, tokens, breakdown, evidence, timeline, roofline, methods, tornado, "
            "memory, measured, front or surface."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="A .png, .svg or .pdf file.")],
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    ep: EpOption = 1,
    dp: DpOption = 1,
    cp: CpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol, op or fpm.")] = "auto",
    of: Annotated[
        Path | None, typer.Option("--of", help="Folder of a sweep, for front and surface.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Column that makes groups: of front and measured; repeatable."),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="For a dark page.")] = False,
    json: JsonOption = False,
) -> None:
    """A picture of a model, a step, a deployment or a sweep, as a file (docs/pictures.md)."""
    from aisim_v41.pictures.canvas import caption_of, check_path, look, save

    check_path(to)
    known = {*_OF_STEPS, *_OF_FRAMES, "layers", "memory"}
    if what not in known:
        raise InvalidInputError(f"draw {what!r}; {nearest(what, known)}")
    with look("dark" if dark else "light"):
        if what == "layers":
            from aisim_v41.pictures import layer_map

            ax = layer_map(step_model(model))
        elif what == "memory":
            parallel = Parallel(tp=tp, ep=ep, dp=dp, cp=cp)
            ax = _memory(model, gpu, parallel, engine, decoder_replay, changes)
        elif what in _OF_FRAMES:
            ax = _OF_FRAMES[what](of, by or [])
        else:
            parallel = Parallel(tp=tp, ep=ep, dp=dp, cp=cp)
            requests = requests_from(prefill, decode, verify)
            steps = dict(plans(model, parallel, engine, decoder_replay, changes, requests))
            ax = _OF_STEPS[what](steps, load_hardware(gpu), method)
        title, caption = ax.get_title("left"), caption_of(ax)
        save(ax, to)
    _close(ax)
    if json:
        print_json({"picture": what, "file": str(to), "title": title, "caption": caption})
    else:
        print_text(f"{to}: {title}")


def _close(ax: Axes) -> None:
    from matplotlib import pyplot

    pyplot.close(ax.get_figure(root=True))


def _estimates(steps: Steps, hardware: Hardware, method: str) -> dict[str, Estimate]:
    from aisim_v41.estimators.entry import estimate

    return {
        f"replay {setting}": estimate(plan, hardware, method) for setting, plan in steps.items()
    }


def _one(steps: Steps) -> Plan:
    """The step of a picture that shows one."""
    if len(steps) != 1:
        raise InvalidInputError("--decoder-replay both: this picture shows one step; use on or off")
    return next(iter(steps.values()))


def _tokens(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.pictures import token_map

    return token_map(_one(steps))


def _breakdown(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.pictures import breakdown

    found = _estimates(steps, hardware, method)
    return breakdown(found if len(found) > 1 else list(found.values()))


def _evidence(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.pictures import breakdown

    found = _estimates(steps, hardware, method)
    return breakdown(found if len(found) > 1 else list(found.values()), by="source")


def _timeline(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.estimators.entry import estimate
    from aisim_v41.pictures import timeline

    return timeline(estimate(_one(steps), hardware, method))


def _roofline(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.estimators.entry import estimate
    from aisim_v41.pictures import roofline

    return roofline(estimate(_one(steps), hardware, method))


def _methods(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.estimators.compare import compare
    from aisim_v41.pictures import methods

    return methods(compare(_one(steps), hardware))


def _tornado(steps: Steps, hardware: Hardware, method: str) -> Axes:
    from aisim_v41.pictures import tornado
    from aisim_v41.reports.sensitivity import sensitivity

    return tornado(sensitivity(_one(steps), hardware, method=method))


def _memory(
    model: str,
    gpu: str,
    parallel: Parallel,
    engine: str,
    replay: str,
    changes: list[str] | None,
) -> Axes:
    from aisim_v41.memory.capacity import capacity
    from aisim_v41.pictures import capacity_bars, capacity_terms

    loaded, hardware = step_model(model), load_hardware(gpu)
    reports = {
        f"replay {setting}": capacity(loaded, hardware, parallel, chosen)
        for setting, chosen in policies(engine, replay, changes)
    }
    if len(reports) == 1:
        return capacity_terms(next(iter(reports.values())))
    return capacity_bars(reports)


def _sweep(of: Path | None) -> pd.DataFrame:
    from aisim_v41.sweeps.dataset import open_sweep

    if of is None:
        raise InvalidInputError("--of: give the folder of a sweep (aisim-v41 sweep)")
    return open_sweep(of).frame()


def _front(of: Path | None, by: list[str]) -> Axes:
    from aisim_v41.pictures import pareto

    return pareto(_sweep(of), by=by)


def _surface(of: Path | None, by: list[str]) -> Axes:
    from aisim_v41.pictures import surface

    frame = _sweep(of)
    every = ("count", "new_tokens", "prefix_tokens")
    sizes = [name for name in every if name in frame and frame[name].nunique() > 1]
    if len(sizes) != 2:
        raise InvalidInputError(
            "surface: two of count, new_tokens and prefix_tokens must vary in the sweep; "
            f"varying: {', '.join(sizes) or 'none'}"
        )
    return surface(frame, x=sizes[0], y=sizes[1])


def _measured(of: Path | None, by: list[str]) -> Axes:
    from aisim_v41.pictures import predictions
    from aisim_v41.validation.errors import run_error_table

    if len(by) > 1:
        raise InvalidInputError("--by: measured takes one column")
    return predictions(run_error_table().to_frame(), by=by[0] if by else "class")


_OF_STEPS: Mapping[str, Callable[[Steps, Hardware, str], Axes]] = {
    "tokens": _tokens,
    "breakdown": _breakdown,
    "evidence": _evidence,
    "timeline": _timeline,
    "roofline": _roofline,
    "methods": _methods,
    "tornado": _tornado,
}
_OF_FRAMES: Mapping[str, Callable[[Path | None, list[str]], Axes]] = {
    "front": _front,
    "surface": _surface,
    "measured": _measured,
}
