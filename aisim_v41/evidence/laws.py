"""How long a kernel takes, from its work at peak rates: one closed form for each kind of operator.

Every law takes *features* (what the operator does: seconds of its arithmetic and of its bytes at
peak, rows, sizes) and *parameters* (what was fitted: launch times [s], shares of a peak in (0, 1],
sizes). All are float64 and broadcast, so that a column of tasks meets a row of steps. A law is zero
without rows, never falls when rows or bytes grow, and never undercuts the peak rates.

What was fitted, and how well: docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.evidence.fullest import of_fullest

FloatArray = npt.NDArray[np.float64]
Features = Mapping[str, FloatArray | float]
Parameters = Mapping[str, FloatArray | float]


class LawKind(StrEnum):
    """Forms of law; an operator's kind says which features it must bring."""

    PRODUCT = "product"
    """Dense matrix product."""
    EXPERTS = "experts"
    """Routed experts, gate to down, in one call."""
    ATTENTION = "attention"
    """Sparse attention over selected cache rows."""
    SCORES = "scores"
    """Index scores of queries against keys."""
    SELECT = "select"
    """Top-k of each row's scores."""
    HYPER = "hyper"
    """Residual streams around a sub-layer; one site."""
    ELEMENTWISE = "elementwise"
    """Norms, rotations, conversions."""
    GATHER = "gather"
    """Rows of a table at scattered places."""
    COLLECTIVE = "collective"
    """All-reduce and its relatives over one link domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Features and parameters of one kind.

    Attributes:
        features: that must be given, with units.
        optional: features with a default, with units and meaning.
        parameters: names, with lowest and highest plausible value (SI) and meaning.
    """

    features: Mapping[str, str]
    optional: Mapping[str, str]
    parameters: Mapping[str, tuple[float, float, str]]


REGIMES = (1, 2, 3, 4)
"""Of a collective's message size; a curve with fewer repeats its last."""

_COMMON = {
    "compute_s": "arithmetic at the peak of its class [s]",
    "memory_s": "every byte at the memory's peak rate [s]",
    "rows": "rows worked on [1]",
}
_SECONDS = (0.0, 1e-2)
_SHARE = (1e-3, 1.0)
_LAUNCH = (*_SECONDS, "fixed time of a call [s]")
_FLOOR = (*_SECONDS, "shortest time of a call [s]")
_NORM = (1.0, 64.0, "how sharply the longest part wins; 1: they add [1]")
_MEMORY = (*_SHARE, "share of the memory's peak rate [1]")
_COMPUTE = (*_SHARE, "share of the arithmetic's peak rate [1]")


def _form(
    parameters: Mapping[str, tuple[float, float, str]],
    features: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
) -> Form:
    return Form(
        features=MappingProxyType(_COMMON | dict(features or {})),
        optional=MappingProxyType(dict(optional or {})),
        parameters=MappingProxyType(dict(parameters)),
    )


FORMS: Mapping[LawKind, Form] = MappingProxyType(
    {
        LawKind.PRODUCT: _form(
            {
                "launch_s": _LAUNCH,
                "inner_s": (0.0, 1e-7, "time per element of the inner product's length [s]"),
                "quantise_launch_s": (*_SECONDS, "fixed time of the input's conversion [s]"),
                "quantise_s": (0.0, 1e-9, "conversion of one input value [s]"),
                "compute_share": _COMPUTE,
                "memory_share": _MEMORY,
                "norm": _NORM,
            },
            {"inputs": "length of the inner product [1]"},
            {
                "outputs": "columns of the result; this form does without [1]",
                "quantised": "1: the input arrives in the product's precision (default 0) [1]",
            },
        ),
        LawKind.EXPERTS: _form(
            {
                "launch_s": _LAUNCH,
                "expert_s": (0.0, 1e-4, "start and end of one touched expert [s]"),
                "memory_share": _MEMORY,
                "step_8": (0.0, 20.0, "more weight time beyond 8 tokens an expert [1]"),
                "step_32": (0.0, 20.0, "more weight time beyond 32 tokens an expert [1]"),
                "uneven": (0.0, 5.0, "part more when tokens an expert vary around a tile [1]"),
                "tile": (8.0, 1024.0, "tokens an expert that one pass over its weights takes [1]"),
                "compute_share": _COMPUTE,
            },
            {
                "touched": "distinct experts of the rank that any row visits [1]",
                "top_k": "experts that a row visits, those on other ranks left out [1]",
            },
            {
                "routed": "experts of the rank; this form does without [1]",
                "spread": "standard deviation of tokens an expert (default: root of the mean) [1]",
                "skew": "squared coefficient of variation of experts' popularity (default 0) [1]",
                "groups": "of ranks with different experts; the fullest decides (default 1) [1]",
                "copies": "further copies of experts on the rank [1]",
                "imbalance": "work of the fullest group over the mean; 0: not known [1]",
                "expert_memory_s": "weights of one expert at the memory's peak rate [s]",
            },
        ),
        LawKind.ATTENTION: _form(
            {
                "launch_s": _LAUNCH,
                "key_s": (0.0, 1e-6, "serial walk along one key of a row [s]"),
                "key_overhead": (0.0, 1e5, "work of one row besides its keys, in keys [1]"),
                "compute_share": _COMPUTE,
                "memory_share": _MEMORY,
                "norm": _NORM,
            },
            {"pairs": "query-key pairs, window and selected together [1]"},
        ),
        LawKind.SCORES: _form(
            {
                "floor_s": _FLOOR,
                "launch_s": _LAUNCH,
                "compute_share": _COMPUTE,
                "memory_share": _MEMORY,
                "norm": _NORM,
            },
            optional={"positions": "query-key pairs scored; this form does without [1]"},
        ),
        LawKind.SELECT: _form(
            {
                "launch_s": _LAUNCH,
                "entry_s": (0.0, 1e-6, "scan of one entry by the one group that owns a row [s]"),
                "row_s": (0.0, 1e-6, "selection of one row among many [s]"),
                "memory_share": _MEMORY,
            },
            {"positions": "scores read; a row scans positions / rows [1]"},
        ),
        LawKind.HYPER: _form(
            {
                "floor_s": _FLOOR,
                "row_walk": (0.0, 1e4, "one row's bytes at peak, times this, in series [1]"),
                "launch_s": _LAUNCH,
                "memory_share": _MEMORY,
                "norm": _NORM,
            }
        ),
        LawKind.ELEMENTWISE: _form({"launch_s": _LAUNCH, "memory_share": _MEMORY}),
        LawKind.GATHER: _form({"launch_s": _LAUNCH, "memory_share": _MEMORY}),
        LawKind.COLLECTIVE: _form(
            {
                **{
                    f"limit_{regime}_bytes": (1.0, 1e15, "end of the regime [B]")
                    for regime in REGIMES[:-1]
                },
                **{
                    f"alpha_{regime}_s": (*_SECONDS, "latency of the regime [s]")
                    for regime in REGIMES
                },
                **{
                    f"rate_{regime}_bytes_per_s": (1e6, 1e15, "message bytes a second [B/s]")
                    for regime in REGIMES
                },
            },
            {"message_bytes": "as the collective counts it [B]", "ranks": "GPUs [1]"},
        ),
    }
)
"""Features and parameters of every kind."""

_HALF = 0.5
_LOGISTIC_WIDTH = 1.702
"""A logistic curve of this steepness is the normal distribution's within .01."""


def law_seconds(kind: LawKind, features: Features, parameters: Parameters) -> FloatArray:
    """Seconds that a law gives; at least the peak rates', and zero where there are no rows.

    Args:
        kind: of the law.
        features: arrays by name, as `FORMS` lists them; they broadcast.
        parameters: numbers or arrays by name, as `FORMS` lists them; they broadcast too.

    Raises:
        InvalidInputError: a feature or a parameter is missing.

    >>> half = {"launch_s": 2e-6, "memory_share": 0.5}
    >>> work = {"compute_s": 0.0, "memory_s": 1e-6, "rows": np.array([0.0, 1.0])}
    >>> law_seconds(LawKind.ELEMENTWISE, work, half).round(9)
    array([0.e+00, 4.e-06])
    """
    try:
        seconds = LAWS[kind](features, parameters)
        peak = np.maximum(features["compute_s"], features["memory_s"])
        rows = features["rows"]
    except KeyError as error:
        form = FORMS[LawKind(kind)]
        raise InvalidInputError(
            f"the {kind} law has no {error.args[0]!r}; "
            f"{nearest(str(error.args[0]), [*form.features, *form.parameters])}"
        ) from None
    return np.where(np.asarray(rows) > 0, np.maximum(seconds, peak), 0.0)


def product(x: Features, p: Parameters) -> FloatArray:
    """Matrix product: fixed parts, then arithmetic and bytes under a norm.

    t = t0 + tk·inputs + (1 − quantised)·(tq0 + tq·rows·inputs) + ‖compute/ec, memory/em‖p

    The term in ``inputs`` is the serial walk along the inner product, which small outputs cannot
    hide. Source: peer-data-newer §3.1 (22,000 sizes a GPU; t0, tk, kq, ec, em, p).
    """
    raw = 1.0 - np.asarray(x.get("quantised", _ZERO))
    convert = p["quantise_launch_s"] + p["quantise_s"] * x["rows"] * x["inputs"]
    fixed = p["launch_s"] + p["inner_s"] * x["inputs"] + raw * convert
    return fixed + _norm(
        x["compute_s"] / p["compute_share"], x["memory_s"] / p["memory_share"], p["norm"]
    )


def experts(x: Features, p: Parameters) -> FloatArray:
    """Routed experts: weights of touched experts, in longer passes beyond 8 and 32 tokens each.

    With m = rows·top_k/touched tokens a touched expert, and P(c > n) the share of touched experts
    with more than n tokens (normal about m, of the width ``spread``):

    t = t0 + te·touched + memory·(1/em + s8·P(c > 8) + s32·P(c > 32))·(1 + u·P(c > 8)·d)
        + compute·further(tile/m)/ec,   further(τ) = (1 − (1 − v)τ)₊^(1/(1−v))

    Kernels take tiles of 8, 16, 32 ... tokens, chosen by the mean; time hardly grows inside one,
    and beyond the largest every further tile costs its arithmetic. Tokens drawn at random overflow
    the tile in part of the experts (u; d = min(1, spread/√m), 1 where the spread is not given); a
    balanced table shows nothing of it. Source: fitted to
    balanced tables in graph mode, u to V4.1's own rows; peer-data-newer §2.3, §3.4.

    Popularities of squared coefficient of variation v widen the counts (variance + v m²) and lower
    their middle (m e^(−v/3)): fewer touched experts need a long pass, and more tokens lie beyond
    the largest tile: max(0, 1 − τ) of them where experts are alike, e^(−τ) at v = 1. The forms
    stand for a gamma distribution within a few per cent.

    Under expert parallelism the features are those of the mean group, and the time is that of the
    fullest (`aisim_v41.evidence.fullest`).
    """
    if "groups" in x:
        x = of_fullest(x)
    touched = np.maximum(x["touched"], _TINY)
    each = np.maximum(x["rows"] * x["top_k"] / touched, _TINY)
    skew = x.get("skew", 0.0)
    variance = (x["spread"] ** 2 if "spread" in x else each) + skew * each * each
    spread = np.maximum(np.sqrt(variance), _LEAST_SPREAD)
    middle = each * np.exp(skew / -3.0)
    beyond_8 = _share_beyond(middle, 8.0, spread)
    stretch = (
        1.0 / p["memory_share"]
        + p["step_8"] * beyond_8
        + p["step_32"] * _share_beyond(middle, 32.0, spread)
    )
    uneven = np.minimum(1.0, x["spread"] / np.sqrt(each)) if "spread" in x else 1.0
    overflow = 1.0 + p["uneven"] * beyond_8 * uneven
    further = x["compute_s"] * _beyond_tile(p["tile"] / each, skew) / p["compute_share"]
    return (
        p["launch_s"] + p["expert_s"] * x["touched"] + x["memory_s"] * stretch * overflow + further
    )


def attention(x: Features, p: Parameters) -> FloatArray:
    """Sparse attention: a start, the walk along a row's keys, then arithmetic and bytes.

    t = t0 + tk·keys + ‖compute·(1 + h/keys)/ec, memory/em‖p, keys = pairs/rows

    h keys' worth of work a row is what a row costs beside its keys (query load, softmax ends, page
    look-ups), so the share of peak grows with keys. The walk shows in decode, where one group of
    threads has one row. Source: peer-data-newer §3.5; production-measurements §3.
    """
    keys = x["pairs"] / np.maximum(x["rows"], _TINY)
    work = x["compute_s"] * (1.0 + p["key_overhead"] / np.maximum(keys, 1.0))
    busy = _norm(work / p["compute_share"], x["memory_s"] / p["memory_share"], p["norm"])
    return np.asarray(p["launch_s"] + p["key_s"] * keys + busy)


def scores(x: Features, p: Parameters) -> FloatArray:
    """Index scores: t = ‖floor, t0 + ‖compute/ec, memory/em‖p‖p.

    The share is far below 1 since every product of 128 long vectors ends in a ReLU and a weighted
    sum over heads outside the matrix units. Source: peer-data-newer §3.5.
    """
    busy = p["launch_s"] + _norm(
        x["compute_s"] / p["compute_share"], x["memory_s"] / p["memory_share"], p["norm"]
    )
    return _norm(p["floor_s"], busy, p["norm"])


def select(x: Features, p: Parameters) -> FloatArray:
    """Top-k over ordered scores: one group of threads scans a row, rows side by side.

    t = t0 + te·positions/rows + tr·rows + memory/em

    Scores that are all equal take ten times as long and do not occur with real text. Source:
    peer-data-newer §3.5.
    """
    entries = x["positions"] / np.maximum(x["rows"], _TINY)
    return np.asarray(
        p["launch_s"]
        + p["entry_s"] * entries
        + p["row_s"] * x["rows"]
        + x["memory_s"] / p["memory_share"]
    )


def hyper(x: Features, p: Parameters) -> FloatArray:
    """One mHC site: t = ‖floor + w·memory/rows, t0 + memory/em‖p.

    Memory holds the passes of a single sweep and nothing else, so it is proportional to rows: 5 of
    the hidden width to collapse, 9 to expand, 10 fused, 2 B each; what a two-pass kernel moves
    beyond is inside the share, weights are inside the floor. One multiprocessor walks a row at
    about 1/w of the memory's rate, so few rows take longer when they are wide.
    Source: peer-data-newer §3.3, halved: its timings hold both sites.
    """
    alone = p["floor_s"] + p["row_walk"] * x["memory_s"] / np.maximum(x["rows"], _TINY)
    return _norm(alone, p["launch_s"] + x["memory_s"] / p["memory_share"], p["norm"])


def streaming(x: Features, p: Parameters) -> FloatArray:
    """Kernels that only move bytes: t = t0 + memory/em. Source: peer-data-newer §3.5, quantise."""
    return np.asarray(p["launch_s"] + x["memory_s"] / p["memory_share"])


def collective(x: Features, p: Parameters) -> FloatArray:
    """Latency and rate by regime of the message: t = alpha + bytes/rate.

    A regime never undercuts the end of the one before, so the switch of a library at its buffer's
    end (16 MiB in SGLang) is a step up. One rank sends nothing. Source: peer-data-newer §3.2.
    """
    size = np.asarray(x["message_bytes"])
    seconds: FloatArray = np.zeros(())
    reached = np.zeros(())
    for regime in REGIMES:
        limit = p[f"limit_{regime}_bytes"] if regime < REGIMES[-1] else np.inf
        sent = np.minimum(size, limit)
        here = p[f"alpha_{regime}_s"] + sent / p[f"rate_{regime}_bytes_per_s"]
        seconds = np.maximum(seconds, np.where(size > reached, here, 0.0))
        reached = np.asarray(limit)
    return np.where((np.asarray(x["ranks"]) > 1) & (size > 0), seconds, 0.0)


_TINY = 1e-9
_LEAST_SPREAD = 0.3
"""Equal counts still meet a step somewhere between two whole numbers."""
_ZERO = np.zeros(())
LAWS: Mapping[LawKind, Callable[[Features, Parameters], FloatArray]] = {
    LawKind.PRODUCT: product,
    LawKind.EXPERTS: experts,
    LawKind.ATTENTION: attention,
    LawKind.SCORES: scores,
    LawKind.SELECT: select,
    LawKind.HYPER: hyper,
    LawKind.ELEMENTWISE: streaming,
    LawKind.GATHER: streaming,
    LawKind.COLLECTIVE: collective,
}
"""Each form as it is: without rows it may give a time, and shares may undercut the peak."""


def _norm(
    first: FloatArray | float, second: FloatArray | float, power: FloatArray | float
) -> FloatArray:
    """(a^p + b^p)^(1/p), by the ratio to the larger so that no power under- or overflows."""
    if isinstance(power, float) and power == 1.0:
        return np.asarray(first + second)
    larger = np.maximum(first, second)
    ratio = np.minimum(first, second) / np.maximum(larger, _SMALLEST)
    return np.asarray(larger * (1.0 + ratio**power) ** (1.0 / power))


_SMALLEST = 1e-300


def _beyond_tile(tiles: FloatArray, skew: FloatArray | float) -> FloatArray:
    """Share of tokens beyond the first tile of their expert, for a tile of so many means."""
    apart = 1.0 - skew
    power = np.copysign(np.maximum(np.abs(apart), _NEAR_ONE), apart)
    return np.asarray(np.maximum(1.0 - power * tiles, 0.0) ** (1.0 / power))


_NEAR_ONE = 1e-6


def _share_beyond(mean: FloatArray, limit: float, spread: FloatArray) -> FloatArray:
    """Share of experts with more than ``limit`` tokens, counts being normal about the mean."""
    distance = (mean - limit - _HALF) / spread
    return np.asarray(_HALF + _HALF * np.tanh(_HALF * _LOGISTIC_WIDTH * distance))
