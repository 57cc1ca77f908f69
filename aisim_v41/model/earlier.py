"""Placeholder until the comparison figures are in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierModel:
    """An earlier generation: figures for comparison, no step model."""

    name: str
