"""The pictures of docs/pictures.md.

``python -m tests.pictures.gallery`` draws them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import aisim_v41 as aisim
from aisim_v41 import pictures
from aisim_v41.reports.sensitivity import sensitivity
from aisim_v41.validation.cases import load_cases
from aisim_v41.validation.errors import USABLE, run_error_table

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DIGITS = 4
"""Digits of a number that must agree: more may differ between processors."""
DOTS_PER_INCH = 90
KERNELS = ("b200-prof", "gb10-moe", "mi355-moe")
"""Sources of steps that report groups of kernels."""
Draw = Callable[[], Axes]


@lru_cache
def setting() -> tuple[aisim.Model, aisim.Hardware, aisim.Parallel]:
    return (
        aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300"),
        aisim.Parallel(tp=4),
    )  # fmt: skip


def plan(request: aisim.Request, **fields) -> aisim.Plan:
    model, _, parallel = setting()
    return aisim.Plan(model, [request], parallel, aisim.policy("sglang", **fields))


@lru_cache
def decode() -> aisim.Estimate:
    request = aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32)
    return aisim.estimate(plan(request), setting()[1])


@lru_cache
def verify() -> aisim.Estimate:
    request = aisim.Request(new_tokens=6, prefix_tokens=32768, kind="verify", count=32)
    return aisim.estimate(plan(request, speculation="dspark"), setting()[1])


@lru_cache
def prefill() -> aisim.Estimate:
    chosen = plan(aisim.Request(new_tokens=2048), prefill_execution="full_graph")
    return aisim.estimate(chosen, setting()[1])


def chunks() -> Axes:
    steps = aisim.chunked(8192, chunk_tokens=2048)
    return pictures.token_map([plan(step, decoder_replay=True) for step in steps])


def deployments() -> Axes:
    model, _, parallel = setting()
    settings = {
        "gb300": ("gb300", {}),
        "h200": ("h200", {}),
        "h200, tables on hosts": ("h200", {"engram_residency": "host_sharded"}),
    }
    return pictures.capacity_bars(
        {
            name: aisim.capacity(
                model, aisim.load_hardware(gpu), parallel, aisim.policy("sglang", **fields)
            )
            for name, (gpu, fields) in settings.items()
        }
    )


def terms() -> Axes:
    model, gpu, parallel = setting()
    return pictures.capacity_terms(aisim.capacity(model, gpu, parallel, aisim.policy("sglang")))


def front() -> Axes:
    found = aisim.sweep(
        {
            "hardware": ["gb300", "h200"], "parallel": {"tp": [4, 8]}, "policy": "sglang",
            "requests": {"kind": "decode", "new_tokens": 1, "prefix_tokens": 8192,
                         "count": [1, 4, 16, 64, 256, 512]},
            "memory": True,
        }
    )  # fmt: skip
    return pictures.pareto(found.frame(), by=["hardware", "tp"], label="count")


def surface() -> Axes:
    model, gpu, parallel = setting()
    step = aisim.compile(
        model, gpu, parallel=parallel,
        policy=aisim.policy("sglang", prefill_execution="full_graph"),
    )  # fmt: skip
    sizes = [(n, c) for n in (64, 256, 1024, 4096, 16384) for c in (0, 8192, 65536, 262144)]
    frame = pd.DataFrame(sizes, columns=["new_tokens", "prefix_tokens"])
    return pictures.surface(step.sweep(frame), x="new_tokens")


def measured() -> Axes:
    steps = [
        case
        for case in load_cases()
        if case.usable == USABLE and case.workload.kind == "step" and case.source not in KERNELS
    ]
    frame = run_error_table(cases=steps).to_frame()
    return pictures.predictions(frame[frame["class"] == "step"], by="gpu")


GALLERY: dict[str, Draw] = {
    "layer_map": lambda: pictures.layer_map(setting()[0]),
    "token_map": chunks,
    "breakdown": lambda: pictures.breakdown([prefill(), decode(), verify()]),
    "evidence": lambda: pictures.breakdown([prefill(), decode(), verify()], by="source",
                                           unit="percent"),
    "timeline": lambda: pictures.timeline(decode(), layers=(20, 21)),
    "roofline": lambda: pictures.roofline(decode()),
    "methods": lambda: pictures.methods(aisim.compare(decode().plan, decode().hardware)),
    "tornado": lambda: pictures.tornado(
        sensitivity(decode().plan, decode().hardware, method="sol")
    ),
    "capacity_terms": terms,
    "capacity_bars": deployments,
    "pareto": front,
    "surface": surface,
    "predictions": measured,
}  # fmt: skip


def shown(ax: Axes) -> Iterator[str]:
    """What a picture shows, as text: words, and artists with their data and colours."""
    yield ax.get_title("left")
    yield from (axis.get_label_text() for axis in (ax.xaxis, ax.yaxis))
    yield from (text.get_text() for text in ax.texts)
    yield from (tick.get_text() for tick in ax.get_yticklabels())
    for patch in ax.patches:
        if isinstance(patch, Rectangle):
            yield numbers(patch.get_bbox().bounds, patch.get_facecolor())
    for line in ax.get_lines():
        yield numbers(np.ravel(line.get_xydata()), line.get_color())
    for one in ax.collections:
        yield from of_collection(one)


def of_collection(one: Collection) -> Iterator[str]:
    if one.get_array() is not None:
        yield numbers(np.ma.filled(one.get_array(), -1.0).ravel(), "#000000")
    elif len(one.get_offsets()) > 1 or np.any(one.get_offsets()):
        yield numbers(np.ravel(one.get_offsets()), one.get_facecolor()[0])
    else:
        for path in one.get_paths():
            yield numbers(path.get_extents().bounds, [*one.get_facecolor(), "#000000"][0])


def numbers(values, colour) -> str:
    told = " ".join(f"{value:.{DIGITS - 1}e}" for value in np.atleast_1d(values))
    return f"{to_hex(colour)} {told}"


def digest(ax: Axes) -> str:
    return hashlib.sha256("\n".join(shown(ax)).encode()).hexdigest()


def draw_all() -> None:
    mpl.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    for name, draw in GALLERY.items():
        with pictures.look("light"):
            ax = draw()
            figure = ax.get_figure(root=True)
            figure.savefig(
                FOLDER / f"{name}.png", dpi=DOTS_PER_INCH, metadata={"Description": digest(ax)}
            )
        pyplot.close("all")


if __name__ == "__main__":
    draw_all()
