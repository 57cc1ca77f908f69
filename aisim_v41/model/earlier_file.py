"""The file edge of ``generation.yaml``."""

from __future__ import annotations

from pathlib import Path

from aisim_v41.model.earlier import EarlierModel
from aisim_v41.reading import read_mapping


def read_generation(path: Path) -> EarlierModel:
    """The figures of an earlier generation."""
    return EarlierModel(name=str(read_mapping(path)["name"]))
