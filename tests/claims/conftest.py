from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.claims import Claim, ClaimsReport, load_claims, run_claims

_CONFIG = json.loads(resources.find("profiles", "deepseek-v4.1-flash", "/config.json").read_text())


@pytest.fixture
def config() -> dict[str, Any]:
    """A private copy of the official config, to change."""
    return copy.deepcopy(_CONFIG)


@pytest.fixture(scope="session")
def report() -> ClaimsReport:
    return run_claims()


@pytest.fixture(scope="session")
def claims() -> Mapping[str, Claim]:
    return {claim.id: claim for claim in load_claims()}
