"""Which rows of a request each group of layers runs, and how far back its window reaches.

This module is the meaning of the replay policies (runtime-semantics §1-§3). It knows nothing of
counts: it turns requests into positions, for all requests at once.

Layers fall into at most three regions: FULL layers run every row; the BOUNDARY layer writes KV for
every row and queries with the tail; LATE layers run the tail alone. HEAD is the part of the late
layers' rows before the tail, where a request wants its prompt log-probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from aisim_v41.model.description import Model
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.request import KIND_CODES, WINDOW_CODES

PREFILL = KIND_CODES["prefill"]
DECODE = KIND_CODES["decode"]
RUNNING = WINDOW_CODES["running"]
MISSING = WINDOW_CODES["missing"]
SNAPSHOT = WINDOW_CODES["snapshot"]


class Region(StrEnum):
    """Layers that run the same rows."""

    FULL = "full"
    BOUNDARY = "boundary"
    LATE = "late"


@dataclass(slots=True)
class RequestColumns:
    """Requests of one step, or one request group for each step of a sweep: [width] each.

    Whole numbers as float64; kinds and window states by their codes.
    """

    new: Floats
    prefix: Floats
    prompt: Floats
    count: Floats
    kind: Floats
    window: Floats
    window_start: Floats
    prompt_logprobs: Floats
    longest: float
    """Longest prompt or context of all requests [tokens]."""
    special: bool
    """Whether any of window, window_start and prompt_logprobs is other than 0 anywhere."""

    def rows(self, first: int, last: int) -> RequestColumns:
        """A run of requests."""
        part = slice(first, last)
        return replace(
            self,
            **{f: getattr(self, f)[part] for f in _COLUMNS},
        )


_COLUMNS: Final = tuple(f.name for f in fields(RequestColumns) if f.type == "Floats")

# Rows of the position table [place, width]. Rows of a region are [its first row, END).
END: Final = 0
PREFIX: Final = 1
"""Positions whose global entries exist before the step."""
START: Final = 2
"""First row of FULL layers; before PREFIX where encoder replay recomputes rows."""
FLOOR: Final = 3
"""Oldest position visible to windows of FULL (and BOUNDARY) layers."""
LATE_START: Final = 4
LATE_FLOOR: Final = 5
HEAD_START: Final = 6
"""HEAD rows are [HEAD_START, LATE_START); empty where equal."""
LOGIT_ROWS: Final = 7
ONE: Final = 8
"""The constant 1, so that offsets are linear forms too."""
PLACES: Final = 9


@dataclass(frozen=True, slots=True)
class SpanRules:
    """The replay rules of one model under one policy."""

    policy: RuntimePolicy
    window: int
    has_owner: bool
    """Whether any layer owns global KV."""
    trimmed_layers: int
    """Layers after the last KV owner: those whose window KV a cut leaves incomplete."""

    @classmethod
    def of(cls, model: Model, policy: RuntimePolicy) -> SpanRules:
        """Rules of a model under a policy."""
        boundary = model.boundary
        late = 0 if boundary is None else len(model.layers) - boundary - 1
        return cls(policy, model.attention.window, boundary is not None, late)

    @property
    def tail_rows(self) -> int:
        """Rows that LATE layers keep of one request."""
        if not self.policy.replay_exact:
            return self.policy.replay_tail_rows
        # Each trimmed layer needs window - 1 rows more than the next: 19 x 127 + 1 = 2414.
        rows = self.trimmed_layers * (self.window - 1) + 1
        multiple = self.policy.replay_exact_multiple
        return -(-rows // multiple) * multiple

    def positions(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Positions of every request: [place, width], see `END` and the rest.

        Args:
            requests: the columns.
            one_step: they form one step; otherwise each column is a step of its own.
        """
        table = np.empty((PLACES, len(requests.new)))
        np.add(requests.prefix, requests.new, out=table[END])
        if self.adopts_hits and requests.special:
            table[PREFIX], table[START], table[FLOOR] = self._adopt_hits(requests)
        else:
            table[PREFIX : START + 1] = requests.prefix
            table[FLOOR] = requests.window_start
        prefill = requests.kind == PREFILL
        if self.cuts:
            self._cut(requests, prefill, table, one_step=one_step)
        else:
            table[LATE_START] = table[HEAD_START] = table[START]
            table[LATE_FLOOR] = table[FLOOR]
        self._count_logits(requests, prefill, table)
        table[ONE] = 1.0
        return table

    @property
    def cuts(self) -> bool:
        """Whether any layer runs a tail: replay is on and a layer comes after the last owner."""
        late = self.trimmed_layers > 0 or self.policy.boundary_layer == "kv_only"
        return self.policy.decoder_replay and self.has_owner and late

    @property
    def adopts_hits(self) -> bool:
        """Whether prefix-cache hits are treated apart at all."""
        return self.policy.encoder_replay != "off" or self.policy.hit_page_tokens > 1

    def _adopt_hits(self, requests: RequestColumns) -> tuple[Floats, Floats, Floats]:
        """Prefix, first row and window floor after rounding hits and recomputing lost windows."""
        policy = self.policy
        hit = requests.window != RUNNING
        if not hit.any():
            return requests.prefix, requests.prefix, requests.window_start
        page = policy.hit_page_tokens
        prefix = np.where(hit, requests.prefix // page * page, requests.prefix)
        lost = requests.window == MISSING
        if policy.encoder_replay == "snapshot":
            # Restored whole where one exists and the hit ends a window before the prompt does.
            late_hit = prefix > requests.prompt - policy.encoder_replay_rows
            lost |= (requests.window == SNAPSHOT) & late_hit
        prefix = np.where(lost & (prefix <= policy.hit_min_tokens), 0, prefix)
        replayed = np.where(lost, np.minimum(prefix, policy.encoder_replay_rows), 0)
        start = prefix - replayed
        return prefix, start, np.where(lost, start, requests.window_start)

    def _cut(
        self,
        requests: RequestColumns,
        prefill: npt.NDArray[np.bool_],
        table: Floats,
        *,
        one_step: bool,
    ) -> None:
        """First row and window floor of LATE layers, and first row of HEAD."""
        policy, tail = self.policy, self.tail_rows
        end, start, floor = table[END], table[START], table[FLOOR]
        if policy.replay_anchor == "step_end":
            kept_from = np.maximum(start, end - tail)
        else:
            kept_from = np.minimum(end, np.maximum(start, requests.prompt - tail))
        if policy.replay_floor == "tail_start":
            kept_floor = kept_from
        elif policy.replay_floor == "window_start":
            kept_floor = np.where(kept_from > start, kept_from, floor)
        else:
            kept_floor = np.maximum(floor, requests.prompt - tail)

        cut = prefill
        if policy.decode_rows != "own_window":
            live = (requests.count > 0) & (end > start)
            if policy.decode_rows == "as_extend":
                cut = cut | _anywhere(prefill & live, one_step)
            else:
                cut = cut & ~_anywhere(~prefill & live, one_step)
        if policy.replay_exact:
            scheduled = (end - table[PREFIX]) * requests.count
            tokens = scheduled.sum() if one_step else scheduled
            cut = cut & (tokens >= policy.replay_exact_min_tokens)
        if policy.prompt_logprobs == "all_rows" and requests.special:
            cut = cut & (requests.prompt_logprobs == 0)
        late_start = np.where(cut, kept_from, start)
        table[LATE_START] = late_start
        table[LATE_FLOOR] = np.where(cut, kept_floor, floor)
        if policy.prompt_logprobs == "two_floors":
            late_start = np.where(requests.prompt_logprobs != 0, start, late_start)
        table[HEAD_START] = late_start

    def _count_logits(
        self, requests: RequestColumns, prefill: npt.NDArray[np.bool_], table: Floats
    ) -> None:
        """Rows that reach the head: the last of a finished prompt, all of a verify step.

        A replay in a forward of its own has one too (runtime-semantics §2.1).
        """
        end, out = table[END], table[LOGIT_ROWS]
        alone = self.policy.encoder_replay == "separate"
        np.subtract(end, table[START if alone else PREFIX], out=out)
        np.minimum(out, 1.0, out=out)
        out *= end >= requests.prompt
        last_only = prefill
        if requests.special:
            last_only = prefill & (requests.prompt_logprobs == 0)
        if not last_only.all():
            new_rows = end - np.maximum(table[PREFIX], table[HEAD_START])
            np.copyto(out, new_rows, where=~last_only)


def _anywhere(flags: npt.NDArray[np.bool_], one_step: bool) -> npt.NDArray[np.bool_]:
    """Whether any request of the same step has the flag."""
    return np.broadcast_to(flags.any(), flags.shape) if one_step else flags
