"""Which function recomputes which claim, and the check that nothing is left over on either side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aisim_v41.claims import (
    architecture,
    engram,
    flops,
    inventory,
    kernels,
    kv,
    memory,
    parameters,
    prefill,
    ranks,
    replay,
    serving,
    speculation,
    storage,
    vision,
)
from aisim_v41.claims.context import Formula
from aisim_v41.claims.table import Claim
from aisim_v41.claims.verdict import Verdict
from aisim_v41.errors import SchemaError

MODULES = (
    architecture, inventory, parameters, kv, flops, prefill, ranks, replay, kernels, engram,
    vision, speculation, storage, memory, serving,
)  # fmt: skip
"""One module a topic; each maps ids to functions in ``FORMULAS``."""


def all_formulas() -> dict[str, Formula]:
    """Every formula by the id of its claim.

    Raises:
        SchemaError: two modules claim the same id.
    """
    formulas: dict[str, Formula] = {}
    for module in MODULES:
        twice = sorted(formulas.keys() & module.FORMULAS.keys())
        if twice:
            raise SchemaError(f"two formulas for claim {twice[0]!r}; one is in {module.__name__}")
        formulas.update(module.FORMULAS)
    return formulas


def check_accounted(claims: Iterable[Claim], formulas: Mapping[str, Formula]) -> None:
    """Whether every row has exactly one formula or says why it has none, and no formula is idle.

    Raises:
        SchemaError: names the rows and formulas that do not match.
    """
    rows = {claim.id: claim for claim in claims}
    idle = sorted(formulas.keys() - rows.keys())
    missing = sorted(
        claim.id for claim in rows.values() if claim.check and claim.id not in formulas
    )
    early = sorted(
        claim.id
        for claim in rows.values()
        if claim.expected_verdict is Verdict.NOT_YET and claim.id in formulas
    )
    problems = [
        f"{what}: {', '.join(ids)}"
        for what, ids in (
            ("formulas without a row", idle),
            ("rows with a check but no formula", missing),
            ("rows said to be not yet that have a formula", early),
        )
        if ids
    ]
    if problems:
        raise SchemaError("claims and formulas do not match: " + "; ".join(problems))
