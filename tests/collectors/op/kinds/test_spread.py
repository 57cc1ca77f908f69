"""Rows of requests: means are kept, keys grow, and bad sizes are refused by name."""

from __future__ import annotations

import random

import pytest

from collectors.case import Case
from collectors.errors import CollectorError, InputError
from collectors.op.kinds.registry import KINDS, kind_of
from collectors.op.kinds.spread import Ramp, Requests, ramp_of, requests_of, whole_parts

FAMILY = (
    "sparse_attention", "index_score", "index_select", "index_select_pool", "compress_pool",
    "compress_store", "main_store", "kv_store", "index_key_store",
)  # fmt: skip


def case_of(text: str) -> Case:
    case = Case.from_text(text)
    return kind_of(case).complete(case)


@pytest.mark.parametrize(
    ("sizes", "requests"),
    [
        ("rows=32", Requests(32, 1)),
        ("rows=512", Requests(512, 1)),
        ("rows=513", Requests(1, 513)),
        ("rows=48 rows_per_request=6", Requests(8, 6)),
        ("rows=1024 rows_per_request=1", Requests(1024, 1)),
    ],
)
def test_rows_by_request(sizes: str, requests: Requests):
    assert requests_of(case_of(f"index_score positions_per_row=10 {sizes}")) == requests


def test_whole_parts_have_the_mean():
    assert whole_parts(2.5, 4) == [2, 3, 2, 3]
    assert whole_parts(640, 3) == [640] * 3
    assert sum(whole_parts(607.3, 1000)) == 607_300


def test_a_chunk_sees_one_entry_more_each_row():
    """Rows 8,193 to 9,216 of a prompt: 8,704.5 on average; the first chunk starts at 1."""
    later = case_of("index_score rows=1024 positions_per_row=8704.5")
    ramp = ramp_of(later, requests_of(later))
    assert ramp == Ramp(8193.0, 1.0, 1024)
    assert (ramp.count(0), ramp.last) == (8193, 9216)
    first = case_of("index_score rows=1024 positions_per_row=512.5")
    assert ramp_of(first, requests_of(first)) == Ramp(1.0, 1.0, 1024)


def test_compressed_entries_grow_by_less():
    """Rows of the first 1,024 tokens at ratio 2 see half as many: 256.25 on average."""
    case = case_of("index_score rows=1024 positions_per_row=256.25")
    ramp = ramp_of(case, requests_of(case))
    counts = [ramp.count(row) for row in range(1024)]
    assert ramp.step == pytest.approx(0.499, abs=0.001)
    assert (counts[0], counts[-1]) == (1, 512)
    assert sum(counts) / 1024 == pytest.approx(256.25, rel=0.005)
    assert counts == sorted(counts)


def test_every_kind_of_the_family_is_registered():
    assert set(FAMILY) <= set(KINDS)


@pytest.mark.parametrize("operator", FAMILY)
def test_whatever_sizes_say_only_their_own_errors_come(operator: str):
    """500 cases of random sizes and options: a typed error, or work that is not negative."""
    rng = random.Random(operator)
    kind, refused = KINDS[operator], 0
    for _ in range(500):
        sizes: dict[str, float] = {}
        for rule in kind.sizes:
            if rng.random() < 0.95:
                top = min(rule.highest, 3000)
                sizes[rule.name] = rng.choice([rng.uniform(0, top), rng.randint(0, int(top))])
        options = {
            name: rng.choice([*words, "unheard_of"])
            for name, words in kind.options.items()
            if rng.random() < 0.7
        }
        try:
            case = kind.complete(Case(operator, sizes, options))
            work, memory = kind.work(case), kind.input_bytes(case)
        except CollectorError:
            refused += 1
            continue
        assert min(work.read_bytes, work.written_bytes, memory) > 0
        assert all(flops > 0 for flops in work.flops.values())
    assert 0 < refused < 500


def test_less_than_one_position_is_refused():
    with pytest.raises(InputError, match="positions_per_row"):
        case_of("index_select rows=1 positions_per_row=0.5")
