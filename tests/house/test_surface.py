"""The public surface: names, docstrings, examples that run (DESIGN §11)."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import aisim_v41 as aisim
from aisim_v41 import errors

PACKAGE = Path(aisim.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(aisim.__path__, "aisim_v41.")
    if not module.name.endswith("__main__")
)

FUNCTIONS = {
    "load_model", "load_hardware", "policy", "ledger", "estimate", "capacity", "compile",
    "compare", "coverage", "sweep",
}  # fmt: skip
INPUTS = {"Plan", "Request", "Parallel"}
RESULTS = {"Model", "Hardware", "RuntimePolicy", "Ledger", "Estimate", "CapacityReport"}
"""Types of what the functions return."""
HELPERS = {"chunked", "load_fpm"}
"""The steps of a prompt, which every caller of `Request` would write again; and measured forwards,
which a caller has to choose and may teach."""
ERRORS = {
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.AisimError)
}


def test_the_surface_is_the_list_of_the_design():
    surface = set(aisim.__all__)
    named = FUNCTIONS | INPUTS | ERRORS
    assert named - surface == set()
    assert surface - named - RESULTS - HELPERS == set()
    assert list(aisim.__all__) == sorted(aisim.__all__)


def test_errors_have_one_root():
    assert "AisimError" in ERRORS
    assert {
        "MissingProfileError", "OutOfRangeError", "UnsupportedPlanError", "SchemaError",
        "CapacityError",
    } <= ERRORS  # fmt: skip
    for name in ERRORS:
        assert issubclass(getattr(aisim, name), aisim.AisimError)


@pytest.mark.parametrize("name", aisim.__all__)
def test_every_public_name_loads_and_is_documented(name: str):
    value = getattr(aisim, name)
    assert value.__name__ == name
    assert callable(value)
    assert inspect.getdoc(value)
    assert name in dir(aisim)


def test_other_names_do_not_exist():
    for name in ("estimat", "Sol", "Op", "numpy"):
        assert not hasattr(aisim, name)
    with pytest.raises(AttributeError, match="'aisim_v41' has no attribute 'estimat'"):
        aisim.estimat  # noqa: B018


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert aisim.__version__ == version("aisim-v41")


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize(
    "name", [n for n in aisim.__all__ if inspect.isfunction(getattr(aisim, n))]
)
def test_public_functions_are_annotated_and_say_what_they_raise(name: str):
    function = getattr(aisim, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
    doc = inspect.getdoc(function) or ""
    assert "Raises:" in doc or ">>>" in doc, f"{name} neither names its errors nor shows an example"


def documented(node: ast.AST) -> bool:
    return bool(ast.get_docstring(node))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_everything_public_has_a_docstring(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if tree.body:
        assert documented(tree), "the module"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert documented(node), node.name
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    assert documented(member), f"{node.name}.{member.name}"


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AISIM_V41_PATH", raising=False)
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {
        name: sum(len(test.examples) for test in finder.find(importlib.import_module(name)))
        for name in MODULES
    }
    for part in ("model", "plan", "estimators"):
        assert any(count for name, count in found.items() if f".{part}." in name), part
    assert sum(found.values()) >= 20
