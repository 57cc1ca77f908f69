"""Whether our value agrees with a published one, and what a row of the report then says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from numbers import Rational, Real
from typing import Literal

from aisim_v41.errors import SchemaError

Value = int | float | Fraction | str | tuple[int | float | Fraction, ...]
"""What a formula returns: a number, a word of the config, or several numbers in order."""
Parsed = str | tuple[Fraction, ...]
"""A value in the form in which it is compared: exact numbers, or a word."""


class Verdict(StrEnum):
    """What became of one published figure."""

    MISMATCH = "mismatch"
    """Should reproduce and does not, or should not and does: the library or the row is wrong."""
    NOT_REPRODUCED = "not reproduced"
    """Published and ours differ for a known reason, or two publications differ; not passed."""
    MEASURED_ELSEWHERE = "measured elsewhere"
    """A measurement on somebody's machine; listed beside our bound where there is one."""
    NOT_YET = "not yet"
    """Needs a part of the library that a later issue brings."""
    NOT_COMPUTABLE = "not computable"
    """The source prints no number, or states a policy that no configuration decides."""
    REPRODUCED = "reproduced"


STATED = {verdict.value: verdict for verdict in Verdict if verdict is not Verdict.MISMATCH}
"""What a row of the data may say that it will turn out to be."""

Rule = Literal["equal", "rel", "abs", "at most"]
_FORM = re.compile(r"(rel|abs) <= (\d{1,12}(?:\.\d{1,12})?)", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,2})?", re.ASCII)
"""What is read as a number: short, so that no field of a file costs time or memory."""


@dataclass(frozen=True, slots=True)
class Check:
    """When ours and published agree: ``equal``, ``rel <= x``, ``abs <= x`` or ``ours <= value``."""

    rule: Rule
    within: Fraction = Fraction(0)

    @classmethod
    def parse(cls, text: str, *, where: str) -> Check:
        """The check that a field of the data describes.

        Raises:
            SchemaError: not one of the four forms.
        """
        if text == "equal":
            return cls("equal")
        if text == "ours <= value":
            return cls("at most")
        form = _FORM.fullmatch(text)
        if form is None:
            raise SchemaError(
                f"{where} = {text!r}: must be 'equal', 'rel <= x', 'abs <= x' or 'ours <= value'"
            )
        return cls("rel" if form[1] == "rel" else "abs", Fraction(form[2]))

    def holds(self, ours: Value, published: Parsed) -> bool:
        """Whether the values agree; words agree only if they are the same."""
        mine = exact(ours)
        if isinstance(mine, str) or isinstance(published, str):
            return mine == published
        if len(mine) != len(published):
            return False
        return all(self._one(m, p) for m, p in zip(mine, published, strict=True))

    def _one(self, ours: Fraction, published: Fraction) -> bool:
        match self.rule:
            case "equal":
                return ours == published
            case "at most":
                return ours <= published
            case "rel":
                return abs(ours - published) <= self.within * abs(published)
            case "abs":
                return abs(ours - published) <= self.within


PRINTED_DIGITS = Check("rel", Fraction(1, 10**9))
"""Agreement with an independent arithmetic that was printed with ten digits."""


def parse_value(text: str) -> Parsed:
    """A field of the data as exact numbers (separated by ``;``), or as the word that it is."""
    parts = text.split(";")
    if all(_NUMBER.fullmatch(part) for part in parts):
        return tuple(Fraction(part) for part in parts)
    return text


def exact(value: Value) -> Parsed:
    """What a formula returned, in the form in which it is compared.

    Raises:
        ValueError, OverflowError: a number that is not finite.
        TypeError: neither numbers nor a word.
    """
    if isinstance(value, str):
        return value
    parts: Sequence[object] = value if isinstance(value, tuple) else (value,)
    return tuple(_fraction(part) for part in parts)


def _fraction(number: object) -> Fraction:
    if isinstance(number, Rational):
        return Fraction(number)
    if isinstance(number, Real):
        return Fraction(float(number))
    raise TypeError(f"{number!r} is not a number")


def show(value: Value | None) -> str:
    """A value as a person reads it: whole numbers with separators, others with ten digits."""
    if value is None:
        return "-"
    known = exact(value)
    if isinstance(known, str):
        return known
    return "; ".join(_show_one(number) for number in known)


def _show_one(number: Fraction) -> str:
    if number.denominator == 1:
        return f"{number.numerator:,}"
    return f"{float(number):.10g}"


def relative_difference(ours: Value, published: Parsed) -> float | None:
    """(ours - published) / published of single numbers; None where that has no meaning."""
    mine = exact(ours)
    if isinstance(mine, str) or isinstance(published, str):
        return None
    if len(mine) != 1 or len(published) != 1 or published[0] == 0:
        return None
    return float((mine[0] - published[0]) / published[0])
