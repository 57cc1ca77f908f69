"""Activation traffic of one hyper-connection site (report §2.4.1; model-facts §4.1).

For n = 4 streams of width d = 5120: (4n + 4) d elements with a kernel for each operator,
(3n + 2) d in two passes, (2n + 2) d in one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from aisim_v41.ops.operator import Task, fuse
from aisim_v41.plan.policy import policy
from ops.graphs import built

HIDDEN, STREAMS = 5120, 4
BF16 = 2
WIDE = {"streams", "streams_before", "sublayer", "sublayer_summed", "mixed", "normed"}
"""Tensors of the hidden width; the report counts neither coefficients nor converted rows."""


def elements(tasks: Iterable[Task]) -> float:
    """Values of the hidden width that pass through memory for one row."""
    forms = [
        form
        for task in tasks
        for tensors in (task.inputs, task.outputs)
        for name, form in tensors.items()
        if name in WIDE
    ]
    return sum(value for form in forms for value in form.values()) / BF16


def site(tp: int) -> list[Task]:
    """Expansion of the attention site of layer 22, then the reading of its expert site."""
    tasks = built(policy("paper", fusion="elementary"), tp).by_layer[22]
    names = [task.name for task in tasks]
    expand = names.index("mhc_expand")
    following = {task.name: task for task in tasks[expand:]}
    order = ("mhc_expand", "mhc_statistics", "mhc_collapse", "site_norm")
    return [following[name] for name in order]


@pytest.mark.parametrize("tp", [1, 4])
def test_elementary(tp: int):
    """Read 1 + n, write n; read n; read n, write 1; read 1, write 1."""
    assert elements(site(tp)) == (4 * STREAMS + 4) * HIDDEN == 20 * HIDDEN == 102_400


@pytest.mark.parametrize("tp", [1, 4])
def test_two_passes(tp: int):
    expand, statistics, collapse, norm = site(tp)
    two = [fuse("post_collapse_norm", [expand, collapse, norm], kept=["streams"]), statistics]
    assert elements(two) == (3 * STREAMS + 2) * HIDDEN == 14 * HIDDEN == 71_680


@pytest.mark.parametrize("tp", [1, 4])
def test_one_pass(tp: int):
    one = fuse("single", site(tp), kept=["streams"])
    assert elements([one]) == (2 * STREAMS + 2) * HIDDEN == 10 * HIDDEN == 51_200


@pytest.mark.parametrize("tp", [1, 4])
def test_profiles_reach_it(tp: int):
    """vLLM's kernel ends in BF16: 10 d. The report's also converts: without the BF16 copy where
    only products read the rows, with it before a router. SGLang's leaves the statistics apart."""
    mega, single, joined = (
        [t for t in built(policy("paper", fusion=name), tp).by_layer[22] if t.name == kernel]
        for name, kernel in (
            ("vllm_mega_mhc", "mega_mhc"),
            ("single_pass", "mhc_single_pass"),
            ("sglang_decode", "all_reduce_mhc"),
        )
    )
    assert [elements([task]) for task in mega] == [10 * HIDDEN, 10 * HIDDEN]
    assert [elements([task]) for task in single] == [9 * HIDDEN, 10 * HIDDEN]
    assert [elements([task]) for task in joined] == [9 * HIDDEN, 10 * HIDDEN]


@pytest.mark.parametrize("values", [20, 14, 10])
def test_the_page_has_these_bytes(values: int):
    """Of a site and of a layer, which has two."""
    page = (Path(__file__).parents[2] / "docs/updates.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if f"d = {values * HIDDEN:,} |" in line)
    assert f"| {values * HIDDEN * BF16:,} | {2 * values * HIDDEN * BF16:,} |" in row


def test_a_residual_stream_is_102400_bytes_a_site_in_one_pass():
    one = fuse("single", site(1), kept=["streams"])
    assert elements([one]) * BF16 == 102_400
    assert sum(one.outputs["coefficients"].values()) == 24 * 4
