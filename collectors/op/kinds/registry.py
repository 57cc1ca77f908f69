"""Every kind, by the name of its operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import Kind

_FAMILIES: tuple[tuple[Kind, ...], ...] = ()

KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.operator: kind for family in _FAMILIES for kind in family}
)


def kind_of(case: Case) -> Kind:
    """The kind of a case.

    Raises:
        InputError: no such operator.
    """
    if case.operator not in KINDS:
        raise InputError(f"case {case.text}: no operator {case.operator}; there are: "
                         f"{', '.join(sorted(KINDS))}")  # fmt: skip
    return KINDS[case.operator]
