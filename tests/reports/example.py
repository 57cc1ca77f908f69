"""A small report made by hand: nine steps, one flagged, one that could not be predicted."""

from __future__ import annotations

from aisim_v41.reports.fpm import Band, FpmReport, Point, Regime, Term, coverage_of
from aisim_v41.reports.fpm_errors import LeftOut, error_row


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
    point("verify", 1, 6, 1024, 90.0),
)
PREDICTED = (101.0, 108.0, 99.0, 117.0, 81.0, 83.0, 82.0, 131.0, 88.0)


def site_left_out():
    return tuple(
        LeftOut(point=place, by="site", predicted_ms=made, low_ms=made - 4.0, high_ms=made + 5.0)
        for place, made in enumerate(PREDICTED)
    )


def report(**changes) -> FpmReport:
    prefill = [p.measured_ms for p in POINTS[:4]]
    given = {
        "gpu": "gb300",
        "identity": {"engine": "sglang", "settings": {"tp": 4, "dspark": False}},
        "slug": "sglang-tp4-replay_off-eager-sync_wall-0123456789abcdef",
        "regime": "",
        "statuses": {"ok": 9, "out_of_memory": 1},
        "aggregates": 2,
        "runs": {"one": 8, "two": 1},
        "points": POINTS,
        "coverage": coverage_of(POINTS),
        "left_out": site_left_out(),
        "errors": (
            error_row("site", "prefill", "fpm", prefill, PREDICTED[:4],
                      [(made - 4.0, made + 5.0) for made in PREDICTED[:4]]),
            error_row("site", "prefill", "constant", prefill, [110.0] * 4),
        ),
        "terms": (
            Term(name="host", share=0.9, prior=1.0, coefficient=1.05),
            Term(name="hbm", share=0.1, prior=1.3, coefficient=1.21),
        ),
        "noise": {"repeat": 0.004, "run": 0.031},
        "regimes": (Regime(name="", points=9, median_ms=100.0),),
        "band": Band(level=0.9, held={"site": 0.875, "run": None}),
        "licence": "Apache-2.0",
        "notice": "Copyright somebody",
        "sources": ({"id": "campaign", "path": "steps.csv"},),
    }  # fmt: skip
    return FpmReport(**{**given, **changes})
