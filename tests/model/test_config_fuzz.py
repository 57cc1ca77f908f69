"""Thousands of damaged configs: each is a typed error that names the field, or a usable model."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from aisim_v41.errors import AisimError
from aisim_v41.model.active import (
    decode_active_parameters,
    decode_weight_bytes,
    prefill_active_parameters,
)
from aisim_v41.model.cache_rows import cache_rows, global_kv_bytes, window_bytes
from aisim_v41.model.description import Model
from aisim_v41.model.inventory import inventory
from aisim_v41.model.load import model_from_config
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules, weights_per_rank

Path = tuple[str | int, ...]

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 127, 129, 513, 10**6, 2**31, 2**53 + 1, 2**62, 2**63,
    -(2**63), 10**30, 0.0, -0.5, 1.5, 5120.0, 1e-300, 1e308, float("nan"), float("inf"),
    float("-inf"), "", "5120", "fp8", "\0", "\ud800", "x" * 5000, [], [0], [-1], [1, 1], [2**70],
    list(range(60)), [0] * 5000, [[1]], [None], {}, {"a": 1}, {"": {}}, (1, 2), b"bytes", {1: 2},
    {"deep": {"deeper": {"deepest": [[[[]]]]}}}, object(), 3 + 4j,
)  # fmt: skip

UNKNOWN_KEYS = (
    "index_share", "candidate_ttl", "engram_cache", "dspark_depth", "hc_rank", "compress_mode",
    "moe_bias", "experts_per_group", "rope_interleave", "quant_group", "sliding_stride",
    "attention_sink", "n_group", "comment", "author", "_commit_hash", "id2label", "", "\n", "é",
)  # fmt: skip


def paths_of(value: Any, prefix: Path = ()) -> list[Path]:
    """Paths of every value inside, containers and leaves."""
    children = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    found: list[Path] = [(*prefix, key) for key, _ in children]
    for key, child in children:
        found.extend(paths_of(child, (*prefix, key)))
    return found


def parent_of(config: Any, path: Path) -> Any:
    for part in path[:-1]:
        config = config[part]
    return config


def replace_value(config: Any, path: Path, rng: random.Random) -> None:
    parent_of(config, path)[path[-1]] = copy.deepcopy(rng.choice(ODD_VALUES))


def nudge_number(config: Any, path: Path, rng: random.Random) -> None:
    parent, key = parent_of(config, path), path[-1]
    if isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        number = parent[key]
        parent[key] = rng.choice([number + 1, number - 1, -number, number * 2])
    else:
        replace_value(config, path, rng)


def remove(config: Any, path: Path, rng: random.Random) -> None:
    del parent_of(config, path)[path[-1]]


def disturb_list(config: Any, path: Path, rng: random.Random) -> None:
    parent, key = parent_of(config, path), path[-1]
    values = parent[key]
    if not isinstance(values, list) or not values:
        remove(config, path, rng)
        return
    action = rng.randrange(4)
    if action == 0:
        rng.shuffle(values)
    elif action == 1:
        values.append(rng.choice(values))
    elif action == 2:
        values[rng.randrange(len(values))] = rng.choice([0, 1, 2, 39, 40, 43, 128, 129])
    else:
        del values[rng.randrange(len(values)) :]


MUTATORS: tuple[Callable[[Any, Path, random.Random], None], ...] = (
    replace_value,
    replace_value,
    nudge_number,
    remove,
    disturb_list,
)


def exercise(model: Model) -> None:
    """Everything that is computed from a model alone."""
    total = inventory(model).total
    assert total.parameters > 0
    assert 0 < total.bytes < 1 << 62
    assert prefill_active_parameters(model) > 0
    assert 0 < decode_active_parameters(model) <= total.parameters
    assert sum(decode_weight_bytes(model).values()) > 0
    assert sum(weights_per_rank(model, Parallel(), ShardingRules()).values()) == total.bytes
    rows = cache_rows(model, "sglang_v4")
    assert global_kv_bytes(model, rows, 1 << 20) >= 0
    assert window_bytes(model, rows, 1 << 20) > 0


def loaded(config: dict[str, Any]) -> tuple[str, Model | None]:
    """Message of the typed error, or the model; anything else escapes."""
    try:
        return "", model_from_config(config, name="fuzz")
    except AisimError as error:
        return str(error), None


def outcome(config: dict[str, Any]) -> str | None:
    """Message of the typed error, or None for a model that is usable."""
    message, model = loaded(config)
    if model is None:
        return message
    exercise(model)
    return None


def name_of(path: Path) -> str:
    """The innermost key of a path: what a message must mention."""
    return [part for part in path if isinstance(part, str)][-1]


@pytest.mark.parametrize("seed", range(8))
def test_one_damaged_field_is_named(config: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    paths = paths_of(config)
    refused = 0
    for _ in range(250):
        damaged, path = copy.deepcopy(config), rng.choice(paths)
        rng.choice(MUTATORS)(damaged, path, rng)
        message = outcome(damaged)
        if message is not None:
            refused += 1
            assert name_of(path) in message, (path, message)
    assert refused > 100


@pytest.mark.parametrize("seed", range(4))
def test_many_damaged_fields(config: dict[str, Any], seed: int) -> None:
    rng = random.Random(1000 + seed)
    refused = 0
    for _ in range(250):
        damaged = copy.deepcopy(config)
        for _ in range(rng.randrange(2, 7)):
            rng.choice(MUTATORS)(damaged, rng.choice(paths_of(damaged)), rng)
        refused += outcome(damaged) is not None
    assert refused > 200


@pytest.mark.parametrize("section", [(), ("text_config",), ("quantization_config",)])
def test_unknown_keys_are_listed_or_refused_by_name(
    config: dict[str, Any], section: tuple[str, ...]
) -> None:
    for key in UNKNOWN_KEYS:
        for value in (1, None, {"a": [1, 2]}, "text"):
            damaged = copy.deepcopy(config)
            parent_of(damaged, (*section, key))[key] = value
            dotted = ".".join((*section, key))
            message, model = loaded(damaged)
            assert dotted in (message if model is None else model.unknown_keys)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_many_more_damaged_configs(config: dict[str, Any], seed: int) -> None:
    rng = random.Random(5000 + seed)
    outcomes = []
    for _ in range(500):
        damaged = copy.deepcopy(config)
        for _ in range(rng.randrange(1, 9)):
            rng.choice(MUTATORS)(damaged, rng.choice(paths_of(damaged) or [("dtype",)]), rng)
        outcomes.append(outcome(damaged))
    assert len(set(outcomes)) > 50
