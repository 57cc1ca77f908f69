"""Features of routed experts: from the mean group of expert parallelism to the fullest one.

The ledger counts what all groups do, so that a task holds the mean. A kernel is as long as its
rank's work, and the layer as its longest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aisim_v41.plan.expert_groups import Floats, fullest_group, of_copies

_TINY = 1e-9


def of_fullest(x: Mapping[str, Floats | float]) -> dict[str, Floats | float]:
    """The features of the fullest group.

    Its choices grow arithmetic and the bytes of rows, its distinct experts the bytes of weights.
    With copies of experts nothing of their popularity is left (docs/assumptions.md, "Expert
    parallelism").

    Args:
        x: features of `aisim_v41.evidence.laws.experts` of the mean group, ``groups`` among them.
    """
    groups, copies = float(np.max(x["groups"])), np.asarray(x["copies"])
    own = np.asarray(x["routed"])
    held = own + copies
    touched, choices = np.asarray(x["touched"]), np.asarray(x["rows"]) * x["top_k"]
    read = of_copies(touched, own, held)
    fullest = fullest_group(
        choices * groups,
        read * groups,
        int(groups),
        held * groups,
        np.where(copies > 0, 0.0, x["skew"]),
        float(np.max(x["imbalance"])),
    )
    grown = np.maximum(fullest.choices / np.maximum(choices, _TINY), 1.0)
    weights, rows = x["expert_memory_s"], x["memory_s"] - touched * x["expert_memory_s"]
    return {
        **x,
        "compute_s": x["compute_s"] * grown,
        "memory_s": rows * grown + fullest.touched * weights,
        "touched": fullest.touched,
        "top_k": x["top_k"] * grown,
    }
