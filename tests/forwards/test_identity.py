"""What must match before two measurements may be compared."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import Parallel, load_hardware, load_model
from aisim_v41.errors import InvalidInputError, SchemaError, UnsupportedPlanError
from aisim_v41.forwards.execution import (
    EXECUTION,
    NOT_EXECUTION,
    execution_of,
    policy_execution,
    setting_of,
)
from aisim_v41.forwards.identity import (
    TIMERS,
    Build,
    Difference,
    Identity,
    differing_from_plan,
)
from aisim_v41.model.load import model_from_config
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.reading import parse_mapping
from aisim_v41.resources import find
from tests.forwards.worlds import build, eager, identity, model

# --- the execution --------------------------------------------------------------------------------


def test_every_policy_field_is_execution_or_says_why_not():
    own = {field.name for field in fields(RuntimePolicy)}
    assert set(EXECUTION) & set(NOT_EXECUTION) == set()
    assert set(EXECUTION) | set(NOT_EXECUTION) == own


def test_execution_of_an_eager_run():
    found = execution_of(model(), load_hardware("gb300"), Parallel(tp=4), eager())
    assert found["gpu"] == "gb300"
    assert {name: found[name] for name in ("tp", "ep", "dp", "cp", "pp")} == {
        "tp": 4, "ep": 1, "dp": 1, "cp": 1, "pp": 1,
    }  # fmt: skip
    assert found["decoder_replay"] is False
    assert found["wo_a"] == "bf16"
    assert type(found["wo_a"]) is str
    absent = {"replay_tail_rows", "replay_floor", "decode_graph_sizes", "draft_tokens", "name"}
    assert absent & set(found) == set()


@pytest.mark.parametrize(
    ("overrides", "come", "go"),
    [
        (
            {"decoder_replay": True},
            {"replay_tail_rows", "replay_anchor", "replay_floor", "boundary_layer", "replay_exact",
             "replay_min_tokens", "decode_rows", "prompt_logprobs"},
            set(),
        ),
        ({"encoder_replay": "folded"},
         {"encoder_replay_rows", "replayed_rows_compress", "hit_min_tokens"}, set()),
        ({"decode_execution": "full_graph"},
         {"decode_graph_sizes", "verify_graph_sizes", "graph_size_counts"}, set()),
        ({"prefill_execution": "full_graph"}, {"prefill_graph_tokens"}, set()),
        ({"speculation": "dspark"}, {"draft_tokens"}, set()),
        ({"verify_lengths": "ragged"}, set(), set()),
        ({"speculation": "dspark", "decode_execution": "full_graph", "verify_lengths": "ragged"},
         {"draft_tokens", "decode_graph_sizes", "verify_graph_sizes", "graph_size_counts",
          "verify_lengths"}, set()),
        ({"engram_prefetch": "none", "engram_cache_mib": 64}, set(), set()),
        ({"engram_residency": "host_shared"}, {"engram_prefetch"}, set()),
        ({"engram_residency": "disk", "engram_cache_mib": 64},
         {"engram_prefetch", "engram_cache_mib"}, set()),
    ],
)  # fmt: skip
def test_fields_stand_where_they_act(overrides, come, go):
    hardware, parallel = load_hardware("gb300"), Parallel(tp=4)
    plain = set(execution_of(model(), hardware, parallel, eager()))
    found = set(execution_of(model(), hardware, parallel, eager(**overrides)))
    assert found - plain == come
    assert plain - found == go


def test_an_exact_replay_has_no_budget():
    rows = execution_of(
        model(), load_hardware("gb300"), Parallel(), eager(decoder_replay=True, replay_exact=True)
    )
    assert "replay_tail_rows" not in rows
    assert {"replay_exact_multiple", "replay_exact_min_tokens"} <= set(rows)


def test_memory_and_assumptions_leave_the_identity_alone():
    same = identity(
        max_requests=7,
        memory_fraction=0.5,
        expert_popularity=0.0,
        engram_distinct_share=0.5,
        engram_hit_share=0.5,
    )
    assert same == identity()
    assert hash(same) == hash(identity())


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("replay", [False, True])
def test_a_policy_is_made_again_from_its_execution(name, replay):
    asked = policy(name, decoder_replay=replay)
    execution = execution_of(model(), load_hardware("gb200"), Parallel(tp=2), asked)
    parallel, made = setting_of(execution, name)
    assert parallel == Parallel(tp=2)
    assert made == asked
    # Without the preset too it runs the same, whatever its limits are.
    _, bare = setting_of(execution, "of my own")
    assert execution_of(model(), load_hardware("gb200"), parallel, bare) == execution


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tp": None}, "Parallel.tp = None"),
        ({"fusion": "none such"}, "policy field fusion"),
        ({"replay_tail_rows": 128}, "replay_tail_rows does not act under this policy"),
        ({"decoder_replay": True}, "is missing"),
        ({"colour": "red"}, "policy has no field 'colour'"),
    ],
)
def test_an_execution_that_no_policy_has_is_refused(change, message):
    with pytest.raises(SchemaError, match=message):
        setting_of({**identity().execution, **change}, "sglang")


def test_sharding_rules_stand_under_their_own_names():
    always = {f.name for f in fields(ShardingRules)} - {"redundant_experts", "uneven_ranks"}
    assert always <= set(identity().execution)


def test_choices_of_expert_parallelism_stand_where_they_act():
    """Identities of tables that were measured without them keep their hash."""
    plain = policy_execution(policy("sglang"))
    assert not {"redundant_experts", "expert_exchange", "expert_imbalance"} & set(plain)
    used = {"redundant_experts": 16, "expert_exchange": "all_to_all"}
    assert policy_execution(policy("sglang", **used)) == plain | used


# --- the config -----------------------------------------------------------------------------------


def config():
    path = find("profiles", "deepseek-v4.1-flash", "/config.json")
    return parse_mapping(path.read_bytes(), where="config")


def test_the_digest_of_a_config_is_of_its_content():
    content = config()
    turned = json.loads(json.dumps(dict(reversed(content.items()))).replace("1e-06", "0.000001"))
    assert model_from_config(turned, name="x").config_sha256 == model().config_sha256
    content["text_config"]["moe_intermediate_size"] *= 2
    assert model_from_config(content, name="x").config_sha256 != model().config_sha256


def test_a_model_changed_in_python_has_no_identity():
    wider = replace(model(), experts=replace(model().experts, width=4096))
    with pytest.raises(InvalidInputError, match="changed after its config was read"):
        execution_of(wider, load_hardware("gb300"), Parallel(), eager())


def test_an_earlier_generation_has_no_steps():
    with pytest.raises(UnsupportedPlanError):
        execution_of(load_model("deepseek-v3.2"), load_hardware("gb300"), Parallel(), eager())


# --- canonical form and digest --------------------------------------------------------------------

scalars = st.one_of(
    st.booleans(), st.integers(-(2**40), 2**40), st.floats(-1e9, 1e9),
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6),
)  # fmt: skip
settings = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{1,6}z", fullmatch=True), scalars)


@given(settings, st.randoms())
def test_the_digest_does_not_depend_on_order_or_spelling(values, random):
    names = list(values)
    random.shuffle(names)
    respelled = {
        name: float(values[name])
        if type(values[name]) is int and abs(values[name]) < 2**53
        else values[name]
        for name in names
    }
    one, other = identity(settings=values), identity(settings=respelled)
    assert one.canonical() == other.canonical()
    assert one == other
    assert one.differences(other) == ()
    assert one.slug() == other.slug()


@given(settings, settings)
def test_identities_are_equal_exactly_where_nothing_differs(one, other):
    first, second = identity(settings=one), identity(settings=other)
    assert (first == second) == (first.differences(second) == ())
    assert (first.sha256 == second.sha256) == (first == second)


def test_true_is_not_one():
    one, other = identity(settings={"flag": True}), identity(settings={"flag": 1})
    assert one != other
    assert one.differences(other) == (Difference("settings.flag", True, 1),)


def test_the_digest_of_a_known_identity():
    """Packaged and users' folders are named by it: it may not change between releases."""
    known = Identity(build(), {"gpu": "gb300", "tp": 4})
    assert known.canonical() == (
        '{"build":{"checkpoint":"someone/model@1","engine":"sglang","engine_build":"not known",'
        '"image":"none","modality":"text","settings":{"custom_all_reduce":false,"page_tokens":256,'
        '"share":0.5},"timer":"sync_wall","topology":"one node, 4 GPUs"},'
        '"execution":{"gpu":"gb300","tp":4}}'
    )
    assert known.key == "73a690c110125798"


def test_round_trips():
    here = identity(decoder_replay=True)
    assert Identity.from_dict(json.loads(json.dumps(here.to_dict()))) == here
    assert pickle.loads(pickle.dumps(here)) == here
    assert copy.deepcopy(here) == here


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({}, "sglang-tp4-replay_off-eager-sync_wall-"),
        ({"decoder_replay": True}, "sglang-tp4-replay_on-eager-sync_wall-"),
        ({"decode_execution": "full_graph", "timer": "gpu_events"},
         "sglang-tp4-replay_off-eager_graph-gpu_events-"),
        ({"engine": "My Engine/2"}, "my_engine_2-tp4-replay_off-eager-sync_wall-"),
        ({"engine": "../.."}, "engine-tp4-replay_off-eager-sync_wall-"),
    ],
)  # fmt: skip
def test_slugs(changes, slug):
    found = identity(**changes)
    assert found.slug() == slug + found.sha256[:16]


# --- differences ----------------------------------------------------------------------------------


def test_another_identity_is_refused_with_every_difference():
    off, on = identity(), identity(decoder_replay=True, timer="http")
    with pytest.raises(UnsupportedPlanError) as refused:
        off.require_same(on)
    message = str(refused.value)
    assert off.key in message
    assert on.key in message
    lines = [line.split() for line in message.splitlines()[1:]]
    assert ["decoder_replay", "False", "|", "True"] in lines
    assert ["replay_tail_rows", "-", "|", "128"] in lines
    assert ["timer", "sync_wall", "|", "http"] in lines
    assert len(lines) == len(off.differences(on)) == 10
    off.require_same(identity())


def test_text_names_every_field():
    lines = identity().text().splitlines()
    assert lines[0] == identity().slug()
    assert [line.split() for line in lines if "timer" in line] == [["timer", "sync_wall"]]
    assert len(lines) == 1 + len(identity().execution) + 7 + 3
    assert identity().diff_text(identity()) == ""


def test_a_plan_is_asked_against_what_was_measured():
    measured = identity()
    ask = (model(), load_hardware("gb300"))
    assert differing_from_plan(measured, *ask, Parallel(tp=4), eager()) == ()
    found = differing_from_plan(measured, *ask, Parallel(tp=2), eager(decode_streams="single"))
    assert found == (Difference("decode_streams", "single", "side"), Difference("tp", 2, 4))


def test_a_plan_that_names_no_build_agrees_with_any():
    ask = (model(), load_hardware("gb300"), Parallel(tp=4))
    named = identity(build="sglang-2026-09-15")
    assert differing_from_plan(named, *ask, eager()) == ()
    assert differing_from_plan(identity(), *ask, eager(build="sglang-2026-09-15")) == (
        Difference("build", "sglang-2026-09-15", "any"),
    )


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timer": "stopwatch"}, f"Build.timer = 'stopwatch': must be one of {', '.join(TIMERS)}"),
        ({"modality": "smell"}, "Build.modality = 'smell': must be one of text, image"),
        ({"engine": ""}, "Build.engine = ''"),
        ({"engine": " sglang"}, "without spaces around it"),
        ({"image": "two\nlines"}, "one line of text"),
        ({"topology": 4}, "Build.topology = 4"),
        ({"checkpoint": "x" * 513}, "of 1 to 512 characters"),
        ({"settings": None}, "Build.settings = None"),
        ({"settings": {"Upper": 1}}, "name 'Upper'"),
        ({"settings": {1: 1}}, "name 1"),
        ({"settings": {"a": [1]}}, r"Build.settings.a = \[1\]"),
        ({"settings": {"a": None}}, "Build.settings.a = None: must be text, a number"),
        ({"settings": {"a": float("nan")}}, "not a finite number"),
        ({"settings": {"a": 1 << 63}}, "beyond"),
        ({"settings": {"a": "\ud800"}}, "one line of text"),
        ({"settings": {"tp": 4}}, "Build.settings.tp: the execution has a field of that name"),
    ],
)
def test_builds_that_cannot_be(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        identity(**changes)


@pytest.mark.parametrize(
    "content",
    [
        None, [], {}, {"build": {}, "execution": {}}, {"build": None, "execution": None},
        {"build": build().to_dict(), "execution": []},
        {"build": build().to_dict(), "execution": {"a": {}}},
        {"build": {**build().to_dict(), "more": 1}, "execution": {}},
        {"build": build().to_dict(), "execution": {}, "more": 1},
    ],
)  # fmt: skip
def test_contents_that_are_no_identity(content):
    with pytest.raises(SchemaError):
        Identity.from_dict(content)


def test_an_identity_does_not_change():
    given_settings = {"a": 1}
    here = Build(**{**build().to_dict(), "settings": given_settings})
    given_settings["a"] = 2
    assert here.settings["a"] == 1
    with pytest.raises(TypeError):
        here.settings["a"] = 3  # type: ignore[index]
