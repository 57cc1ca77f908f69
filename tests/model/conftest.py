from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model

OFFICIAL = "deepseek-v4.1-flash"
_CONFIG = json.loads(resources.find("profiles", OFFICIAL, "/config.json").read_text())


@pytest.fixture
def config() -> dict[str, Any]:
    """A private copy of the official config, to change."""
    return copy.deepcopy(_CONFIG)


@pytest.fixture(scope="session")
def model() -> Model:
    loaded = load_model(OFFICIAL)
    assert isinstance(loaded, Model)
    return loaded
