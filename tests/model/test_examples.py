"""The examples in the docstrings run as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import aisim_v41.model

MODULES = [module.name for module in pkgutil.iter_modules(aisim_v41.model.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"aisim_v41.model.{name}"))
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [importlib.import_module(f"aisim_v41.model.{name}") for name in MODULES]
    assert sum(len(test.examples) for module in modules for test in finder.find(module)) >= 10
