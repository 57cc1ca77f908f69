"""Every trap that the descriptions of the open data list, and where it went."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aisim_v41.tables import ANY, GPUS, load_table

BLACKWELL = ("gb200", "gb300", "b200", "b300")
HOPPER = ("h100", "h200")


def frame(gpu: str, family: str) -> pd.DataFrame:
    return load_table(gpu, family).to_frame()


def flagged(gpu: str, family: str, flag: str) -> pd.DataFrame:
    rows = frame(gpu, family)
    return rows[rows["flag"] == flag]


# --- peer-data-newer.md, section 7 ------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS)
def test_v41_rows_are_eager_and_say_so(gpu: str):
    for family in ("v41_modules", "v41_dense"):
        rows = frame(gpu, family)
        assert set(rows["execution"]) == {"eager"}
        assert set(rows["model_shapes"]) == {"v4.1_exact"}
        assert "no kernel efficiency" in " ".join(load_table(gpu, family).sidecar["remarks"])


def test_gb200s_slow_node_is_marked():
    dense = flagged("gb200", "v41_dense", "faulty_node")
    experts = dense[dense["operator"] == "routed_experts"]
    assert sorted(zip(experts["tensor_parallel"], experts["tokens"], strict=True)) == [
        (2, 4096),
        (4, 129),
    ]
    assert experts["latency_us"].max() == pytest.approx(2605.7, abs=1)
    head = dense[dense["operator"] == "head"]
    assert set(head["tensor_parallel"]) == {2}
    assert len(head) == 15
    assert not len(load_table("gb200", "v41_dense").select(operator="head", tensor_parallel=2))
    assert len(load_table("gb200", "v41_dense").select(operator="head", tensor_parallel=4)) == 15


def test_gb200s_warm_up_is_marked():
    rows = flagged("gb200", "v41_modules", "warm_up")
    assert len(rows) == 18
    assert set(rows["new_tokens_per_request"]) == {1}
    assert (rows["prefix_tokens"] > 0).all()
    part = load_table("gb200", "v41_modules").select(
        operator="swa", phase="prefill", tensor_parallel=4, decoder_replay="off"
    )
    assert part.exact(batch=1, new_tokens_per_request=1, prefix_tokens=512) is None
    again = load_table("gb200", "v41_modules").select(
        operator="swa", phase="prefill", tensor_parallel=4, decoder_replay="off", flags=["warm_up"]
    )
    assert again.exact(batch=1, new_tokens_per_request=1, prefix_tokens=512).latency_us == 3764.83


def test_gb300s_replay_modes_are_two_identities_and_their_gap_is_said():
    table = load_table("gb300", "v41_modules")
    assert {i["decoder_replay"] for i in table.identities} == {"off", "on"}
    assert {i["campaign"] for i in table.identities} == {
        "profile-full-gb300",
        "profile-decoder_bounded-gb300",
    }
    assert any("differs by 7 %" in remark for remark in table.sidecar["remarks"])


@pytest.mark.parametrize("gpu", GPUS)
def test_bounded_rows_are_an_identity(gpu: str):
    rows = frame(gpu, "v41_modules")
    bounded = rows[rows["prefill_rows"] == "bounded"]
    assert len(bounded) > 200
    assert set(bounded["decoder_replay"]) == {"on"}
    assert bounded["new_tokens_per_request"].max() == 128
    assert set(bounded["operator"]) == {"reuse_r1", "reindex_r1"}
    whole = rows[(rows["phase"] == "prefill") & (rows["prefill_rows"] == "all")]
    assert whole["new_tokens_per_request"].max() > 128


def test_decode_prefix_is_the_length_without_the_token():
    rows = frame("b200", "v41_modules")
    decode = rows[rows["phase"] == "decode"]
    assert set(decode["new_tokens_per_request"]) == {1}
    lengths = {3, 4, 9, 33, 65, 128, 129, 130, 257, 513, 1025, 1537, 2049}
    assert set(decode["prefix_tokens"]) == {length - 1 for length in lengths}


@pytest.mark.parametrize("gpu", GPUS)
def test_messages_are_bytes(gpu: str):
    rows = frame(gpu, "v41_dense")
    sizes = rows.loc[rows["operator"] == "all_reduce", "message_bytes"]
    assert sizes.min() == 10240  # 5120 BF16 values: one token
    graph = frame(gpu, "collectives")
    assert graph.loc[graph["operator"] == "all_reduce", "message_bytes"].min() == 256
    assert load_table(gpu, "collectives").sidecar["units"]["message_bytes"] == "byte"


def test_gb300s_hca_without_past_is_marked():
    rows = flagged("gb300", "attention", "slow_without_prefix")
    assert len(rows) == 19
    assert set(rows["prefix_tokens"]) == {0}
    assert set(rows["batch"]) == {1}  # four requests and more agree with gb200 within 4 %
    table = load_table("gb300", "attention")
    good = table.select(operator="hca_prefill", engine="sglang")
    assert good.exact(batch=1, new_tokens_per_request=8192, prefix_tokens=0) is None
    assert (
        good.exact(batch=1, new_tokens_per_request=8192, prefix_tokens=65536).latency_us == 1710.9
    )
    others = load_table("gb200", "attention").select(operator="hca_prefill", engine="sglang")
    key = {"batch": 16, "new_tokens_per_request": 512, "prefix_tokens": 0}
    assert good.exact(**key).latency_us / others.exact(**key).latency_us == pytest.approx(
        1, abs=0.04
    )


def test_b200s_older_engines_are_in_the_identity():
    gemm = {i["engine"]: i["engine_version"] for i in load_table("b200", "gemm").identities}
    assert gemm == {"sglang": "0.5.17", "vllm": "0.27.1", "trtllm": "1.3.0rc20"}
    reduce = {i["engine_version"] for i in load_table("b200", "collectives").identities
              if i["engine"] == "sglang"}  # fmt: skip
    assert reduce == {"0.5.14"}
    remarks = load_table("b200", "gemm").sidecar["remarks"]
    assert any("b200 stops at older engines" in remark for remark in remarks)


def test_b200s_vllm_block_products_are_unusable():
    rows = flagged("b200", "gemm", "weight_packing")
    assert len(rows) == 588
    assert set(rows["engine"]) == {"vllm"}
    assert rows["latency_us"].min() > 150
    table = load_table("b200", "gemm")
    assert len(table.select(engine="vllm", dtype="fp8_block128")) == 0
    assert len(table.select(engine="vllm", dtype="bf16")) == 588
    assert len(load_table("b300", "gemm").select(engine="vllm", dtype="fp8_block128")) == 588


# --- DSV41_DATA.md ----------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS)
def test_the_two_kinds_of_campaign_are_identities(gpu: str):
    kinds = {i["campaign"].split("-")[0] for i in load_table(gpu, "v41_modules").identities}
    assert kinds == ({"profile"} if gpu in ("gb300", "b300") else {"data"})


@pytest.mark.parametrize("gpu", GPUS)
def test_one_new_token_without_past_skips_the_compressor(gpu: str):
    rows = frame(gpu, "v41_modules")
    marked = rows[rows["caveat"] == "no_pair_completes"]
    assert len(marked) >= 4
    assert set(marked["operator"]) == {"full_r2"}
    assert set(marked["flag"]) == {""}


@pytest.mark.parametrize("gpu", HOPPER)
def test_hopper_rows_with_gpu_time_are_apart(gpu: str):
    rows = flagged(gpu, "v41_modules", "host_ahead")
    swa = rows[(rows["operator"] == "swa") & (rows["phase"] == "prefill")]
    assert {1536} <= set(swa["prefix_tokens"])
    kept = load_table(gpu, "v41_modules").select(
        operator="swa", phase="prefill", tensor_parallel=4, decoder_replay="off"
    )
    floor = np.median(kept.latency_us)
    assert kept.latency_us.min() > 0.75 * floor


def test_b300s_queued_forwards_are_apart():
    rows = flagged("b300", "v41_modules", "host_ahead")
    engram = rows[rows["operator"] == "engram_layer_1"]
    assert engram["tokens"].min() == 512
    assert {768: 159.0, 1536: 274.0}.items() <= {
        int(tokens): round(us) * 1.0
        for tokens, us, campaign in zip(
            engram["tokens"], engram["latency_us"], engram["campaign"], strict=True
        )
        if campaign == "profile-tp2-full-b300_sxm"
    }.items()
    assert not len(flagged("gb300", "v41_modules", "host_ahead"))
    assert not len(flagged("b200", "v41_modules", "host_ahead"))


def test_across_trays_is_an_identity():
    table = load_table("gb300", "collectives")
    far = table.matching(reach="across_trays")
    assert {i["engine"] for i in far} == {"sglang", "trtllm", "vllm"}
    near = table.select(engine="sglang", execution="graph", reach="one_tray")
    assert set(near.sizes["ranks"].tolist()) == {2, 4}
    assert {i["reach"] for i in load_table("b200", "collectives").identities} == {"one_board"}


@pytest.mark.parametrize("gpu", GPUS)
def test_the_clock_of_mhc_shows_on_blackwell(gpu: str):
    rows = frame(gpu, "hyper_connections")
    if gpu in BLACKWELL:
        assert set(rows["resolution_us"]) == {2.05}
    else:
        assert rows["resolution_us"].isna().all()


@pytest.mark.parametrize("gpu", GPUS)
def test_one_timing_of_mhc_is_both_sites(gpu: str):
    rows = frame(gpu, "hyper_connections")
    two = rows["operator"].isin(["pre", "post", "fused_post_pre"])
    assert set(rows.loc[two, "sites_per_timing"]) == {2}
    assert set(rows.loc[~two, "sites_per_timing"]) <= {1}
    assert set(rows.loc[~two, "caveat"]) <= {"copy_kernel"}
    modules = frame(gpu, "v41_modules")
    assert set(modules.loc[modules["operator"] == "mhc", "sites_per_timing"]) == {2}
    assert set(modules.loc[modules["operator"] != "mhc", "sites_per_timing"]) == {ANY}


@pytest.mark.parametrize("gpu", GPUS)
def test_top_k_depends_on_the_scores(gpu: str):
    table = load_table(gpu, "attention")
    key = {"batch": 1, "new_tokens_per_request": 1, "prefix_tokens": 16384}
    names = {"operator": "index_topk", "kernel_source": "topk_transform_v2"}
    equal, ordered = (table.select(score_pattern=p, **names).exact(**key).latency_us
                      for p in ("equal", "ordered"))  # fmt: skip
    assert equal > 10 * ordered
    slow = flagged(gpu, "attention", "equal_scores")
    assert set(slow["operator"]) == {"csa_decode"}
    assert set(slow["engine"]) == {"sglang"}
    assert slow["prefix_tokens"].between(2049, 131071).all()
    sound = table.select(operator="csa_decode", engine="sglang")
    assert {1024, 2048, 131072} <= set(sound.sizes["prefix_tokens"].tolist())
    assert 8192 not in sound.sizes["prefix_tokens"]


@pytest.mark.parametrize("gpu", GPUS)
def test_nothing_is_counted_twice(gpu: str):
    """Same measurement in two files: the newer file's row only."""
    for family in ("gemm", "experts", "attention", "hyper_connections"):
        rows = frame(gpu, family)
        apart = {"engine_version", "latency_us", "samples", "spread_relative", "resolution_us",
                 "flag", "caveat", "source"}  # fmt: skip
        if family != "attention":  # two top-k kernels share their keys
            apart.add("kernel_source")
        key = [name for name in rows if name not in apart]
        files = rows.groupby(key)["source"].nunique()
        assert files.max() == 1


def test_times_of_zero_are_dropped_and_counted():
    for gpu in GPUS:
        dropped = load_table(gpu, "attention").sidecar["dropped"]
        zeros = [entry for entry in dropped if entry["reason"].startswith("0 us")]
        assert sum(entry["rows"] for entry in zeros) >= 244
        topk = frame(gpu, "attention").query("operator == 'index_topk'")
        assert topk["latency_us"].min() > 1


# --- peer-data.md, section 6 ------------------------------------------------------------------


def test_noisy_block_products_of_gb200_are_marked():
    rows = flagged("gb200", "gemm", "noisy_minimum")
    assert set(rows["outputs"]) == {51200}
    assert set(rows["rows"]) == {8192, 16384, 32768}
    assert set(rows["engine_version"]) == {"0.5.14"}
    assert not len(flagged("gb300", "gemm", "noisy_minimum"))


@pytest.mark.parametrize("gpu", GPUS)
def test_products_whose_weights_fit_the_l2_say_so(gpu: str):
    rows = frame(gpu, "gemm")
    small = rows["caveat"] == "weights_may_stay_in_l2"
    assert set(rows["cache_state"]) == {"unknown"}
    bf16 = rows["dtype"] == "bf16"
    sizes = rows["outputs"] * rows["inputs"]
    limit = {"h100": 4.5e6, "h200": 4.5e6}.get(gpu, 12e6)
    assert sizes[small & bf16].max() < limit
    assert sizes[~small & bf16].min() > 0.7 * limit


@pytest.mark.parametrize("gpu", GPUS)
def test_index_logits_in_decode_are_warm(gpu: str):
    rows = frame(gpu, "attention")
    warm = rows["cache_state"] == "warm"
    assert set(rows.loc[warm, "operator"]) == {"index_logits_decode"}
    assert set(rows.loc[warm, "new_tokens_per_request"]) == {1}
    assert not (rows.loc[~warm, "operator"] == "index_logits_decode").any()


def test_releases_are_those_of_the_rows():
    gb200 = load_table("gb200", "collectives")
    far = {(i["engine"], i["engine_version"]) for i in gb200.matching(reach="across_trays")}
    assert far == {("nccl", "2.27.7"), ("sglang", "0.5.17")}
    mega = load_table("gb300", "experts").matching(operator="mega_moe")
    assert {i["engine_version"] for i in mega} == {"0.5.11"}


@pytest.mark.parametrize("gpu", GPUS)
def test_sglangs_quantiser_is_marked(gpu: str):
    rows = frame(gpu, "quantise")
    assert set(rows.loc[rows["flag"] == "slow_quantise", "engine"]) == {"sglang"}
    assert not (rows.loc[rows["engine"] == "sglang", "flag"] == "").any()


@pytest.mark.parametrize("gpu", GPUS)
def test_eager_all_reduces_are_host_time(gpu: str):
    table = load_table(gpu, "collectives")
    reach = "one_tray" if gpu.startswith("gb") else "one_board"
    key = {"message_bytes": 8192, "ranks": 4}
    graph, eager = (table.select(engine="sglang", execution=e, reach=reach).exact(**key).latency_us
                    for e in ("graph", "eager"))  # fmt: skip
    assert eager > graph + 30


def test_the_switch_of_library_is_marked_where_it_shows():
    for gpu in BLACKWELL:
        rows = frame(gpu, "collectives")
        above = rows[rows["caveat"] == "other_library_above"]
        assert above["message_bytes"].min() == 32 << 20
        assert set(above["engine"]) == {"sglang"}
    for gpu in HOPPER:
        assert set(frame(gpu, "collectives")["caveat"]) == {""}


def test_mega_moe_counts_the_tokens_of_all_ranks():
    rows = frame("gb200", "experts").query("operator == 'mega_moe'")
    assert (rows["tokens"] % rows["expert_parallel"] == 0).all()
    assert (rows["rank_capacity_tokens"] * rows["expert_parallel"] >= rows["tokens"]).all()
