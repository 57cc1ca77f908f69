"""Made-up rows with a known truth, for the tests of the numerics."""

from __future__ import annotations

import numpy as np

from aisim_v41.evidence.forwards.samples import NO_ORDER, Floats, Samples, Terms

NAMES = ("projection", "experts", "attention")


def terms(host_s: Floats, device_s: Floats) -> Terms:
    return Terms(
        names=NAMES, families=len(NAMES), host_s=host_s, prefills=np.zeros(len(host_s)),
        device_s=device_s,
    )  # fmt: skip


def drawn_terms(rows: int, seed: int, host_s: float = 0.0) -> Terms:
    """Device terms of 0.1 to 30 ms each."""
    draw = np.random.default_rng(seed)
    return terms(np.full(rows, host_s), 10.0 ** draw.uniform(-4.0, -1.5, (rows, len(NAMES))))


def samples(
    made_of: Terms,
    seconds: Floats,
    *,
    features: Floats | None = None,
    run: Floats | None = None,
    order: Floats | None = None,
    site: Floats | None = None,
) -> Samples:
    rows = len(seconds)
    if features is None:
        features = np.zeros((rows, 5))
        features[:, :3] = np.log1p(1e5 * made_of.device_s)
    return Samples(
        terms=made_of,
        features=features,
        seconds=seconds,
        site=np.arange(rows) if site is None else np.asarray(site, np.intp),
        run=np.zeros(rows, np.intp) if run is None else np.asarray(run, np.intp),
        order=np.full(rows, NO_ORDER) if order is None else order,
        repeats=np.ones(rows),
        spread=np.full(rows, np.nan),
    )
