"""Presets, overrides, and every value that a policy refuses."""

from __future__ import annotations

import math
import typing
from dataclasses import FrozenInstanceError, fields
from random import Random

import numpy as np
import pytest

from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names

TYPES = typing.get_type_hints(RuntimePolicy)
CHANGEABLE = [f.name for f in fields(RuntimePolicy) if f.name not in ("name", "revision")]
CHOICES = [name for name in CHANGEABLE if typing.get_origin(TYPES[name]) is typing.Literal]
NUMBERS = [name for name in CHANGEABLE if TYPES[name] is int]
SHARES = [name for name in CHANGEABLE if TYPES[name] is float]
SWITCHES = [name for name in CHANGEABLE if TYPES[name] is bool]
SIZES = ["decode_graph_sizes", "verify_graph_sizes"]
SHARES_FROM_ZERO = {"expert_locality", "engram_hit_share"}
MAY_BE_ZERO = {
    "replay_exact_min_tokens", "replay_min_tokens", "hit_min_tokens", "prefill_graph_tokens",
    "engram_cache_mib",
}  # fmt: skip


def refusal(**overrides) -> str:
    with pytest.raises(InvalidInputError) as caught:
        policy("paper", **overrides)
    return str(caught.value)


def test_every_field_is_of_a_kind_tested_here():
    known = {*CHOICES, *NUMBERS, *SHARES, *SWITCHES, *SIZES, "sharding", "kv_layout", "build"}
    known |= {"expert_popularity", "expert_imbalance", "formats"}
    assert known == set(CHANGEABLE)


# --- presets ----------------------------------------------------------------------------------


def test_presets_are_the_documented_ones():
    assert preset_names() == ("atom", "paper", "sglang", "trtllm", "vllm")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_names_its_revision_and_has_replay_off(name: str):
    preset = policy(name)
    assert (preset.name, preset.decoder_replay) == (name, False)
    assert len(preset.revision) > 20
    assert preset.changed_fields() == {}
    assert policy(name) is preset


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper", {"boundary_layer": "kv_only", "replay_tail_rows": 128}),
        ("sglang", {"replay_floor": "tail_start", "hit_page_tokens": 256, "encoder_replay": "off"}),
        ("vllm", {"replay_floor": "window_start", "hit_min_tokens": 128, "hit_page_tokens": 128}),
        ("atom", {"replay_tail_rows": 133, "decode_rows": "no_replay"}),
        ("trtllm", {"replay_anchor": "prompt_end", "replay_floor": "prompt_window"}),
    ],
)
def test_presets_follow_the_engines(name: str, expected: dict):
    """runtime-semantics §1.5 (tails, anchors, floors) and §2.5 (pages of hits)."""
    assert {field: getattr(policy(name), field) for field in expected} == expected


@pytest.mark.parametrize("name", ["SGLang", "sglan", "", "no such engine", 7, None, ["vllm"]])
def test_an_unknown_preset_is_refused_with_the_known_ones(name):
    with pytest.raises(MissingProfileError) as caught:
        policy(name)
    assert f"no policy named {name!r}" in str(caught.value)
    assert any(known in str(caught.value) for known in preset_names())


# --- overrides --------------------------------------------------------------------------------


def test_overrides_are_echoed():
    changed = policy("sglang", decoder_replay=True, replay_tail_rows=200)
    assert changed.changed_fields() == {"decoder_replay": True, "replay_tail_rows": 200}
    assert (changed.name, changed.revision) == ("sglang", policy("sglang").revision)
    assert policy("sglang").decoder_replay is False


def test_sharding_fields_may_be_named_directly():
    changed = policy("paper", shared_expert="split")
    assert changed.sharding.shared_expert == "split"
    assert changed.changed_fields() == {"shared_expert": "split"}
    assert policy("paper", sharding=changed.sharding) == changed


@pytest.mark.parametrize("name", ["decode_replay", "tail", "", "name", "revision", "tp"])
def test_an_unknown_field_is_refused_with_the_nearest(name: str):
    with pytest.raises(InvalidInputError) as caught:
        policy("paper").with_overrides(**{name: 1})
    message = str(caught.value)
    assert f"policy has no field {name!r}" in message
    assert "nearest: " in message or "known: " in message


def test_a_misspelt_field_is_told_its_name():
    assert "decoder_replay" in refusal(decode_replay=True)


def test_a_policy_is_a_value():
    assert policy("vllm", decoder_replay=True) == policy("vllm").with_overrides(decoder_replay=True)
    assert hash(policy("vllm", decoder_replay=True)) == hash(policy("vllm", decoder_replay=True))
    with pytest.raises(FrozenInstanceError):
        policy("vllm").decoder_replay = True  # type: ignore[misc]


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_takes_its_values_alone(name: str):
    allowed = typing.get_args(TYPES[name])
    for value in allowed:
        assert getattr(policy("paper", **{name: value}), name) == value
    for value in ("no such thing", "", allowed[0].upper(), None, True, 0, 1.5, [], {}, object()):
        message = refusal(**{name: value})
        assert f"policy field {name} = {value!r}" in message
        assert str(allowed) in message


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_whole_and_bounded(name: str):
    low = 0 if name in MAY_BE_ZERO else 1
    for value in (low, low + 1, 1 << 30):
        assert getattr(policy("paper", **{name: value}), name) == value
    for value in (low - 1, -5, (1 << 30) + 1, 1.0, math.nan, True, "1", None, np.int64(4), []):
        message = refusal(**{name: value})
        assert f"policy field {name} = {value!r}" in message
        assert f"whole number from {low} to {1 << 30}" in message


def test_an_imbalance_is_one_or_more_or_left_to_popularity():
    for value in (None, 1, 1.0, 1.25, 1000):
        assert policy("paper", expert_imbalance=value).expert_imbalance == value
    for value in (0, 0.99, 1000.1, -1, math.nan, math.inf, True, "1.2", [1.2]):
        message = refusal(expert_imbalance=value)
        assert f"policy field expert_imbalance = {value!r}" in message
        assert "number from 1 to 1000" in message


@pytest.mark.parametrize("name", SHARES)
def test_a_share_is_above_zero_and_at_most_one_unless_it_may_be_zero(name: str):
    none = [0, 0.0]
    for value in (1e-9, 0.5, 1, 1.0, *(none if name in SHARES_FROM_ZERO else [])):
        assert getattr(policy("paper", **{name: value}), name) == value
    refused = [-0.1, 1.0000001, 2, math.nan, math.inf, True, "0.5", None, [], 1j]
    for value in refused if name in SHARES_FROM_ZERO else none + refused:
        message = refusal(**{name: value})
        assert f"policy field {name} = {value!r}" in message
        limits = "from 0 to 1" if name in SHARES_FROM_ZERO else "above 0 and at most 1"
        assert f"must be a share {limits}" in message


@pytest.mark.parametrize(
    "value",
    [0, 0.0, 1, 2.5, 100, (0.25, 0.25, 0.25, 0.25), (1.0,), (0.0, 0.4, 0.6)],
)
def test_a_popularity_is_a_number_or_shares(value):
    assert policy("paper", expert_popularity=value).expert_popularity == value


@pytest.mark.parametrize(
    "value",
    [
        -0.1, 101, math.nan, math.inf, True, "1", None, (), [0.5, 0.5], (0.5, 0.4), (0.5, 0.6),
        (1.5, -0.5), (0.5, "0.5"), (0.5, True), (math.nan, 1.0), np.array([0.5, 0.5]),
        (2 / 384,) * 384,
    ],
)  # fmt: skip
def test_a_popularity_is_nothing_else(value):
    message = refusal(expert_popularity=value)
    assert "policy field expert_popularity = " in message
    assert "shares from 0 to 1 that sum to 1" in message
    assert len(message) < 300


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_a_rising_list(name: str):
    for value in ("every", "1", "1, 2, 4, 8-256/8", "3-7"):
        assert getattr(policy("paper", **{name: value}), name) == value
    for value in ("", "0", "2, 1", "1, 1", "8-4", "1-9/0", "a few", "1;2", "-1", "1-9999999", " "):
        message = refusal(**{name: value})
        assert f"policy field {name} = {value!r}" in message
        assert "1, 2, 4, 8-256/8" in message
    for value in (None, 4, [1, 2], b"1", True):
        assert f"policy field {name} = {value!r}" in refusal(**{name: value})


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_true_or_false(name: str):
    for value in (0, 1, "yes", None, 1.0, np.True_):
        message = refusal(**{name: value})
        assert f"policy field {name} = {value!r}" in message


@pytest.mark.parametrize("value", [None, "split", {}, 3, ShardingRules], ids=repr)
def test_sharding_is_a_record(value: object):
    assert "policy field sharding" in refusal(sharding=value)
    assert "policy field sharding" in refusal(sharding=value, shared_expert="split")


@pytest.mark.parametrize("value", [None, 3, b"trained", ["trained"]], ids=repr)
def test_a_layout_is_named_by_a_string(value: object):
    assert f"policy field kv_layout = {value!r}" in refusal(kv_layout=value)


def test_name_and_revision_are_strings():
    for overrides in ({"name": 1, "revision": "x"}, {"name": "x", "revision": None}):
        with pytest.raises(InvalidInputError, match="policy field"):
            RuntimePolicy(**overrides)


# --- anything at all --------------------------------------------------------------------------

ODD_VALUES = (
    0, 1, 2, 128, 133, -1, 1 << 31, 1 << 200, True, False, None, 0.5, 1.0, -1.0, math.nan, math.inf,
    "", "off", "folded", "tail_start", "step_end", "eager", "split", "hbm", b"off", (), [], {},
    set(), object(), 1j, np.int64(3), np.float64(0.5), np.bool_(True), np.array([1, 2]), Ellipsis,
    ShardingRules(), ShardingRules,
)  # fmt: skip


def made_or_refused(base: RuntimePolicy, overrides: dict) -> RuntimePolicy | AisimError:
    try:
        return base.with_overrides(**overrides)
    except AisimError as error:
        return error


@pytest.mark.parametrize("batch", range(10))
def test_any_overrides_make_a_policy_or_a_typed_error(batch: int):
    random = Random(batch)
    rules = [f.name for f in fields(ShardingRules)]
    names = [*CHANGEABLE, *rules, "name", "revision", "no_such_field", "replay", "tp"]
    made = refused = 0
    for _ in range(200):
        chosen = random.sample(names, random.randint(1, 2))
        overrides = {name: random.choice(ODD_VALUES) for name in chosen}
        changed = made_or_refused(policy(random.choice(preset_names())), overrides)
        if isinstance(changed, AisimError):
            refused += 1
            assert any(name in str(changed) for name in chosen), changed
            continue
        made += 1
        for name, value in overrides.items():
            holder = changed if name in CHANGEABLE else changed.sharding
            assert getattr(holder, name) == value
    assert made
    assert refused
