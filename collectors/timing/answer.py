"""Whether an answer is right; nothing is timed that is not."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from collectors.op.prepared import Agreement, Prepared


class Answer(NamedTuple):
    """How an answer compares.

    Attributes:
        difference: norm of the difference over the norm of the reference, the largest output's.
        wrong: what is wrong with it; empty if it is right.
    """

    difference: float
    wrong: str


def difference(prepared: Prepared, inputs: tuple[Any, ...]) -> Answer:
    """Run a call once and its reference once, and compare."""
    found = _listed(prepared.run(*inputs))
    wanted = _listed(prepared.reference(*inputs))
    if len(found) != len(wanted):
        return Answer(float("inf"), f"{len(found)} outputs, the reference has {len(wanted)}")
    unsound = next((place for place, one in enumerate(found) if not _is_finite(one)), None)
    if unsound is not None:
        return Answer(float("inf"), f"output {unsound}: values that are not finite")
    if prepared.compare is not None:
        wrong = prepared.compare(_packed(found), _packed(wanted), inputs)
        return Answer(0.0 if wrong is None else float("inf"), wrong or "")
    worst = 0.0
    for place, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        apart, wrong = _compared(ours, theirs, prepared.agreement)
        worst = max(worst, apart)
        if wrong:
            return Answer(worst, f"output {place}: {wrong}")
    return Answer(worst, "")


def _compared(ours: torch.Tensor, theirs: torch.Tensor, agreement: Agreement) -> tuple[float, str]:
    if ours.shape != theirs.shape:
        return float("inf"), f"shape {tuple(ours.shape)}, must be {tuple(theirs.shape)}"
    if ours.is_floating_point() != theirs.is_floating_point():
        return float("inf"), f"type {ours.dtype}, must be like {theirs.dtype}"
    if agreement.exact or not ours.is_floating_point():
        unequal = int((_plain(ours) != _plain(theirs)).sum())
        said = f"{unequal} of {ours.numel()} elements differ from the reference"
        return (float("inf"), said) if unequal else (0.0, "")
    ours, theirs = ours.double(), theirs.double()
    norm = float(torch.linalg.vector_norm(theirs))
    apart = float(torch.linalg.vector_norm(ours - theirs)) / max(norm, 1e-30)
    if not apart <= agreement.relative:
        return apart, f"{apart:.3g} from the reference, allowed is {agreement.relative:.3g}"
    return apart, ""


def _is_finite(tensor: torch.Tensor) -> bool:
    small = tensor.is_floating_point() and tensor.element_size() == 1
    return not tensor.is_floating_point() or small or bool(torch.isfinite(tensor).all())


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Values that can be compared: types of eight bits as their bytes."""
    small = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.contiguous().view(torch.uint8) if small else tensor


def _listed(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _packed(outputs: list[torch.Tensor]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
