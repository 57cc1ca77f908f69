"""Claims on kernels: activation traffic of hyper-connections in its three forms, expert slices.

The three forms are made of the same elementary operators by `aisim_v41.ops.operator.fuse`: what one
hands to the next stays on chip. Coefficients (n(n + 2) values a row) are left out, as the report
leaves them out. Source: technical report §2.4.1; slices: SGLang blog Beyond Day-0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.work import paper
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules, local
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.ops import hyper
from aisim_v41.ops.fusion import PROFILES
from aisim_v41.ops.operator import Columns, Task, fuse, place
from aisim_v41.ops.rank import BF16_BYTES, FP8_BYTES, rank_of
from aisim_v41.plan.columns import layer_classes

NOT_COUNTED = "coefficients"
ELEMENT_BYTES: Mapping[str, float] = {"quantised": FP8_BYTES}
"""Bytes of one value of the tensors that are not BF16."""


def site(context: Context) -> dict[str, Task]:
    """Elementary operators of one site of one layer, in the order in which they run."""
    policy, model = paper(context), context.model
    rank = rank_of(model, Parallel(), policy, has_fp4=True)
    weights, where = rank.layer(model.layers[0]), layer_classes(model, policy)[0]
    operators = (
        hyper.expand(rank),
        hyper.statistics(rank, weights, "attn"),
        hyper.collapse(rank),
        hyper.site_norm(rank, weights, "attn"),
        hyper.site_quantise(rank),
    )
    return {operator.name: place(operator, where) for operator in operators}


def elements(*kernels: Task) -> float:
    """Activation values that kernels read and write for one row, coefficients left out."""
    return sum(
        _bytes_per_row(form) / ELEMENT_BYTES.get(name, BF16_BYTES)
        for kernel in kernels
        for tensors in (kernel.inputs, kernel.outputs)
        for name, form in tensors.items()
        if name != NOT_COUNTED
    )


def _bytes_per_row(form: Columns) -> float:
    return sum(form.values())


def multi_pass(context: Context) -> float:
    """Every operator a kernel of its own; the pre-norm counts, the FP8 conversion does not."""
    return elements(*(task for name, task in site(context).items() if name != "site_quantise"))


def two_pass(context: Context) -> float:
    """Expansion in one kernel; coefficients, collapse and norm, which re-read it, in another."""
    tasks = site(context)
    second = fuse(
        "second_pass", [tasks[n] for n in ("mhc_statistics", "mhc_collapse", "site_norm")]
    )
    return elements(tasks["mhc_expand"], second)


def fused(profile: str) -> Callable[[Context], float]:
    """The kernel that a fusion profile makes of a site."""

    def value(context: Context) -> float:
        group = next(g for g in PROFILES[profile] if "mhc_statistics" in g.members)
        members = [task for name, task in site(context).items() if name in group.members]
        return elements(fuse(group.name, members, kept=group.kept))

    return value


def in_hidden_widths(count: Callable[[Context], float]) -> Formula:
    """A number of values in units of the hidden width d."""
    return lambda context: count(context) / context.model.hidden


def expert_slice(ranks: int, *, multiple: int = 1) -> Formula:
    """Columns of one routed expert on a rank, padded to a multiple for the kernel."""

    def value(context: Context) -> int:
        tensors = layer_tensors(context.model, context.model.layers[0])
        rules = ShardingRules(expert_slice_multiple=multiple)
        return local(tensors["ffn.experts.w1"], Parallel(tp=ranks), rules).rows

    return value


WIDE_TILE, NARROW_TILE = 128, 64
"""Columns to which expert kernels pad (SGLang blog Beyond Day-0, §2.1, §3.1)."""

FORMULAS: Mapping[str, Formula] = {
    "kern-01": multi_pass,
    "kern-02": fused("single_pass"),
    "kern-03": two_pass,
    "kern-04": lambda c: fused("single_pass")(c) / multi_pass(c),
    "kern-01-d": in_hidden_widths(multi_pass),
    "kern-02-d": in_hidden_widths(fused("single_pass")),
    "kern-02-vllm": in_hidden_widths(fused("vllm_mega_mhc")),
    "kern-03-d": in_hidden_widths(two_pass),
    "kern-07": expert_slice(4),
    "kern-07-padded": expert_slice(4, multiple=WIDE_TILE),
    "kern-08": expert_slice(8),
    "kern-08-padded": expert_slice(8, multiple=NARROW_TILE),
    "kern-08-formerly": expert_slice(8, multiple=WIDE_TILE),
}
