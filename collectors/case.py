"""A case: one operator at one size, as text that people write and programs compare.

``gemm dtype=fp8_block32 inputs=5120 outputs=1280 rows=32`` is a case. Words are options (what is
timed, part of the identity), numbers are sizes. `aisim_v41.coverage` prints the cases that it
misses in the same grammar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from collectors.errors import InputError

Size = int | float
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,127}")
_KEY_DIGITS = 16


@dataclass(frozen=True)
class Case:
    """One operator at one size.

    Attributes:
        operator: what is timed.
        sizes: numbers by name; whole ones are ``int``.
        options: words by name.

    Raises:
        InputError: a name or a value that cannot be one.
    """

    operator: str
    sizes: Mapping[str, Size]
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in (self.operator, *self.sizes, *self.options):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InputError(f"case {self.operator!r:.80}: {name!r:.80} cannot be a name")
        both = sorted(set(self.sizes) & set(self.options))
        if both:
            raise InputError(f"case {self.operator}: {both[0]} is a size and an option")
        for name, word in self.options.items():
            if not isinstance(word, str) or not _WORD.fullmatch(word):
                raise InputError(f"case {self.operator}: {name}={word!r:.80} must be a word")
        sizes = {
            name: _number(self.operator, name, self.sizes[name]) for name in sorted(self.sizes)
        }
        object.__setattr__(self, "sizes", MappingProxyType(sizes))
        options = {name: self.options[name] for name in sorted(self.options)}
        object.__setattr__(self, "options", MappingProxyType(options))

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple:
        return Case.from_text, (self.text,)

    @property
    def text(self) -> str:
        """The case as one line, in one order: operator, options, sizes."""
        fields = {**self.options, **self.sizes}
        return " ".join([self.operator, *(f"{name}={value}" for name, value in fields.items())])

    @property
    def key(self) -> str:
        """Short digest of the text."""
        return sha256(self.text.encode()).hexdigest()[:_KEY_DIGITS]

    def size(self, name: str) -> Size:
        """One size.

        Raises:
            InputError: the case has none of that name.
        """
        if name not in self.sizes:
            raise InputError(f"case {self.text}: no size {name}")
        return self.sizes[name]

    def whole(self, name: str) -> int:
        """One size that must be a whole number.

        Raises:
            InputError: the case has none of that name, or it is not whole.
        """
        value = self.size(name)
        if not isinstance(value, int):
            raise InputError(f"case {self.text}: {name} must be a whole number")
        return value

    def having(self, **fields: Size | str) -> Case:
        """The case with some sizes or options changed or added."""
        sizes, options = dict(self.sizes), dict(self.options)
        for name, value in fields.items():
            (options if isinstance(value, str) else sizes)[name] = value  # type: ignore[index]
        return Case(self.operator, sizes, options)

    @staticmethod
    def from_text(text: str) -> Case:
        """Read a case; fields may come in any order.

        Raises:
            InputError: not of the form ``operator name=value ...``, or a name twice.
        """
        operator, *fields = (text.split()[:256] if isinstance(text, str) else []) or [""]
        sizes: dict[str, Size] = {}
        options: dict[str, str] = {}
        for field in fields:
            name, equals, value = field.partition("=")
            if not equals or name in sizes or name in options:
                raise InputError(f"case {text!r:.200}: {field!r:.80} must be name=value, once each")
            number = _as_number(value)
            if number is None:
                options[name] = value
            else:
                sizes[name] = number
        return Case(operator, sizes, options)


def _as_number(text: str) -> Size | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _number(operator: str, name: str, value: Size) -> Size:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < 0:
        raise InputError(f"case {operator}: {name}={value!r:.80} must be a number, 0 or more")
    return int(value) if float(value).is_integer() else float(value)
