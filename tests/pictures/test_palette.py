"""Colours can be seen on both pages, and told apart by most eyes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from aisim_v41.estimators.op.evidence import Tag
from aisim_v41.memory.terms import Kind
from aisim_v41.ops.operator import Family
from aisim_v41.pictures import canvas
from aisim_v41.pictures.palette import (
    EVIDENCE,
    FAMILIES,
    HOST,
    MEMORY,
    METHODS,
    NEUTRAL,
    OWNERS,
    PHASES,
    ink_on,
    nth,
)  # fmt: skip

TABLES = {
    "families": FAMILIES, "evidence": EVIDENCE, "phases": PHASES, "methods": METHODS,
    "memory": MEMORY, "owners": {colour: colour for colour in OWNERS},
}  # fmt: skip
# Machado, Oliveira and Fernandes 2009, severity 1, on linear sRGB.
EYES = {
    "all colours": np.eye(3),
    "weak red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                 [-0.003882, -0.048116, 1.051998]],
    "weak green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.011820, 0.042940, 0.968881]],
    "weak blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                  [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
# Ottosson 2020: linear sRGB to cone responses, and their cube roots to Oklab.
CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                  [0.2119034982, 0.6806995451, 0.1073969566],
                  [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
OKLAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                  [1.9779984951, -2.4285922050, 0.4505937099],
                  [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    dark, bright = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def apart(one: str, other: str, eye: str) -> float:
    """Distance in Oklab, where 2 is just seen and 100 is black from white."""
    seen = [np.clip(np.asarray(EYES[eye]) @ linear(c), 0, 1) for c in (one, other)]
    first, second = (OKLAB @ np.cbrt(CONES @ c) for c in seen)
    return 100 * float(np.linalg.norm(first - second))


def test_every_family_and_kind_has_a_colour():
    assert set(FAMILIES) == {*map(str, Family), "waiting"}
    assert set(EVIDENCE) == {*Tag.__args__, "host"}
    assert set(MEMORY) == set(map(str, Kind))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("eye", EYES)
def test_colours_of_a_table_can_be_told_apart(table: str, eye: str):
    closest = min((apart(a, b, eye), a, b) for a, b in combinations(TABLES[table].values(), 2))
    assert closest[0] > 8.0, closest


@pytest.mark.parametrize("table", TABLES)
def test_colours_stand_out_on_both_pages(table: str):
    for colour in (*TABLES[table].values(), NEUTRAL, HOST):
        assert contrast(colour, canvas._PAPER["light"]) > 1.6, colour
        assert contrast(colour, canvas._PAPER["dark"]) > 2.8, colour


@pytest.mark.parametrize("table", TABLES)
def test_text_on_a_colour_can_be_read(table: str):
    for colour in TABLES[table].values():
        assert contrast(colour, ink_on(colour)) > 4.5, colour


def test_owners_repeat_after_the_last():
    assert nth(0) == nth(len(OWNERS)) == OWNERS[0]
