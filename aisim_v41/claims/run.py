"""Recompute every published figure, and say of each what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.registry import all_formulas, check_accounted
from aisim_v41.claims.report import ClaimRow, ClaimsReport
from aisim_v41.claims.table import Claim, load_claims
from aisim_v41.claims.verdict import Value, Verdict, relative_difference, show
from aisim_v41.errors import AisimError


def run_claims(
    context: Context | None = None, claims: Sequence[Claim] | None = None
) -> ClaimsReport:
    """Every row of the list with our value beside the published one.

    Args:
        context: what values are computed from; the packaged model and GPUs by default.
        claims: the list; the packaged one by default.

    Returns:
        The report; ``ok`` is False if a row that should reproduce does not, or the reverse.

    Raises:
        SchemaError: the list is malformed, or rows and formulas do not match.

    Example:
        >>> run_claims().ok
        True
    """
    listed = load_claims() if claims is None else tuple(claims)
    formulas = all_formulas()
    check_accounted(listed, formulas)
    source = Context.packaged() if context is None else context
    return ClaimsReport(
        rows=tuple(recompute(claim, formulas.get(claim.id), source) for claim in listed)
    )


def recompute(claim: Claim, formula: Formula | None, context: Context) -> ClaimRow:
    """One row: our value, and whether the row is what the list says it is."""
    ours: Value | None = None
    fault = ""
    if formula is not None:
        try:
            ours = formula(context)
        except (AisimError, ArithmeticError, LookupError, StopIteration) as error:
            # A claim about a part that a changed model does not have, or a plan that it refuses.
            fault = f"cannot be computed: {' '.join(str(error).split()) or type(error).__name__}"
    fault = fault or _fault(claim, ours)
    published = claim.published
    return ClaimRow(
        claim=claim,
        ours=ours,
        verdict=Verdict.MISMATCH if fault else claim.expected_verdict,
        note=fault or claim.reason,
        difference=None
        if ours is None or published is None
        else relative_difference(ours, published),
    )


def _fault(claim: Claim, ours: Value | None) -> str:
    """Why the row is not what the list says it is; empty if it is."""
    if ours is None:
        return ""
    guard = claim.guard
    if guard is not None and not guard[1].holds(ours, guard[0]):
        return (
            f"ours is {show(ours)}, an arithmetic apart from this library gives {claim.independent}"
        )
    check, published = claim.agreement, claim.published
    if check is None or published is None:
        return ""
    agrees = check.holds(ours, published)
    if claim.expected_verdict is Verdict.REPRODUCED and not agrees:
        return f"ours is {show(ours)}, published {claim.value} (check: {claim.check})"
    if claim.expected_verdict is Verdict.NOT_REPRODUCED and agrees:
        return f"ours, {show(ours)}, agrees with the published value; the list says that it cannot"
    return ""
