"""Random models, policies and requests that cross every knee with short sequences.

A shrunken model has a window of a few positions, a top-k of a few entries and a candidate pool of
a few blocks, so that a dozen tokens reach what takes 16,385 in the real one.
"""

from __future__ import annotations

import copy
import json
from random import Random

from aisim_v41.model.description import Model
from aisim_v41.model.load import model_from_config
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from aisim_v41.resources import find

REAL = "deepseek-v4.1-flash"


def published_config() -> dict:
    """The packaged config as plain data."""
    return json.loads(find("profiles", REAL, "/config.json").read_text(encoding="utf-8"))


def shrunken_model(random: Random, *, drafter: bool = False) -> Model:
    """A small model of the same architecture: other layers, sources, ratios and knees.

    With a ``drafter`` it has one to three draft blocks, which tap any layers.
    """
    config = copy.deepcopy(published_config())
    text = config["text_config"]
    ratios, kv_sources, index_sources = _layers(random)
    top_k = random.randint(3, 7)
    text |= {
        "num_hidden_layers": len(ratios),
        "compress_ratios": ratios,
        "kv_source_layer_ids": kv_sources,
        "index_source_layer_ids": index_sources,
        "index_topk": top_k,
        "sliding_window": random.randint(4, 9),
        "engram_layer_ids": [],
        "engram_num_embeddings": [],
        "num_nextn_predict_layers": 0,
        "n_routed_experts": random.randint(2, 12),
        "num_experts_per_tok": random.randint(1, 2),
        "dspark_target_layer_ids": [],
    }
    pools = [(n, size) for n in (2, 3, 4, 5) for size in (2, 3) if (n - 1) * size >= top_k]
    with_pool = kv_sources and random.random() < 0.8
    blocks, size = random.choice(pools) if with_pool else (None, None)
    source = random.choice([kv_sources[-1], random.choice(kv_sources)]) if with_pool else None
    text |= {
        "candidate_source_layer_id": source,
        "candidate_topk_blocks": blocks,
        "candidate_block_size": size,
    }
    if drafter:
        text |= _drafter(random, ratios)
    return model_from_config(config, name="shrunken")


def _drafter(random: Random, ratios: list[int]) -> dict:
    """Config fields of a drafter, whose blocks have a ratio of 0 each."""
    blocks, experts = random.randint(1, 3), random.randint(2, 9)
    taps = random.sample(range(len(ratios)), random.randint(1, min(3, len(ratios))))
    return {
        "num_nextn_predict_layers": blocks,
        "compress_ratios": ratios + [0] * blocks,
        "dspark_target_layer_ids": sorted(taps),
        "dspark_n_routed_experts": experts,
        "dspark_num_experts_per_tok": random.randint(1, min(3, experts)),
    }


def _layers(random: Random) -> tuple[list[int], list[int], list[int]]:
    """Ratios, KV sources and index sources: window-only layers, then one to three owners."""
    ratios = [0] * random.randint(0, 2)
    kv_sources: list[int] = []
    index_sources: list[int] = []
    for _ in range(random.choice((0, 1, 1, 2, 2, 3)) if ratios else random.randint(1, 3)):
        ratio = random.randint(1, 3)
        kv_sources.append(len(ratios))
        index_sources.append(len(ratios))
        ratios.append(ratio)
        for _ in range(random.randint(0, 4)):
            if random.random() < 0.4:
                index_sources.append(len(ratios))
                ratios.append(ratio)
            else:
                ratios.append(random.choice((ratio, ratio, 0)))
    return ratios, kv_sources, index_sources


def any_policy(random: Random, *, small: bool) -> RuntimePolicy:
    """A preset with every field that changes counts drawn anew, whatever its engine refuses."""
    base = random.choice(("paper", "sglang", "vllm", "atom", "trtllm"))
    anchor = random.choice(("step_end", "step_end", "prompt_end"))
    floors = ["tail_start", "window_start"] + ["prompt_window"] * (anchor == "prompt_end")
    exact = anchor == "step_end" and random.random() < 0.2
    return policy(
        "custom",
        base=base,
        decoder_replay=random.random() < 0.7,
        replay_anchor=anchor,
        replay_floor=random.choice(floors),
        replay_images=random.choice(("as_text", "as_text", "all_rows", "no_replay")),
        replay_tail_rows=random.randint(1, 12) if small else random.choice((1, 127, 128, 133)),
        boundary_layer=random.choice(("full", "kv_only")),
        replay_exact=exact,
        replay_exact_multiple=random.choice((1, 4, 7)) if small else random.choice((1, 64, 256)),
        replay_exact_min_tokens=random.choice((0, 20, 60)) if small else random.choice((0, 16384)),
        replay_min_tokens=random.choice((0, 0, 25)) if small else random.choice((0, 0, 9000)),
        decode_rows=random.choice(("own_window", "no_replay", "as_extend")),
        prompt_logprobs=random.choice(("refuse", "all_rows", "two_floors")),
        encoder_replay=random.choice(("off", "separate", "folded", "snapshot")),
        encoder_replay_rows=random.randint(1, 12) if small else 128,
        chunk_tokens=8192,
        prefill_execution="eager",
        replayed_rows_compress=random.random() < 0.5,
        hit_page_tokens=random.choice((1, 2, 3, 4, 8)) if small else random.choice((1, 64, 256)),
        hit_min_tokens=random.choice((0, 4, 9)) if small else random.choice((0, 128)),
        reindex_scoring=random.choice(("candidates", "dense")),
        score_shape=random.choice(("triangle", "rectangle")),
        index_shortcut=random.choice(("never", "decode", "always")),
        expert_routing=random.choice(("independent", "per_request", "fewest")),
        expert_locality=random.choice((0.0, 0.4, 0.75, 1.0)),
        expert_popularity=random.choice((0.0, 0.3, 1.0, 4.0)),
    )


def any_shares(random: Random, model: Model) -> tuple[float, ...]:
    """A measured histogram: a few favourites, some experts that nobody asked for."""
    routed, top_k = model.experts.routed, model.experts.top_k
    weights = [random.choice((0.0, 1.0, 1.0, 2.0, 30.0)) for _ in range(routed)]
    weights[:top_k] = [max(weight, 1.0) for weight in weights[:top_k]]
    random.shuffle(weights)
    return tuple(weight / sum(weights) for weight in weights)


SHORT = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 21, 30, 40)
KNEES = (0, 1, 100, 126, 127, 128, 129, 500, 511, 512, 513, 1023, 1024, 1025, 1026)
LONG = (8191, 8192, 16255, 16256, 16383, 16384, 16385, 16390, 20000)


def any_requests(random: Random, policy: RuntimePolicy, *, small: bool) -> list[Request]:
    """A ragged step: prefills (cold, chunked, hits), decodes and verifies, some of them equal."""
    most = random.choice((1, 1, 2, 3, 4, 5))
    return [_request(random, policy, small) for _ in range(most)]


def _request(random: Random, policy: RuntimePolicy, small: bool) -> Request:
    prefix = random.choice(SHORT if small else KNEES + LONG)
    count = random.choice((1, 1, 1, 1, 2, 3, 0, 1000))
    kind = random.choice(("prefill", "prefill", "prefill", "decode", "verify"))
    if kind != "prefill":
        new = random.choice((1, 1, 1, 0)) if kind == "decode" else random.randint(0, 6)
        return Request(
            new_tokens=new,
            prefix_tokens=prefix,
            kind=kind,
            count=count,
            window_start=_window_start(random, prefix),
        )
    new = random.choice(SHORT if small else (0, 1, 2, 3, 64, 127, 128, 129, 200))
    windows = ["running", "running", "cached"]
    windows += ["missing"] * 3 * (policy.encoder_replay != "off")
    windows += ["snapshot"] * 2 * (policy.encoder_replay == "snapshot")
    window = random.choice(windows) if prefix else "running"
    more = random.choice((None, None, 0, 1, 3, 8, 20, 200))
    refused = policy.decoder_replay and policy.prompt_logprobs == "refuse"
    return Request(
        new_tokens=new,
        prefix_tokens=prefix,
        count=count,
        prompt_tokens=None if more is None else prefix + new + more,
        window=window,
        window_start=_window_start(random, prefix) if window == "running" else 0,
        prompt_logprobs=random.random() < 0.2 and not refused,
        image_tokens=_image_tokens(random, policy, new, prefix, window),
    )


def _image_tokens(random: Random, policy: RuntimePolicy, new: int, prefix: int, window: str) -> int:
    """Now and then images come first, where the policy takes them."""
    if policy.name == "paper" and prefix:
        return 0
    if policy.decoder_replay and policy.replay_images == "all_rows" and window != "running":
        return 0
    return random.choice((0, 0, 0, random.randint(0, new), new))


def _window_start(random: Random, prefix: int) -> int:
    """Now and then an earlier replay left older window rows out."""
    return random.randint(0, prefix) if random.random() < 0.3 else 0
