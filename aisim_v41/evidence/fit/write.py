"""Calibration files as text: parameters for the library, residuals by size for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aisim_v41.evidence.fit.jobs import Fitted
from aisim_v41.evidence.robust import Errors
from aisim_v41.hardware import Hardware

PACKAGE = "aisimulate 0.13.0.dev202610270000000085, aiconfigurator-core 0.12.0, Apache-2.0"
HEADER = """\
# Parameters of the laws in aisim_v41/evidence/laws.py; see docs/calibration.md.
# Seconds, bytes, shares of this GPU's own peaks. Errors are those of rows left out of the fit.
# Written by python -m aisim_v41.evidence.fit from the tables beside it; their sidecars name source
# and licence: {package}.
"""
RESIDUAL_COLUMNS = (
    "engine", "law", "part", "rows", "median_error", "p90_error", "bias",
)  # fmt: skip
PARTS = ("fitted", "left out")


def calibration_text(hardware: Hardware, laws: Sequence[Fitted]) -> str:
    """A calibration file of one GPU, laws in the order in which they come."""
    lines = [HEADER.format(package=PACKAGE).rstrip(), "schema: 1", f"gpu: {hardware.name}"]
    if hardware.link_bytes_per_s is not None:
        lines.append(f"link_bytes_per_s: {number(hardware.link_bytes_per_s)}")
    lines.append("engines:")
    for engine in dict.fromkeys(law.engine for law in laws):
        lines.append(f"  {engine}:")
        for law in laws:
            if law.engine == engine:
                lines += _law_lines(law)
    return "\n".join(lines) + "\n"


def residuals_text(laws: Sequence[Fitted]) -> str:
    """Errors of every law, over all rows and by size, as CSV."""
    lines = [",".join(RESIDUAL_COLUMNS)]
    for law in laws:
        parts: dict[str, Errors] = {PARTS[0]: law.within, PARTS[1]: law.left_out}
        parts |= {f"left out, {band}": errors for band, errors in law.bands.items()}
        parts |= law.extra
        for part, errors in parts.items():
            lines.append(
                f'{law.engine},{law.key},"{part}",{errors.rows},{errors.median:.4f},'
                f"{errors.p90:.4f},{errors.bias:.4f}"
            )
    return "\n".join(lines) + "\n"


def _law_lines(law: Fitted) -> Iterable[str]:
    yield f'    "{law.key}":'
    yield f"      kind: {law.kind}"
    yield f"      parameters: {_flow({k: law.parameters[k] for k in sorted(law.parameters)})}"
    yield f"      error: {_flow(_errors(law.left_out))}"
    if law.penalty:
        yield f"      penalty: {number(law.penalty)}"
    hull = law.hull if law.samples is None else law.samples.hull
    yield f"      hull: {_flow({k: [v.min(), v.max()] for k, v in hull.items()})}"
    if law.reach:
        yield f"      reach: {law.reach}"
    if law.origin != "calibrated":
        yield f"      origin: {law.origin}"
    yield f"      sources: {_flow(list(law.sources))}"
    if law.note:
        yield f'      note: "{law.note}"'


def _errors(errors: Errors) -> Mapping[str, float]:
    return {
        "median": round(errors.median, 4),
        "p90": round(errors.p90, 4),
        "bias": round(errors.bias, 4),
        "rows": errors.rows,
    }


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    assert isinstance(value, (int, float))
    return number(value)


_WHOLE = 1e12


def number(value: float) -> str:
    """Five significant digits, in a form that YAML reads as a number."""
    if isinstance(value, int):
        return str(value)
    if float(value).is_integer() and abs(value) < _WHOLE:  # a limit must be met exactly
        return f"{value:.1f}"
    text = f"{value:.5g}"
    mantissa, e, exponent = text.partition("e")
    if e and "." not in mantissa:
        mantissa += ".0"
    return mantissa + e + exponent
