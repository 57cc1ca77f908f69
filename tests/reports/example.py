"""A small report made by hand: nine steps, one flagged, one that could not be predicted."""

from __future__ import annotations

import aisim_v41 as aisim
from aisim_v41.reports.fpm.report import (
    Band,
    FpmReport,
    LeftOutPoint,
    Point,
    Regime,
    Term,
    coverage_of,
)
from aisim_v41.validation.forwards import LeftOut, left_out_errors


def point(
    phase, requests, new_tokens, prefix_tokens, measured_ms, *, run="one", order=None, flag=""
):
    return Point(
        phase=phase, requests=requests, new_tokens=new_tokens, prefix_tokens=prefix_tokens,
        run=run, order=order, regime="", point=f"{phase}-{new_tokens}-{prefix_tokens:g}",
        source="steps.csv", measured_ms=measured_ms, samples=10, flag=flag,
    )  # fmt: skip


POINTS = (
    point("prefill", 1, 64, 0, 100.0, order=0),
    point("prefill", 1, 128, 0, 110.0, order=1),
    point("prefill", 1, 64, 0, 102.0, run="two", order=0),
    point("prefill", 2, 256, 512, 120.0, order=2),
    point("decode", 1, 1, 1024, 80.0, order=3),
    point("decode", 1, 1, 2048, 84.0, order=4),
    point("decode", 2, 2, 1024, 400.0, order=5, flag="5 times its neighbours"),
    point("mixed", 3, 66, 700.0, 130.0),
    point("decode", 1, 6, 1024, 90.0),
)
PREDICTED = (101.0, 108.0, 99.0, 117.0, 81.0, 83.0, 82.0, 131.0, 88.0)


def site_left_out():
    return tuple(
        LeftOutPoint(
            point=place, by="site", predicted_ms=made, low_ms=made - 4.0, high_ms=made + 5.0
        )
        for place, made in enumerate(PREDICTED)
    )


def errors():
    """Of the first four points, two of which are one site."""
    prefills = [(64, 0), (128, 0), (64, 0), (128, 512)]
    return left_out_errors(
        LeftOut(
            steps=[[aisim.Request(new_tokens=n, prefix_tokens=p)] for n, p in prefills],
            measured_s=[p.measured_ms / 1e3 for p in POINTS[:4]],
            groups=["a", "b", "a", "c"],
            predicted_s=[made / 1e3 for made in PREDICTED[:4]],
            low_s=[(made - 4.0) / 1e3 for made in PREDICTED[:4]],
            high_s=[(made + 5.0) / 1e3 for made in PREDICTED[:4]],
        )
    )


def report(**changes) -> FpmReport:
    given = {
        "gpu": "gb300",
        "identity": {
            "build": {"engine": "sglang", "image": "none", "settings": {"dspark": False}},
            "execution": {"gpu": "gb300", "tp": 4},
        },
        "slug": "sglang-tp4-replay_off-eager-sync_wall-0123456789abcdef",
        "regime": "all",
        "statuses": {"ok": 9, "out_of_memory": 1},
        "aggregates": 2,
        "runs": {"one": 8, "two": 1},
        "points": POINTS,
        "thinned": len(POINTS),
        "coverage": coverage_of(POINTS),
        "left_out": site_left_out(),
        "errors": {"site": errors()},
        "composition": "overlapped",
        "terms": (
            Term(name="floor", share=0.02, prior=None, factor=None),
            Term(name="host", share=0.98, prior=1.0, factor=1.05),
            Term(name="experts", share=0.1, prior=1.0, factor=1.21),
            Term(name="experts link", share=0.0002, prior=0.223, factor=0.223),
        ),
        "noise": {"repeats of a point": 0.004, "between runs": 0.031},
        "regimes": (Regime(name="all", points=9, low_ms=80.0, high_ms=400.0),),
        "band": Band(level=0.9, held={"site": 0.875}),
        "licence": "Apache-2.0",
        "notice": "Copyright somebody",
        "sources": ({"file": "steps.csv", "commit": "abc"},),
    }  # fmt: skip
    return FpmReport(**{**given, **changes})
