"""Which rows of a request each group of layers runs, and how far back its window reaches.

This module is the meaning of the replay policies (runtime-semantics §1-§3). It knows nothing of
counts: it turns requests into positions, for all requests at once. What is taken as true:
docs/assumptions.md, "Replay".

Layers fall into at most three regions: FULL layers run every row; the BOUNDARY layer writes KV for
every row and queries with the tail; LATE layers run the tail alone. HEAD is the part of the late
layers' rows before the tail, where a request wants its prompt log-probabilities. The regions of the
drafter exist under speculation only.
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
from aisim_v41.plan.request import KIND_CODES, MAX_TOKENS, WINDOW_CODES

PREFILL = KIND_CODES["prefill"]
DECODE = KIND_CODES["decode"]
VERIFY = KIND_CODES["verify"]
RUNNING = WINDOW_CODES["running"]
MISSING = WINDOW_CODES["missing"]
SNAPSHOT = WINDOW_CODES["snapshot"]


class Region(StrEnum):
    """Layers that run the same rows."""

    FULL = "full"
    BOUNDARY = "boundary"
    LATE = "late"
    DRAFT = "draft"
    """Rows that the DSpark blocks draft, see `aisim_v41.plan.draft`."""
    DRAFT_CONTEXT = "draft_context"
    """Rows whose taps are projected into the rings of those blocks."""
    DRAFT_CHAIN = "draft_chain"
    """One row a drafting request: a position of the Markov chain."""


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
    image_tokens: Floats
    rank: Floats
    """Attention-data-parallel rank, counted from 1; 0 where requests are dealt."""
    longest: float
    """Longest prompt or context of all requests [tokens]."""
    verifies: bool
    """Whether any request is a verify step."""
    special: bool
    """Whether any of window, window_start, prompt_logprobs and image_tokens is other than 0
    anywhere."""

    @property
    def pictured(self) -> bool:
        """Whether any request has image rows."""
        return self.special and bool(self.image_tokens.any())

    def chosen(self, places: npt.NDArray[np.intp], count: Floats | None = None) -> RequestColumns:
        """Some requests, each perhaps with another number of copies."""
        own = {f: getattr(self, f)[places] for f in _COLUMNS}
        return replace(self, **own if count is None else own | {"count": count})

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
LATE_START: Final = 3
HEAD_START: Final = 4
"""HEAD rows are [HEAD_START, LATE_START); empty where equal."""
FLOOR: Final = 5
"""Oldest position visible to windows of FULL (and BOUNDARY) layers."""
LATE_FLOOR: Final = 6
LOGIT_ROWS: Final = 7
ONE: Final = 8
"""The constant 1, so that offsets are linear forms too."""
PLACES: Final = 9


@dataclass(frozen=True, slots=True)
class SpanRules:
    """The replay rules of one model under one policy."""

    policy: RuntimePolicy
    tail_rows: int
    """Rows that LATE layers keep of one request."""
    least_tokens: int
    """With fewer new tokens in a step nothing is cut."""
    cuts: bool
    """Whether any layer runs a tail: replay is on and a layer comes after the last owner."""
    adopts_hits: bool
    """Whether prefix-cache hits are treated apart at all."""

    @classmethod
    def of(cls, model: Model, policy: RuntimePolicy) -> SpanRules:
        """Rules of a model under a policy."""
        boundary = model.boundary
        late = 0 if boundary is None else len(model.layers) - boundary - 1
        tail_rows = policy.replay_tail_rows
        if policy.replay_exact:
            # Each trimmed layer needs window - 1 rows more than the next: 19 x 127 + 1 = 2414.
            rows = late * (model.attention.window - 1) + 1
            multiple = policy.replay_exact_multiple
            tail_rows = -(-rows // multiple) * multiple
        partial = boundary is not None and policy.boundary_layer == "kv_only"
        return cls(
            policy=policy,
            tail_rows=tail_rows,
            least_tokens=max(
                policy.replay_min_tokens,
                policy.replay_exact_min_tokens if policy.replay_exact else 0,
            ),
            cuts=policy.decoder_replay and (late > 0 or partial),
            adopts_hits=policy.encoder_replay != "off" or policy.hit_page_tokens > 1,
        )

    def positions(self, requests: RequestColumns, table: Floats, *, one_step: bool) -> None:
        """Positions of every request.

        Args:
            requests: the columns.
            table: receives them: [place, width], see `END` and the rest.
            one_step: they form one step; otherwise each column is a step of its own.
        """
        np.add(requests.prefix, requests.new, out=table[END])
        table[PREFIX:FLOOR] = requests.prefix
        table[FLOOR:LOGIT_ROWS] = requests.window_start
        if self.adopts_hits and requests.special:
            self._adopt_hits(requests, table)
        prefill = requests.kind == PREFILL
        if self.cuts:
            self._cut(requests, prefill, table, one_step=one_step)
        self._count_logits(requests, table)
        table[ONE] = 1.0

    def _adopt_hits(self, requests: RequestColumns, table: Floats) -> None:
        """Prefix, first row and window floor after rounding hits and recomputing lost windows."""
        policy = self.policy
        hit = requests.window != RUNNING
        page = policy.hit_page_tokens
        prefix = np.where(hit, requests.prefix // page * page, requests.prefix)
        lost = requests.window == MISSING
        if policy.encoder_replay == "snapshot":
            # Restored whole where one exists and the hit ends a window before the prompt does.
            late_hit = prefix > requests.prompt - policy.encoder_replay_rows
            lost |= (requests.window == SNAPSHOT) & late_hit
        prefix = np.where(lost & (prefix <= policy.hit_min_tokens), 0.0, prefix)
        replayed = np.where(lost, np.minimum(prefix, policy.encoder_replay_rows), 0.0)
        start = prefix - replayed
        table[PREFIX] = prefix
        table[START:FLOOR] = start
        table[FLOOR:LOGIT_ROWS] = np.where(lost, start, requests.window_start)

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
            kept_from = end - tail
            np.maximum(kept_from, start, out=kept_from)
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
        if self.least_tokens:
            scheduled = (end - table[PREFIX]) * requests.count
            tokens = scheduled.sum() if one_step else scheduled
            cut = cut & (tokens >= self.least_tokens)
        if policy.prompt_logprobs == "all_rows" and requests.special:
            cut = cut & (requests.prompt_logprobs == 0)
        if policy.replay_images != "as_text" and requests.pictured:
            images = requests.image_tokens > 0
            if policy.replay_images == "no_replay":
                images = _anywhere(images & (requests.count > 0), one_step)
            cut = cut & ~images
        np.copyto(table[LATE_START:FLOOR], kept_from, where=cut)
        np.copyto(table[LATE_FLOOR], kept_floor, where=cut)
        if policy.prompt_logprobs == "two_floors" and requests.special:
            np.copyto(table[HEAD_START], start, where=requests.prompt_logprobs != 0)

    def _count_logits(self, requests: RequestColumns, table: Floats) -> None:
        """Rows that reach the head: the last of a finished prompt, all of a verify step.

        A replay in a forward of its own has one too (runtime-semantics §2.1).
        """
        end, out = table[END], table[LOGIT_ROWS]
        # Of the rows that ran the last layer: one at most in prefill, else all.
        most = requests.kind * MAX_TOKENS
        most += 1.0
        first = table[HEAD_START]
        if requests.special and self.policy.encoder_replay != "separate":
            first = np.maximum(first, table[PREFIX])
        np.subtract(end, first, out=out)
        if requests.special:
            wanted = requests.prompt_logprobs != 0
            rows = out.copy()
        np.minimum(out, most, out=out)
        out *= end >= requests.prompt
        if requests.special:
            np.copyto(out, rows, where=wanted)


def _anywhere(flags: npt.NDArray[np.bool_], one_step: bool) -> npt.NDArray[np.bool_]:
    """Whether any request of the same step has the flag."""
    return np.broadcast_to(flags.any(), flags.shape) if one_step else flags
