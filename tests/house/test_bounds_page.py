"""The worked example of docs/bounds.md, recomputed."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.model.active import decode_weight_bytes
from aisim_v41.plan.counts import Count
from tests.house.test_docs import _CODE_SPAN, page, section, table_rows


@pytest.fixture(scope="module")
def example():
    model = aisim.load_model("deepseek-v4.1-flash")
    request = aisim.Request(new_tokens=1, prefix_tokens=4095, kind="decode")
    plan = aisim.Plan(model, [request])
    return aisim.estimate(plan, aisim.load_hardware("gb300"), method="sol")


def row_of(example, operator: str, layer: int):
    return next(row for row in example.rows if row.operator == operator and layer in row.layers)


def test_the_attention_of_the_example(example):
    text = section(page("bounds.md"), "Attention of layer 20")
    row = row_of(example, "sparse_attention", 20)
    assert row.layers == (20,)
    kinds = row.bytes_by_kind
    activations = kinds["activation_read"] + kinds["activation_write"]
    everything = sum(kinds.values())
    for number in (row.flop, kinds["kv_read"], kinds["kv_reread"], activations, everything,
                   kinds["weights"] + kinds["kv_read"]):  # fmt: skip
        assert f"{number:,.0f}" in text
    assert row.bound == "hbm"
    assert f"{row.seconds_by_resource['tensor'] * 1e9:.1f} ns" in text
    assert f"{row.seconds_by_resource['hbm'] * 1e9:.1f} ns" in text
    counted = aisim.ledger(example.plan)
    for cells in table_rows(text):
        for name in _CODE_SPAN.findall(cells[0]):
            if name in set(Count):
                assert f"{counted.total(Count(name), 20):,}" == cells[1], name


def test_the_projection_of_the_example(example):
    text = section(page("bounds.md"), "Query projection of any layer")
    row = row_of(example, "q_up_rope", 3)
    assert f"{row.bytes_by_kind['weights'] / row.calls:,.0f} B" in text
    assert f"{row.flop / row.calls:,.0f}" in text
    assert f"{row.seconds_by_resource['tensor'] / row.calls * 1e9:.1f} ns" in text


def test_the_whole_step_of_the_example(example):
    text = section(page("bounds.md"), "The whole step")
    rows = table_rows(text)
    parts = [int(cells[2].replace(",", "")) for cells in rows[:-1]]
    total = int(rows[-1][2].strip("*").replace(",", ""))
    bandwidth = example.hardware.hbm_bandwidth_bytes_per_s
    assert sum(parts) == total == round(example.bounds.resource_s * bandwidth)
    assert parts[0] == sum(decode_weight_bytes(example.plan.model).values())
    for seconds in (example.bounds.resource_s, example.bounds.graph_s, example.bounds.launch_s):
        assert f"{seconds * 1e3:.4f} ms" in text
    assert f"{sum(row.launches for row in example.rows):.0f} kernels" in text
