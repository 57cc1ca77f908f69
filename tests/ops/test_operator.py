"""The operator record itself: forms, placing, fusing."""

from __future__ import annotations

import pytest

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.layers import LayerKind
from aisim_v41.ops.operator import Collective, Family, Operator, Traffic, fuse, place
from aisim_v41.plan.columns import Column, LayerClass
from aisim_v41.plan.counts import Count, LinearForm
from aisim_v41.plan.spans import Region

REUSE = LayerClass(LayerKind.REUSE, 1, Region.LATE, pooled=False)
WINDOW = LayerClass(LayerKind.WINDOW_ONLY, 0, Region.FULL, pooled=False)
ROWS = Column(Count.QUERY_ROWS, Region.LATE)


def operator(name: str = "op", **changed) -> Operator:
    return Operator(name=name, family=Family.ELEMENTWISE, **changed)


def test_forms_add_and_scale():
    form = 4 * (Count.WINDOW_PAIRS + Count.SELECTED_ENTRIES) + 2 * Count.WINDOW_PAIRS
    assert form == LinearForm({Count.WINDOW_PAIRS: 6, Count.SELECTED_ENTRIES: 4})
    assert str(form) == "6 x window_pairs + 4 x selected_entries"
    assert str(LinearForm()) == "0"


def test_placing_gives_counts_their_columns():
    task = place(
        operator(
            flops={Arithmetic.FP8: 2 * Count.QUERY_ROWS}, weights=7 * Count.ACTIVE,
            kv_reads=3 * Count.SELECTED_ENTRIES, inputs={"a": 5 * Count.QUERY_ROWS},
            outputs={"b": 1 * Count.QUERY_ROWS, "c": 2 * Count.QUERY_ROWS},
        ),
        REUSE,
    )  # fmt: skip
    assert task.flops == {Arithmetic.FP8: {ROWS: 2}}
    assert task.traffic[Traffic.WEIGHTS] == {Column(Count.ACTIVE, Region.LATE): 7}
    assert task.traffic[Traffic.KV_READ] == {Column(Count.SELECTED_ENTRIES, Region.LATE, 1): 3}
    assert task.traffic[Traffic.ACTIVATION_READ] == {ROWS: 5}
    assert task.traffic[Traffic.ACTIVATION_WRITE] == {ROWS: 3}
    assert task.launches == {Column(Count.ACTIVE, Region.LATE): 1}
    assert (task.rows, task.replaces, task.payload) == (ROWS, ("op",), {})


@pytest.mark.parametrize(
    ("count", "where"),
    [
        (Count.SELECTED_ENTRIES, WINDOW),
        (Count.SCORED_POSITIONS, REUSE),
        (Count.ENTRIES_WRITTEN, REUSE),
        (Count.QUERY_ROWS, None),
    ],
)
def test_a_count_that_a_layer_does_not_have_is_refused(count: Count, where: LayerClass | None):
    with pytest.raises(ValueError, match=str(count)):
        place(operator(weights=1 * count), where)


def test_a_fused_kernel_hands_tensors_over_on_chip():
    first = place(operator("a", inputs={"x": 1 * Count.QUERY_ROWS},
                           outputs={"y": 2 * Count.QUERY_ROWS}), REUSE)  # fmt: skip
    second = place(operator("b", inputs={"y": 2 * Count.QUERY_ROWS, "x": 1 * Count.QUERY_ROWS},
                            outputs={"z": 4 * Count.QUERY_ROWS}, weights=9 * Count.ACTIVE),
                   REUSE)  # fmt: skip
    whole = fuse("ab", [first, second])
    assert whole.replaces == ("a", "b")
    assert whole.traffic[Traffic.ACTIVATION_READ] == {ROWS: 1}
    assert whole.traffic[Traffic.ACTIVATION_WRITE] == {ROWS: 4}
    assert whole.traffic[Traffic.WEIGHTS] == {Column(Count.ACTIVE, Region.LATE): 9}
    assert whole.launches == first.launches
    kept = fuse("ab", [first, second], kept=["y"])
    assert kept.traffic[Traffic.ACTIVATION_WRITE] == {ROWS: 6}


def test_a_fused_kernel_belongs_to_the_family_that_works():
    norm = place(operator("norm"), REUSE)
    product = place(Operator(name="product", family=Family.PROJECTION), REUSE)
    assert fuse("both", [norm, product]).family is Family.PROJECTION
    assert fuse("norms", [norm, norm]).family is Family.ELEMENTWISE


def test_a_fused_kernel_keeps_the_message_of_a_member():
    quiet = place(operator("quiet"), REUSE)
    send = place(
        operator("send", collective=Collective.ALL_GATHER, payload=8 * Count.QUERY_ROWS, group=4),
        REUSE,
    )
    for members in ([quiet, send], [send, quiet]):
        whole = fuse("both", members)
        assert (whole.collective, whole.group) == (Collective.ALL_GATHER, 4)
        assert whole.payload == {ROWS: 8}
    with pytest.raises(ValueError, match="one kernel sends one message, not 2"):
        fuse("two", [send, quiet, send])
