"""Fusion profiles do the work of each elementary operator exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from aisim_v41.errors import InvalidInputError
from aisim_v41.ops.fusion import PROFILES, Fusion
from aisim_v41.ops.graph import Par, Seq
from aisim_v41.ops.operator import Traffic, fuse
from aisim_v41.plan.policy import RuntimePolicy, policy
from ops.graphs import ELEMENTARY, added, built

RUNTIMES = {
    "paper": policy("paper"),
    "paper, KV alone at the boundary": policy("paper", decoder_replay=True),
    "sglang": policy("sglang"),
    "sglang, replay": policy("sglang", decoder_replay=True),
    "vllm, KV alone at the boundary": policy("vllm", decoder_replay=True, boundary_layer="kv_only"),
    "trtllm, replay": policy("trtllm", decoder_replay=True),
    "padded heads": policy("sglang", attention_head_multiple=64),
}
FUSED = [name for name in PROFILES if name != "elementary"]
KINDS = [k for k in Traffic if k not in (Traffic.ACTIVATION_READ, Traffic.ACTIVATION_WRITE)]

cases = pytest.mark.parametrize(
    ("runtime", "tp", "profile"),
    [
        pytest.param(runtime, tp, profile, id=f"{name}-tp{tp}-{profile}")
        for name, runtime in RUNTIMES.items()
        for tp in (1, 4)
        for profile in FUSED
    ],
)


def both(runtime: RuntimePolicy, tp: int, profile: str):
    return (
        built(runtime.with_overrides(fusion=name), tp).tasks for name in ("elementary", profile)
    )


@cases
def test_every_elementary_operator_exactly_once(runtime: RuntimePolicy, tp: int, profile: str):
    elementary, fused = both(runtime, tp, profile)
    assert all(task.replaces == (task.name,) for task in elementary)
    done = Counter(name for task in fused for name in task.replaces)
    assert done == Counter(task.name for task in elementary)
    assert len(fused) < len(elementary)


@cases
def test_work_weights_cache_and_messages_are_the_same(
    runtime: RuntimePolicy, tp: int, profile: str
):
    elementary, fused = both(runtime, tp, profile)

    def work(tasks):
        kinds = {kind for task in tasks for kind in task.flops}
        return {k: added(task.flops[k] for task in tasks if k in task.flops) for k in kinds}

    def messages(tasks):
        kinds = {(t.collective, t.group) for t in tasks if t.collective}
        return {k: added(t.payload for t in tasks if (t.collective, t.group) == k) for k in kinds}

    assert work(fused) == work(elementary)
    assert messages(fused) == messages(elementary)
    assert bool(messages(fused)) == (tp > 1)
    for kind in KINDS:
        assert added(t.traffic[kind] for t in fused) == added(t.traffic[kind] for t in elementary)


@cases
def test_fusing_saves_activation_traffic_and_launches(
    runtime: RuntimePolicy, tp: int, profile: str
):
    elementary, fused = both(runtime, tp, profile)
    for forms in (
        lambda task: task.traffic[Traffic.ACTIVATION_READ],
        lambda task: task.traffic[Traffic.ACTIVATION_WRITE],
        lambda task: task.launches,
    ):
        before, after = added(map(forms, elementary)), added(map(forms, fused))
        assert set(after) <= set(before)
        assert all(after[column] <= before[column] for column in after)
        assert after != before


# --- what one operator hands to the next ---------------------------------------------------------

SAME_TENSOR = {"streams_before": "streams", "streams_with_memory": "streams"}
FROM_OUTSIDE = {"embedding_rows"}
"""The embedding table."""


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_what_is_read_has_been_written(runtime: RuntimePolicy, tp: int, profile: str):
    """In order of the graph, and never more bytes a row than were written."""
    written: dict[str, float] = {}
    graph = built(runtime.with_overrides(fusion=profile), tp)
    steps = (*graph.backbone.beside, *graph.backbone.chain)
    for task in (task for step in steps for task in _in_order(step.node)):
        for tensor, form in task.inputs.items():
            name = SAME_TENSOR.get(tensor, tensor)
            if name not in FROM_OUTSIDE:
                assert name in written, f"{task.name} reads {tensor}, which nobody wrote"
                assert sum(form.values()) <= written[name], (task.name, tensor)
        for tensor, form in task.outputs.items():
            written[SAME_TENSOR.get(tensor, tensor)] = sum(form.values())


def _in_order(node):
    """Tasks of a node; members of a block may be written in any order, so writers come first."""
    if isinstance(node, Seq):
        for member in node.members:
            yield from _in_order(member)
    elif isinstance(node, Par):
        branches = [list(_in_order(member)) for member in node.members]
        made = {name for branch in branches for task in branch for name in task.outputs}
        yield from (
            t for branch in sorted(branches, key=lambda b: _foreign(b, made)) for t in branch
        )
    else:
        yield node


def _foreign(branch, made) -> int:
    """How many tensors a branch takes from its siblings."""
    own = {name for task in branch for name in task.outputs}
    return len({name for task in branch for name in task.inputs} & made - own)


# --- single rules --------------------------------------------------------------------------------


def tasks_named(profile: str, layer: int, tp: int = 1, **changed):
    graph = built(policy("paper", fusion=profile, **changed), tp)
    return {task.name: task for task in graph.by_layer[layer]}


def test_engram_breaks_the_fusion_of_two_sites():
    """Streams are edited between the expansion of layer 0 and the collapse of layer 1."""
    for profile in FUSED:
        before, after = (tasks_named(profile, layer) for layer in (0, 1))
        assert before["mhc_expand"].replaces == ("mhc_expand",)
        assert "engram_gate" in after


def test_the_replay_cut_breaks_it_once():
    """Layer 20 expands all rows, layer 21 collapses the tail."""
    full = built(policy("sglang", decoder_replay=True, fusion="single_pass"))
    (expansion,) = (t for t in full.by_layer[20] if t.replaces == ("mhc_expand",))
    assert str(expansion.rows) == "query_rows full"
    first_late = full.by_layer[21][0]
    assert "mhc_expand" not in first_late.replaces
    assert str(first_late.rows) == "query_rows late"
    for layer in (22, 30, 39):
        assert "mhc_expand" in full.by_layer[layer][0].replaces


def test_sglang_joins_all_reduce_and_hyper_connections():
    expected = ("all_reduce_experts", "mhc_expand", "mhc_collapse", "site_norm", "site_quantise")
    graph = built(policy("sglang"), 4)
    assert graph.by_layer[5][0].replaces == expected


def test_rows_before_conversion_are_written_where_someone_reads_them():
    """The router of every layer, and the indexer and compressor of some."""
    reuse, reindex = tasks_named("single_pass", 22), tasks_named("single_pass", 24)
    for layer, in_attention in ((22, False), (24, True)):
        graph = built(policy("paper"))
        sites = [t for t in graph.by_layer[layer] if t.name == "mhc_single_pass"]
        assert ["normed" in site.outputs for site in sites] == [in_attention, True]
        assert all("quantised" in site.outputs for site in sites)
    assert "index_query_with_rope" in reindex
    assert "index_query_with_rope" not in reuse


def test_an_unknown_profile_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"'sglang_decod'.*sglang_decode"):
        Fusion("sglang_decod")


def test_a_lone_operator_stays_what_it_is():
    (task, *_) = (t for t in built(policy("paper")).by_layer[22] if t.name == "o_up")
    assert Fusion("single_pass").chain(task, None) == [task]


def test_operators_of_different_rows_do_not_fuse():
    """Full rows and tail rows of one model."""
    graph = built(policy("paper", decoder_replay=True, fusion="elementary", boundary_layer="full"))
    (down,) = (t for t in graph.by_layer[20] if t.name == "q_down")
    (norm,) = (t for t in graph.by_layer[21] if t.name == "q_norm")
    (own,) = (t for t in graph.by_layer[21] if t.name == "q_down")
    fusion = Fusion("single_pass")
    assert fusion.chain(down, norm) == [down, norm]
    (joined,) = fusion.chain(own, norm)
    assert joined.replaces == ("q_down", "q_norm")
    assert fusion.chain(own, norm) == [joined]  # made once
    assert fusion.chain(own, norm, own, norm) == [joined, joined]


def test_a_tensor_that_several_members_read_is_read_once():
    graph = tasks_named("elementary", 22)
    statistics, collapse = graph["mhc_statistics"], graph["mhc_collapse"]
    both = fuse("both", [statistics, collapse])
    assert both.inputs == {"streams": statistics.inputs["streams"]}
    assert set(both.outputs) == {"coefficients", "mixed"}


def test_a_fused_kernel_never_has_the_name_of_an_elementary_operator():
    """So that a name says what work it is, in tables and side by side."""
    elementary = {task.name for task in built(ELEMENTARY, 4).tasks}
    for profile, groups in PROFILES.items():
        assert not {group.name for group in groups} & elementary, profile
