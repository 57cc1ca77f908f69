"""Which law is fitted to which rows, with what is free and what is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from aisim_v41.evidence.fit.samples import Samples
from aisim_v41.evidence.laws import FloatArray, LawKind, law_seconds
from aisim_v41.evidence.robust import Errors, Free, errors, fit

Bands = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """A law with its parameters and all its errors.

    Attributes:
        engine: whose law it is; ``any`` for a library.
        key, kind, parameters, note, penalty, reach: as in a calibration file.
        within: errors over the rows that were fitted.
        left_out: errors of rows whose group had no part in the fit.
        bands: errors left out, by size.
        extra: errors of other ways to predict the same rows, by what they are.
        samples: rows behind it; None for a law that follows from another.
        hull: sizes of those rows, for a law that follows from another.
    """

    engine: str
    key: str
    kind: LawKind
    parameters: Mapping[str, float]
    within: Errors
    left_out: Errors
    bands: Mapping[str, Errors] = field(default_factory=dict)
    extra: Mapping[str, Errors] = field(default_factory=dict)
    samples: Samples | None = None
    hull: Mapping[str, FloatArray] = field(default_factory=dict)
    penalty: float = 0.0
    note: str = ""
    reach: str = ""
    origin: str = "calibrated"
    sources: tuple[str, ...] = ()

    def seconds(self, features: Mapping[str, FloatArray]) -> FloatArray:
        """Seconds for the features of the law's kind."""
        return law_seconds(self.kind, features, self.parameters)


def fitted(
    engine: str,
    key: str,
    kind: LawKind,
    samples: Samples,
    free: Mapping[str, Free],
    fixed: Mapping[str, float],
    *,
    bands: Bands,
    penalty: float = 0.0,
    note: str = "",
) -> Fitted:
    """Fit a law, then fit it again without each group and predict that group."""

    def solve(rows: Samples) -> dict[str, float]:
        return fit(
            lambda values: law_seconds(kind, rows.features, values), rows.seconds, free, fixed
        )

    def predict(rows: Samples, parameters: Mapping[str, float]) -> FloatArray:
        return law_seconds(kind, rows.features, parameters)

    return assessed(
        engine, key, kind, samples, solve, predict, bands=bands, penalty=penalty, note=note
    )


def assessed(
    engine: str,
    key: str,
    kind: LawKind,
    samples: Samples,
    solve: Callable[[Samples], dict[str, float]],
    predict: Callable[[Samples, Mapping[str, float]], FloatArray],
    *,
    bands: Bands,
    penalty: float,
    note: str,
) -> Fitted:
    """Parameters from all rows, and errors of each group from the rest."""
    parameters = solve(samples)
    unseen = np.empty(len(samples))
    for group in np.unique(samples.group):
        out = samples.group == group
        kept = parameters if out.all() else solve(samples.where(~out))
        unseen[out] = predict(samples.where(out), kept)
    return Fitted(
        engine=engine,
        key=key,
        kind=kind,
        parameters=parameters,
        within=errors(predict(samples, parameters), samples.seconds),
        left_out=errors(unseen, samples.seconds),
        bands=by_band(unseen, samples, bands),
        samples=samples,
        penalty=penalty,
        note=note,
        sources=samples.sources,
    )


def by_band(predicted: FloatArray, samples: Samples, bands: Bands) -> dict[str, Errors]:
    """Errors between neighbouring edges of the samples' scale."""
    found: dict[str, Errors] = {}
    edges = (-np.inf, *bands, np.inf)
    for low, high in pairwise(edges):
        inside = (samples.scale > low) & (samples.scale <= high)
        if inside.any():
            name = f"<= {high:g}" if np.isfinite(high) else f"> {low:g}"
            found[name] = errors(predicted[inside], samples.seconds[inside])
    return found


def derived(
    source: Fitted,
    key: str,
    changes: Mapping[str, float],
    *,
    note: str,
    penalty: float,
    engine: str | None = None,
) -> Fitted:
    """A law that takes another's parameters with some changed, and its errors with a penalty."""
    return Fitted(
        engine=source.engine if engine is None else engine,
        key=key,
        kind=source.kind,
        parameters={**source.parameters, **changes},
        within=source.within,
        left_out=source.left_out,
        samples=None,
        hull=source.hull if source.samples is None else source.samples.hull,
        penalty=source.penalty + penalty,
        note=note,
        sources=source.sources,
    )
