"""Engram's kernels: both ways against plain Python, localities, the hash of the library."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from answers import inputs_of, prepared, problem_of

from aisim_v41.plan.engram_hash import EngramHash
from aisim_v41.plan.engram_text import RequestText
from collectors.errors import UnavailableError
from collectors.op.kernels.engram import MULTIPLIERS, PRIMES, TEXT_VARIABLE, gated
from collectors.op.kinds.engram import CLASSES, DEEPEST

SMALL_TABLE = "ranks_of_table=4 table_rows=500"


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize(
    "text",
    [
        "engram_hash rows=70",
        f"engram_lookup rows=3 {SMALL_TABLE}",
        f"engram_lookup rows=3 {SMALL_TABLE} row_locality=hot",
        "engram_lookup rows=2 ranks_of_table=1 table_rows=9000",
        "engram_gate rows=5 hidden=96",
    ],
)
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


def test_products_stay_whole_numbers_of_64_bits():
    assert max(MULTIPLIERS) * (CLASSES - 1) < 2**63
    assert all(multiplier % 2 for multiplier in MULTIPLIERS)


def test_the_hash_is_the_librarys():
    """The library's own hash, given the same constants and classes, asks for the same rows."""
    ready = prepared("engram_hash rows=9", "torch")
    classes, starts, primes = inputs_of(ready)

    class Engram:
        max_ngram, heads, rows_per_token = 4, 8, 24

    library = EngramHash(
        engram=Engram, primes=(PRIMES,), multipliers=(MULTIPLIERS,), classes=None, ids=CLASSES,
        pad=0,
    )  # fmt: skip
    text = RequestText(token_ids=classes.tolist(), start=DEEPEST)
    assert ready.run(classes, starts, primes).tolist() == library.rows(text)[:, 0].tolist()


def test_localities():
    def numbers(locality: str) -> torch.Tensor:
        case = f"engram_lookup rows=40 ranks_of_table=1 table_rows=10000 row_locality={locality}"
        return inputs_of(prepared(case, "torch"))[1]

    assert int(numbers("hot").max()) < 100
    assert int(numbers("cold").max()) > 9000


def test_the_users_text(tmp_path, monkeypatch: pytest.MonkeyPatch):
    case = "engram_lookup rows=4 ranks_of_table=1 table_rows=1000 row_locality=text"
    path = tmp_path / "classes.json"
    monkeypatch.delenv(TEXT_VARIABLE, raising=False)
    with pytest.raises(UnavailableError, match="needs"):
        prepared(case, "torch")
    monkeypatch.setenv(TEXT_VARIABLE, str(path))
    for text, said in (("[1, 2]", "7 needed"), ("{", "not a JSON")):
        path.write_text(text)
        with pytest.raises(UnavailableError, match=said):
            prepared(case, "torch")
    path.write_text(json.dumps([5, 6, 7, 8, 5, 6, 7, 8]))
    ready = prepared(case, "torch")
    assert problem_of(ready) == ""
    first = inputs_of(ready)[1]
    # the text repeats after four tokens, so the first token's 2-gram rows are those of the fifth
    assert len(first) == 4 * 24


def test_a_gate_by_hand():
    """Keys equal to the streams: the normalised dot is the root of the width."""
    streams = torch.ones(1, 4, 16, dtype=torch.float64)
    keys = torch.cat((torch.ones(1, 64), torch.full((1, 16), 2.0)), 1).double()
    one = torch.ones(4, 16).double()
    gate = 1 / (1 + np.exp(-(4.0**0.5)))
    found = gated(streams, keys, one, one, torch.float64)
    assert found[0, 0, 0].item() == pytest.approx(1 + 2 * gate, rel=1e-5)
