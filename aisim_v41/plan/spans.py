"""Which rows of a request each group of layers runs, and how far back its window reaches.

This module is the meaning of the replay policies (runtime-semantics §1-§3). It knows nothing of
counts: it turns requests into positions, for all requests at once.

Layers fall into at most three regions: FULL layers run every row; the BOUNDARY layer writes KV for
every row and queries with the tail; LATE layers run the tail alone. HEAD is the part of the late
layers' rows before the tail, where a request wants its prompt log-probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from aisim_v41.model.description import Model
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Counts
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


class RequestColumns(NamedTuple):
    """Requests of one step, or one request group for each step of a sweep: int64 [width] each."""

    new: Counts
    prefix: Counts
    prompt: Counts
    count: Counts
    kind: Counts
    window: Counts
    window_start: Counts
    prompt_logprobs: Counts


class Spans(NamedTuple):
    """Positions of a step, [width] each: rows are [start, end), windows reach back to a floor."""

    prefix: Counts
    """Positions whose global entries exist before the step."""
    end: Counts
    start: Counts
    """First row of FULL layers; before ``prefix`` where encoder replay recomputes rows."""
    floor: Counts
    late_start: Counts
    late_floor: Counts
    head_start: Counts
    """HEAD rows are [head_start, late_start); empty where equal."""
    logit_rows: Counts


@dataclass(frozen=True, slots=True)
class SpanRules:
    """The replay rules of one model under one policy."""

    policy: RuntimePolicy
    window: int
    trimmed_layers: int
    """Layers after the last KV owner: those whose window KV a cut leaves incomplete."""

    @classmethod
    def of(cls, model: Model, policy: RuntimePolicy) -> SpanRules:
        boundary = model.boundary
        late = 0 if boundary is None else len(model.layers) - boundary - 1
        return cls(policy, model.attention.window, late)

    @property
    def tail_rows(self) -> int:
        """Rows that LATE layers keep of one request."""
        if not self.policy.replay_exact:
            return self.policy.replay_tail_rows
        # Each trimmed layer needs window - 1 rows more than the next: 19 x 127 + 1 = 2414.
        rows = self.trimmed_layers * (self.window - 1) + 1
        multiple = self.policy.replay_exact_multiple
        return -(-rows // multiple) * multiple

    def spans(self, requests: RequestColumns, *, one_step: bool) -> Spans:
        """Positions of every request.

        Args:
            requests: the columns.
            one_step: they form one step; otherwise each column is a step of its own.
        """
        new, prefix = requests.new, requests.prefix
        end = prefix + new
        start, floor = prefix, requests.window_start
        if self.policy.encoder_replay != "off" or self.policy.hit_page_tokens > 1:
            prefix, start, floor = self._adopt_hits(requests)
        late_start, late_floor, head_start = start, floor, start
        if self.policy.decoder_replay:
            late_start, late_floor, head_start = self._cut(requests, start, floor, end, one_step)
        else:
            head_start = late_start
        return Spans(
            prefix=prefix,
            end=end,
            start=start,
            floor=floor,
            late_start=late_start,
            late_floor=late_floor,
            head_start=head_start,
            logit_rows=self._logit_rows(requests, end),
        )

    def _adopt_hits(self, requests: RequestColumns) -> tuple[Counts, Counts, Counts]:
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
        start: Counts,
        floor: Counts,
        end: Counts,
        one_step: bool,
    ) -> tuple[Counts, Counts, Counts]:
        """First row and window floor of LATE layers, and first row of HEAD."""
        policy, tail = self.policy, self.tail_rows
        prefill = requests.kind == PREFILL
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
        if policy.decode_rows == "as_extend":
            cut = cut | _anywhere(prefill, one_step)
        elif policy.decode_rows == "no_replay":
            cut = cut & ~_anywhere(~prefill & (requests.count > 0), one_step)
        if policy.replay_exact:
            scheduled = requests.new * requests.count
            tokens = scheduled.sum() if one_step else scheduled
            cut = cut & (tokens >= policy.replay_exact_min_tokens)
        head_start = np.where(cut, kept_from, start)
        if policy.prompt_logprobs != "refuse":
            whole = requests.prompt_logprobs != 0
            if policy.prompt_logprobs == "all_rows":
                cut = cut & ~whole
                head_start = np.where(cut, kept_from, start)
            else:
                head_start = np.where(whole, start, head_start)
        return np.where(cut, kept_from, start), np.where(cut, kept_floor, floor), head_start

    @staticmethod
    def _logit_rows(requests: RequestColumns, end: Counts) -> Counts:
        """Rows that reach the head: the last of a finished prompt, all of a verify step."""
        last = (requests.new > 0) & (end >= requests.prompt)
        prompt_rows = np.where(requests.prompt_logprobs != 0, requests.new, last)
        return np.where(requests.kind == PREFILL, prompt_rows, requests.new)


def _anywhere(flags: np.ndarray, one_step: bool) -> np.ndarray:
    """Whether any request of the same step has the flag."""
    return np.broadcast_to(flags.any(), flags.shape) if one_step else flags
