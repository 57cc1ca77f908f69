"""How a step is issued: what its eager parts take on the host, beside what they take on the GPU.

The host issues one kernel after another into queues, so an eager forward takes the longer of the
two paths. Modules whose long kernel comes last, such as the experts, do not break that: while it
runs, the host issues what follows. Captured parts cost the host a call each; times of kernels in
graphs already hold the gap to the next. docs/op.md, "Execution modes".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.evidence.calibration import Launch
from aisim_v41.evidence.host_calls import HostCalls, Mode, load_host_calls
from aisim_v41.ops.graph import tasks_of
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.spans import Region

Mask = npt.NDArray[np.bool_]
_DECODE, _PREFILL, _PIECES, _REPLAYED = range(4)
_FORMS: Final[tuple[tuple[Mode, bool], ...]] = (
    ("decode", False),
    ("prefill", False),
    ("prefill", True),
)
"""Host paths: eager decode, eager prefill, and prefill as captured pieces with breaks. A forward
that is one graph (`_REPLAYED`) costs the host nothing."""


class HostPath:
    """Host time of a forward, linear in the ledger's activities.

    Args:
        compiled: the graph and its policy.
        host: what a call costs.
        engine: whose calls are counted.

    Attributes:
        calls: the inventory.
        error_relative: 90 % of the host's time: the process's and the counts' errors.
    """

    def __init__(self, compiled: CompiledGraph, host: Launch, engine: str) -> None:
        self.program = compiled.program
        self.calls, counts_error = load_host_calls(engine)
        self.error_relative = float(np.hypot(host.error_relative, counts_error))
        forms = [host_form(compiled, self.calls, host, mode, pieces) for mode, pieces in _FORMS]
        self.forms = np.array([*forms, np.zeros_like(forms[0])])
        """[host paths, columns]: seconds a count."""
        policy = compiled.policy
        self._decode = _DECODE if policy.decode_execution == "eager" else _REPLAYED
        self._within = {"eager": _PREFILL, "breakable_graph": _PIECES, "full_graph": _REPLAYED}[
            policy.prefill_execution
        ]
        self._limit = policy.prefill_graph_tokens or np.inf

    def seconds(
        self, counts: Floats, uncaptured: Mask | None = None, prefills: Mask | bool | None = None
    ) -> Floats:
        """Seconds that the host needs to issue a forward; 0 where one graph is replayed.

        A step whose every row reaches the head runs as the engine's decode, any other as its
        prefill, unless that is known.

        Args:
            counts: [columns] of one step, or [columns, steps].
            uncaptured: decode steps above every captured size; None: none.
            prefills: which steps run as prefills, where that is known.
        """
        rows = counts[self.program.tokens_place]
        every = counts[self.program.logits_place] >= rows
        decodes = every if prefills is None else np.logical_not(prefills)
        decode = self._decode if uncaptured is None else np.where(uncaptured, _DECODE, self._decode)
        prefill = (
            self._within
            if self._limit == np.inf
            else np.where(rows <= self._limit, self._within, _PREFILL)
        )
        path = np.where(decodes, decode, prefill)
        if counts.ndim == 1:
            step: Floats = self.forms[path] @ counts
            return step
        seconds: Floats = (self.forms @ counts)[path, np.arange(len(path))]
        return seconds


def host_form(
    compiled: CompiledGraph,
    calls: HostCalls,
    host: Launch,
    mode: Mode,
    pieces: bool,
    left_out: Collection[str] = (),
) -> Floats:
    """Seconds a count [columns] of the host's path through a forward.

    Args:
        compiled: the graph.
        calls: what operators are for the host.
        host: what a call costs.
        mode: which of the engine's code runs.
        pieces: captured pieces are replayed, and only breaks and trimmed layers run eagerly.
        left_out: operators whose host time is counted elsewhere.
    """
    model, backbone = compiled.model, compiled.backbone
    form = np.zeros(len(compiled.program.columns))
    once = calls.forward[mode].seconds(host)
    piece_s = calls.piece.seconds(host) if pieces else 0.0
    form += compiled.vector({Column(Count.ACTIVE, Region.FULL): once + piece_s})
    for step in (*backbone.chain, *backbone.beside, *backbone.draft):
        kind, ratio, trimmed = "", 0, False
        if 0 <= step.layer < len(model.layers):
            layer = model.layers[step.layer]
            kind, ratio = str(layer.kind), layer.ratio
            trimmed = compiled.program.classes[step.layer].region is Region.LATE
        for task in tasks_of(step.node):
            eager = [
                name
                for name in task.replaces
                if name not in left_out and (trimmed or not pieces or name in calls.breaks)
            ]
            seconds = sum(calls.calls(name, mode, kind, ratio).seconds(host) for name in eager)
            if "sparse_attention" in eager and not trimmed:
                seconds += piece_s
            if seconds:
                form += seconds * compiled.vector(dict.fromkeys(task.launches, 1.0))
    return form
