"""Tables of one identity: what they refuse, and how two become one."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import Parallel, Request, ledger
from aisim_v41.errors import InvalidInputError, SchemaError, UnsupportedPlanError
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.plan.plan import Plan
from tests.forwards.worlds import build, eager, identity, model, records

STEP = (Request(new_tokens=8),)


def record(latency_ms: float = 1.0, **changes):
    return StepRecord(**{"step": STEP, "latency_ms": latency_ms, **changes})


def table(*found: StepRecord, **changes):
    return StepTable(**{"identity": identity(), "records": found, **changes})


def test_a_table_knows_its_gpu_and_preset():
    here = table(record())
    assert (here.gpu, here.preset) == ("gb300", "sglang")
    assert here.plan_setting() == (Parallel(tp=4), eager())


def test_a_plan_is_made_again():
    here = StepTable(identity=identity(decoder_replay=True), records=(record(),))
    parallel, policy = here.plan_setting()
    plan = Plan(model(), [Request(new_tokens=300)], parallel, policy)
    # 21 layers run all rows, 19 the tail of 128.
    assert ledger(plan).token_layers == 21 * 300 + 19 * 128


def test_a_preset_gives_what_the_identity_leaves_out():
    own = table(record(), preset="vllm").plan_setting()[1]
    assert own.chunk_tokens == 8192
    assert own.kv_layout == "sglang_v41"
    assert table(record(), preset="of my own").plan_setting()[1].name == "of my own"


def test_statuses_and_what_was_measured():
    failed = record(None, status="out_of_memory", point="b")
    refused = record(None, status="unsupported", point="c")
    here = table(record(), failed, record(point="d"), refused)
    assert here.statuses() == {"ok": 2, "unsupported": 1, "out_of_memory": 1}
    assert [one.point for one in here.measured] == ["", "d"]


@pytest.mark.parametrize("second", [record(), record(2.0), record(None, status="missing")])
def test_a_step_stands_once_in_a_run(second):
    with pytest.raises(InvalidInputError, match="Give repeats as samples_ms of one record"):
        table(record(), second)
    for other in ({"run": "b"}, {"point": "b"}, {"order": 1}, {"step": (Request(new_tokens=9),)}):
        assert len(table(record(), record(**other)).records) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity": None}, "not an Identity"),
        ({"gpu": "gb200"}, "StepTable.gpu = 'gb200': the identity was measured on 'gb300'"),
        ({"records": (1,)}, "1 is not a StepRecord"),
        ({"licence": " "}, "StepTable.licence"),
        ({"notice": 1}, "StepTable.notice = 1"),
        ({"remarks": ("",)}, "StepTable.remarks"),
        ({"remarks": ("\ud800",)}, "not valid Unicode"),
        ({"sources": ({"commit": "1"},)}, "must be a mapping that names its file"),
        ({"sources": ({"file": 1},)}, "StepTable.sources: file = 1"),
        ({"sources": (1,)}, "must be a mapping"),
    ],
)
def test_tables_that_cannot_be(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        table(**{"records": (record(),), **changes})


def test_an_execution_that_no_policy_has():
    made_up = Identity(build(), {"gpu": "gb300", "tp": 4})
    with pytest.raises(SchemaError, match="execution: config_sha256 is missing"):
        StepTable(identity=made_up, records=()).plan_setting()


def test_tables_can_be_keys_and_travel():
    here = table(record(), sources=({"file": "a"},), remarks=("one",))
    again = pickle.loads(pickle.dumps(here))
    assert again == here
    assert {here: 1}[again] == 1
    assert here != table(record(2.0), sources=({"file": "a"},), remarks=("one",))


# --- two tables -----------------------------------------------------------------------------------


def test_tables_of_two_identities_never_mix():
    other = StepTable(identity=identity(decoder_replay=True), records=(record(),))
    with pytest.raises(UnsupportedPlanError) as refused:
        table(record()).merged(other)
    lines = [line.split() for line in str(refused.value).splitlines()[1:]]
    assert ["decoder_replay", "False", "|", "True"] in lines


def test_merging_keeps_the_order_and_drops_what_is_equal():
    first = table(record(run="a"), record(run="b"))
    second = table(record(run="b"), record(run="c"))
    assert [one.run for one in first.merged(second).records] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "second", [record(2.0), record(None, status="execution_failed"), record(note="other")]
)
def test_another_value_at_the_same_place_is_a_conflict(second):
    with pytest.raises(InvalidInputError, match="two records of run 'run', point '', order None"):
        table(record()).merged(table(second))


def test_merging_keeps_every_source_and_notice():
    one = table(
        record(), licence="MIT", notice="by one", sources=({"file": "a"},), remarks=("first",)
    )
    other = table(
        record(run="b"), licence="Apache-2.0", notice="by other",
        sources=({"file": "a"}, {"file": "b"}), remarks=("first", "second"),
    )  # fmt: skip
    both = one.merged(other)
    assert both.licence == "MIT AND Apache-2.0"
    assert both.notice == "by one\nby other"
    assert both.sources == ({"file": "a"}, {"file": "b"})
    assert both.remarks == ("first", "second")
    assert table(record(run="c")).merged(one).licence == "MIT"
    for again in (one, other, both):
        assert both.merged(again) == both


def test_a_notice_is_known_by_its_whole_lines():
    both = table(record(), notice="by another").merged(table(record(), notice="by an"))
    assert both.notice == "by another\nby an"


def test_one_measurement_is_not_read_in_two_ways():
    """Such as a point of a benchmark, before and after the size of a cache block is known."""
    named = record(point="decode-1", order=0)
    other = record(point="decode-1", order=0, step=(Request(new_tokens=4, count=2),))
    with pytest.raises(InvalidInputError, match="one measurement, read in two ways"):
        table(named).merged(table(other))
    assert len(table(named).merged(table(named, record(order=0))).records) == 2
    row = {"point": "decode-b4-kv9", "source": "file: row 3"}
    with pytest.raises(InvalidInputError, match=r"'file: row 3'.* read in two ways"):
        table(record(**row)).merged(table(record(**row, step=other.step)))
    below = {**row, "source": "file: row 4"}
    assert len(table(record(**row)).merged(table(record(**below, step=other.step))).records) == 2


def place(one: StepRecord):
    """What no two records of a table share; where it is whole, no two of two tables."""
    at = one.source if one.order is None else one.order
    whole = bool(one.point) and at != ""
    return (one.run, one.point, at) if whole else (one.run, one.point, one.order, one.step)


@given(st.lists(records(), max_size=6, unique_by=place))
def test_merging_laws(found):
    cut = len(found) // 2
    one, other = table(*found[:cut]), table(*found[cut:])
    both = one.merged(other)
    assert both.records == tuple(found)
    assert both.merged(one) == both.merged(other) == both.merged(both) == both
    assert set(other.merged(one).records) == set(found)
