"""Graphs: how they are written, and which rows their tasks run on under replay."""

from __future__ import annotations

import copy
import json

import pytest

from aisim_v41.model.load import model_from_config
from aisim_v41.ops.graph import Par, Seq, par, seq, tasks_of
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from aisim_v41.resources import find
from ops.graphs import ELEMENTARY, amount, built, counts, flop

A, B, C = built(ELEMENTARY).tasks[:3]


def test_sequences_are_flattened():
    assert seq(A, None, seq(B, C)).members == (A, B, C)
    assert seq(A) is A
    assert seq(None, A, None) is A
    assert seq().members == ()


def test_blocks_are_flattened_and_empty_members_left_out():
    assert par(A, par(B, C)).members == (A, B, C)
    assert par(A, None, seq()) is A
    chain = seq(A, B)
    assert par(chain, C).members == (chain, C)
    assert isinstance(seq(par(A, B), C), Seq)
    assert isinstance(par(chain, C), Par)


def test_tasks_in_order_and_as_often_as_they_occur():
    assert list(tasks_of(seq(A, par(B, seq(C, A)), B))) == [A, B, C, A, B]


@pytest.mark.parametrize("tp", [1, 4])
def test_every_layer_has_both_sites(tp: int):
    layers = built(ELEMENTARY, tp).by_layer
    for layer in range(40):
        names = [task.name for task in layers[layer]]
        for name, times in {
            "sparse_attention": 1, "routed_experts": 1, "shared_expert": 1, "q_up": 1, "o_up": 1,
            "mhc_statistics": 2, "mhc_collapse": 2, "mhc_expand": 2, "site_norm": 2,
            "all_reduce_attention": tp > 1, "all_reduce_experts": tp > 1,
            "index_score": layer in (2, 8, 14, 20, 24, 28, 32, 36),
            "compress_project": layer in (2, 8, 14, 20), "engram_gate": layer in (1, 14),
        }.items():  # fmt: skip
            assert names.count(name) == times, (layer, name)


@pytest.mark.parametrize("whole", [True, False])
def test_a_whole_shared_expert_runs_beside_the_all_reduce(whole: bool):
    """It is added after the sum (runtime-semantics §4.1); a split one takes part in it."""
    runtime = policy("paper", shared_expert="replicated" if whole else "split")
    blocks = [
        member
        for step in built(runtime, 4).backbone.chain
        if isinstance(step.node, Par)
        for member in step.node.members
        if any(task.name == "routed_experts" for task in tasks_of(member))
    ]
    assert len(blocks) == 40
    for block in blocks:
        names = [task.name for task in tasks_of(block)]
        assert "shared_expert" not in names
        assert ("all_reduce_experts" in names) is whole
    names = [task.name for task in built(runtime, 4).tasks]
    assert names.count("all_reduce_experts") == 40


LATE_ONLY = {"query_rows late", "index_rows late ratio1"}


def test_replay_cuts_rows_after_the_last_owner():
    """SGLang: layers 0-20 on all rows, 21-39 on the tail."""
    layers = built(policy("sglang", decoder_replay=True, fusion="elementary")).by_layer
    for layer in range(40):
        rows = {str(task.rows) for task in layers[layer]}
        assert (rows <= LATE_ONLY) == (layer > 20), (layer, rows)


def test_the_boundary_layer_writes_for_all_rows_and_queries_with_the_tail():
    """Report §3.2.2: at layer 20 only what KV needs runs on every row."""
    runtime = policy("paper", decoder_replay=True, fusion="elementary")
    on_all = {str(task.rows): [] for task in built(runtime).by_layer[20]}
    for task in built(runtime).by_layer[20]:
        on_all[str(task.rows)].append(task.name)
    assert set(on_all["query_rows full"]) == {
        "mhc_collapse", "site_norm", "site_quantise", "kv_down", "kv_store",
    }  # fmt: skip
    # The expert site of the layer reads the streams of the tail.
    assert {"mhc_collapse", "routed_experts", "q_up", "o_up"} <= set(on_all["query_rows late"])


def test_work_of_a_cut_prompt():
    """8,192 tokens: layers 0-19 on all rows, layer 20's KV part, and 20 layers on 128 rows."""
    off = policy("paper", fusion="elementary")
    on = policy("paper", decoder_replay=True, fusion="elementary")
    one = Request(new_tokens=8192)
    linear = ("q_down", "q_up", "o_down", "o_up", "routed_experts", "shared_expert", "router_gate")
    whole, cut = (flop(built(p).tasks, counts(p, one), *linear) for p in (off, on))
    assert cut * (40 * 8192) == whole * (20 * 8192 + 20 * 128)
    for name in ("compress_project", "index_key"):  # layer 20 writes all its entries
        assert flop(built(on).tasks, counts(on, one), name) == flop(
            built(off).tasks, counts(off, one), name
        )
    kept = flop(built(on).tasks, counts(on, one), "kv_down")
    assert kept == 2 * 2_621_440 * (21 * 8192 + 19 * 128)


def test_no_late_rows_read_no_late_weights():
    """TensorRT-LLM's early chunks run layers 21-39 on no row at all (runtime-semantics §1.5)."""
    runtime = policy("trtllm", decoder_replay=True)
    early = counts(runtime, Request(new_tokens=8192, prompt_tokens=32_768))
    layers = built(runtime).by_layer
    for layer in range(21, 41):
        for task in layers[layer]:
            assert all(amount(form, early) == 0 for form in task.traffic.values()), task.name
            assert all(amount(form, early) == 0 for form in task.flops.values()), task.name
            assert amount(task.launches, early) == 0, task.name
    assert amount(layers[20][-1].launches, early) == 1
    last = counts(runtime, Request(new_tokens=8192, prefix_tokens=24_576, prompt_tokens=32_768))
    read = [amount(task.traffic[Traffic.WEIGHTS], last) for task in layers[39]]
    assert sum(read) > 0


def config() -> dict:
    text = find("profiles", "deepseek-v4.1-flash", "/config.json").read_text(encoding="utf-8")
    return copy.deepcopy(json.loads(text))


def test_engram_follows_the_rows_of_its_layer():
    """A changed config with its second module in the decoder: there it runs on the tail."""
    changed = config()
    changed["text_config"]["engram_layer_ids"] = [1, 25]
    runtime = policy("sglang", decoder_replay=True, fusion="elementary")
    graph = built(runtime, of=model_from_config(changed, name="late engram"))
    for layer, region in ((1, "full"), (25, "late")):
        tasks = [task for task in graph.by_layer[layer] if task.name.startswith("engram")]
        assert len(tasks) == 3
        assert {str(task.rows) for task in tasks} == {f"query_rows {region}"}
        assert {str(c) for task in tasks for c in task.launches} == {f"active {region}"}


def test_a_model_without_shared_expert_or_indexer():
    changed = config()
    text = changed["text_config"]
    for key in [k for k in text if k.startswith(("index_", "candidate_", "kv_source"))]:
        del text[key]
    text["compress_ratios"] = [0] * len(text["compress_ratios"])
    text["n_shared_experts"] = 0
    graph = built(ELEMENTARY, 4, of=model_from_config(changed, name="bare"))
    names = {task.name for task in graph.tasks}
    assert not names & {"index_score", "compress_project", "shared_expert", "main_store"}
    assert {"routed_experts", "sparse_attention", "engram_gate"} <= names
