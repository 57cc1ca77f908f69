from __future__ import annotations

import json
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model

OFFICIAL = "deepseek-v4.1-flash"


@pytest.fixture(scope="session")
def model() -> Model:
    loaded = load_model(OFFICIAL)
    assert isinstance(loaded, Model)
    return loaded


@pytest.fixture(scope="session")
def gb300() -> Hardware:
    return load_hardware("gb300")


@pytest.fixture
def config() -> dict[str, Any]:
    """A private copy of the official config, to change."""
    loaded: dict[str, Any] = json.loads(
        resources.find("profiles", OFFICIAL, "/config.json").read_text()
    )
    return loaded
