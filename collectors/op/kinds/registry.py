"""Every kind, by the name of its operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import Kind
from collectors.op.kinds.attention import ATTENTION_KINDS
from collectors.op.kinds.collectives import COLLECTIVE_KINDS
from collectors.op.kinds.elementwise import ELEMENTWISE_KINDS
from collectors.op.kinds.engram import ENGRAM_KINDS
from collectors.op.kinds.experts import EXPERT_KINDS
from collectors.op.kinds.host import HOST_KINDS
from collectors.op.kinds.hyper import HYPER_KINDS
from collectors.op.kinds.indexer import INDEXER_KINDS
from collectors.op.kinds.products import PRODUCT_KINDS
from collectors.op.kinds.stores import STORE_KINDS

_FAMILIES: tuple[tuple[Kind, ...], ...] = (
    ATTENTION_KINDS,
    COLLECTIVE_KINDS,
    ELEMENTWISE_KINDS,
    ENGRAM_KINDS,
    EXPERT_KINDS,
    HOST_KINDS,
    HYPER_KINDS,
    INDEXER_KINDS,
    PRODUCT_KINDS,
    STORE_KINDS,
)

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
