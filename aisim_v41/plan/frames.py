"""A frame of steps, one a row, each of identical requests, as request columns."""

from __future__ import annotations

import sys
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError, nearest
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import MAX_RANKS
from aisim_v41.plan.compatibility import MAX_PRODUCT, check_columns, refusal
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.request import (
    KIND_CODES,
    KINDS,
    MAX_TOKENS,
    PACKED_FIELDS,
    SPECIAL_FIELDS,
    WINDOW_CODES,
    WINDOWS,
    Request,
)
from aisim_v41.plan.spans import DECODE, PREFILL, RUNNING, RequestColumns

if TYPE_CHECKING:
    import pandas as pd

FIELDS: Final = (
    "new_tokens", "prefix_tokens", "count", "kind", "prompt_tokens", "window", "window_start",
    "prompt_logprobs", "image_tokens", "rank",
)  # fmt: skip
_MISNOMERS: Final = {
    **dict.fromkeys(
        ("prefix", "prefix_len", "prefix_length", "cached_tokens", "context", "context_tokens"),
        "prefix_tokens",
    ),
    **dict.fromkeys(("batch", "batch_size", "num_requests"), "count"),
    **dict.fromkeys(("prompt", "prompt_len", "prompt_length"), "prompt_tokens"),
    **dict.fromkeys(("logprobs", "logprob"), "prompt_logprobs"),
    **dict.fromkeys(("images", "image_rows"), "image_tokens"),
}
"""Names under which a field is likely meant; carried along, they would leave its default."""


def request_columns(frame: pd.DataFrame, model: Model, policy: RuntimePolicy) -> RequestColumns:
    """Columns of a frame whose names are fields of `Request`; missing ones take its defaults.

    Raises:
        InvalidInputError: no ``new_tokens``, a value no request can have, or a column whose name
            is nearly that of a field; the message names column and row.
        OutOfRangeError, UnsupportedPlanError: as for a plan of that row.
    """
    if not hasattr(frame, "columns"):
        raise InvalidInputError(f"a sweep takes a pandas frame, not {type(frame).__name__}")
    if "new_tokens" not in frame.columns:
        raise InvalidInputError(
            "the frame has no column new_tokens; "
            f"columns are named as fields of Request: {', '.join(FIELDS)}"
        )
    for label in frame.columns:
        likely = None if label in FIELDS else _likely(str(label))
        if likely:
            raise InvalidInputError(
                f"column {label!r} is no field of Request; {likely!r} is. Rename it, or drop it"
            )
    if policy.encoder_replay == "separate" and "window" in frame.columns:
        raise UnsupportedPlanError(
            "encoder_replay='separate' and a window column exclude each other in a sweep: each hit "
            "would take a forward of its own; call the step row by row, or use 'folded'"
        )
    rows = len(frame)
    zero, one = np.zeros(rows), np.ones(rows)
    new = _whole(frame, "new_tokens", zero)
    prefix = _whole(frame, "prefix_tokens", zero)
    columns = RequestColumns(
        new=new,
        prefix=prefix,
        prompt=_whole(frame, "prompt_tokens", new + prefix),
        count=_whole(frame, "count", one),
        kind=_codes(frame, "kind", KIND_CODES, zero),
        window=_codes(frame, "window", WINDOW_CODES, zero),
        window_start=_whole(frame, "window_start", zero),
        prompt_logprobs=_whole(frame, "prompt_logprobs", zero, highest=1),
        image_tokens=_whole(frame, "image_tokens", zero),
        rank=_whole(frame, "rank", zero - 1.0, highest=MAX_RANKS - 1) + 1.0,
        longest=0.0,
        verifies="kind" in frame.columns,
        special=any(name in frame.columns for name in PACKED_FIELDS[SPECIAL_FIELDS]),
    )
    _refuse_inconsistent(columns)
    columns.prompt = np.where(columns.kind == PREFILL, columns.prompt, prefix + new)
    columns.longest = float(columns.prompt.max(initial=0.0))
    place = check_columns(model, policy, columns)
    if place is not None:
        raise refusal(model, policy, f"row {place}", _request(columns, place))
    longest = np.maximum(columns.prompt, model.attention.window)
    large = columns.count * longest * longest >= MAX_PRODUCT
    if large.any():
        raise OutOfRangeError(
            f"row {int(np.argmax(large))}: count x end^2 is too large to count exactly; split it"
        )
    return columns


def _likely(name: str) -> str | None:
    """The field that a column of another name is probably meant for."""
    plain = "_".join(name.lower().replace("-", " ").replace("_", " ").split())
    close = get_close_matches(plain, FIELDS, n=1, cutoff=0.85)
    return close[0] if close else _MISNOMERS.get(plain)


def _refuse_inconsistent(columns: RequestColumns) -> None:
    """The cross-checks of `Request`, for all rows at once."""
    prefill = columns.kind == PREFILL
    end = columns.prefix + columns.new
    bad = prefill & (columns.prompt < end)
    bad |= (columns.kind == DECODE) & (columns.new > 1)
    bad |= ~prefill & ((columns.window != RUNNING) | (columns.prompt_logprobs != 0))
    bad |= columns.image_tokens > np.where(prefill, columns.new, 0.0)
    bad |= columns.window_start > columns.prefix
    bad |= (columns.window != RUNNING) & ((columns.prefix == 0) | (columns.window_start > 0))
    if bad.any():
        place = int(np.argmax(bad))
        try:
            _request(columns, place)
        except InvalidInputError as error:
            raise InvalidInputError(f"row {place}: {error}") from None


def _request(columns: RequestColumns, place: int) -> Request:
    named = ((f.name, getattr(columns, f.name)) for f in fields(columns))
    value = {name: int(v[place]) for name, v in named if isinstance(v, np.ndarray)}
    return Request(
        new_tokens=value["new"],
        prefix_tokens=value["prefix"],
        prompt_tokens=value["prompt"],
        count=value["count"],
        kind=KINDS[value["kind"]],  # type: ignore[arg-type]
        window=WINDOWS[value["window"]],  # type: ignore[arg-type]
        window_start=value["window_start"],
        prompt_logprobs=bool(value["prompt_logprobs"]),
        image_tokens=value["image_tokens"],
        rank=value["rank"] - 1 if value["rank"] else None,
    )


def _whole(frame: Any, name: str, default: Floats, *, highest: int = MAX_TOKENS) -> Floats:
    """A column of whole numbers as float64."""
    if name not in frame.columns:
        return default
    column = np.asarray(_column(frame, name))
    flags = highest == 1
    if column.dtype.kind == "O":
        real = [_is_real(value, flags=flags) for value in column]
        if not all(real):
            place = real.index(False)
            raise InvalidInputError(
                f"row {place}: {name} = {column[place]!r}: must be a whole number"
                f" from 0 to {highest}"
            )
    elif column.dtype.kind not in ("biuf" if flags else "iuf"):
        raise InvalidInputError(f"column {name}: must hold whole numbers, not {column.dtype}")
    values = column.astype(np.float64)
    good = (values >= 0) & (values <= highest) & (np.floor(values) == values)
    if not good.all():
        place = int(np.argmin(good))
        raise InvalidInputError(
            f"row {place}: {name} = {values[place]:g}: must be a whole number from 0 to {highest}"
        )
    return values


def _column(frame: Any, name: str) -> Any:
    column = frame[name]
    if column.ndim != 1:
        raise InvalidInputError(f"column {name} occurs {column.shape[-1]} times")
    return column


def _is_real(value: object, *, flags: bool) -> bool:
    """Whether float64 can hold it: no text, time or complex number, truth only as a flag."""
    if isinstance(value, (bool, np.bool_)):
        return flags
    if isinstance(value, int):
        return abs(value) <= sys.maxsize
    real = isinstance(value, (float, np.integer, np.floating))
    return real and not isinstance(value, np.timedelta64)


def _codes(frame: Any, name: str, codes: dict[str, int], default: Floats) -> Floats:
    """A column of names as their codes."""
    if name not in frame.columns:
        return default
    import pandas as pd

    column = _column(frame, name)
    try:
        categories = pd.Categorical(column)
    except (TypeError, ValueError):  # cells that are lists, dicts or arrays
        place = next((p for p, value in enumerate(column) if not isinstance(value, str)), 0)
        raise InvalidInputError(
            f"row {place}: {name} = {column.iloc[place]!r}: must be one of {', '.join(codes)}"
        ) from None
    lookup = np.array([codes.get(value, -1) for value in categories.categories] + [-1], np.float64)
    taken: Floats = lookup[categories.codes]
    if (taken < 0).any():
        place = int(np.argmax(taken < 0))
        value = column.iloc[place]
        raise InvalidInputError(f"row {place}: {name} = {value!r}; {nearest(str(value), codes)}")
    return taken
