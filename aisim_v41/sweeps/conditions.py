"""Conditions on the points of a space: comparisons of columns, read as data and never run as code.

>>> condition = Condition("tp * dp <= 8 and kind in ('decode', 'verify')")
>>> condition.columns
('dp', 'kind', 'tp')
>>> bool(condition({"tp": 4, "dp": 2, "kind": "decode"}))
True
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np

from aisim_v41.errors import InvalidInputError

MAX_CHARACTERS = 2000
_CALCULATE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: np.true_divide, ast.FloorDiv: np.floor_divide, ast.Mod: np.mod,
}  # fmt: skip
_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ALLOWED = "columns, numbers, texts, + - * / // %, comparisons, in, not in, and, or, not"


class Condition:
    """A condition over named columns.

    Args:
        text: an expression of Python's form; its names are columns of the sweep.

    Attributes:
        text: as given.
        columns: names that it needs, sorted.

    Raises:
        InvalidInputError: it is no expression, or holds something else than columns, literals,
            arithmetic, comparisons, ``in``, ``and``, ``or`` and ``not``.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_CHARACTERS:
            raise InvalidInputError(f"condition {text!r:.120}: must be a text such as 'tp <= 8'")
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
            _check(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InvalidInputError):
                raise InvalidInputError(f"condition {self.text!r:.200}: {error}") from None
            raise InvalidInputError(f"condition {self.text!r:.200}: no expression") from None
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        self.columns = tuple(sorted(names))
        if not names:
            raise InvalidInputError(f"condition {self.text!r:.200}: names no column")

    def __call__(self, columns: Mapping[str, Any]) -> Any:
        """Whether it holds: one truth value, or an array of them where a column is an array.

        Raises:
            InvalidInputError: values that cannot be compared or calculated with.
        """
        try:
            with np.errstate(all="ignore"):
                return _evaluate(self._tree, columns)
        except (TypeError, ArithmeticError) as error:
            raise InvalidInputError(f"condition {self.text!r:.200}: {error}") from None

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


def _check(node: ast.AST) -> None:
    """Refuse whatever is not on the list.

    Raises:
        InvalidInputError: naming it.
    """
    match node:
        case ast.BoolOp(values=parts):
            members = parts
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            members = [part]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALCULATE:
            members = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others):
            members = [left]
            for how, other in zip(ops, others, strict=True):
                if isinstance(how, (ast.In, ast.NotIn)):
                    if not isinstance(other, (ast.Tuple, ast.List)) or not all(
                        isinstance(value, ast.Constant) for value in other.elts
                    ):
                        raise InvalidInputError("after 'in' stands a list of values")
                elif type(how) in _COMPARE:
                    members.append(other)
                else:
                    raise InvalidInputError(f"{type(how).__name__} is not allowed; {_ALLOWED} are")
        case ast.Name():
            members = []
        case ast.Constant(value=bool() | int() | float() | str() | None):
            members = []
        case _:
            raise InvalidInputError(f"{type(node).__name__} is not allowed; {_ALLOWED} are")
    for member in members:
        _check(member)


def _evaluate(node: ast.AST, columns: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return columns[name]
        case ast.BoolOp(op=op, values=parts):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return reduce(join, (_evaluate(part, columns) for part in parts))
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return np.logical_not(_evaluate(part, columns))
        case ast.UnaryOp(operand=part):
            return -_number(_evaluate(part, columns))
        case ast.BinOp(left=left, op=op, right=right):
            return _calculated(
                _CALCULATE[type(op)],
                _number(_evaluate(left, columns)),
                _number(_evaluate(right, columns)),
            )
        case ast.Compare(left=left, ops=ops, comparators=others):
            truth: Any = True
            value = _evaluate(left, columns)
            for how, other in zip(ops, others, strict=True):
                if isinstance(how, (ast.In, ast.NotIn)):
                    found = _among(value, ast.literal_eval(other))
                    holds = found if isinstance(how, ast.In) else np.logical_not(found)
                else:
                    following = _evaluate(other, columns)
                    holds = _COMPARE[type(how)](value, following)
                    value = following
                truth = np.logical_and(truth, holds)
            return truth
    raise AssertionError(node)


def _number(value: Any) -> Any:
    """What can be calculated with.

    Raises:
        TypeError: a text, or no value.
    """
    if not isinstance(value, (int, float)) and np.asarray(value).dtype.kind not in "biuf":
        first = np.asarray(value).ravel().tolist()[:1]
        raise TypeError(f"{str(first)[1:-1]:.80} is no number to calculate with")
    return value


def _calculated(how: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """A result; real where whole numbers of 64 bits would not hold it."""
    found = how(left, right)
    if isinstance(found, np.ndarray) and found.dtype.kind in "iu":
        real = how(np.asarray(left, np.float64), np.asarray(right, np.float64))
        if found.size and np.abs(real).max() >= float(np.iinfo(np.int64).max):
            return real
    return found


def _among(value: Any, known: Any) -> Any:
    return reduce(np.logical_or, (value == one for one in known), np.zeros(np.shape(value), bool))
