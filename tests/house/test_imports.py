"""Imports point one way, and importing the package costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "aisim_v41"
MODULES = sorted(PACKAGE.rglob("*.py"))

BASE = {
    "arithmetic",
    "canonical",
    "collecting",
    "errors",
    "reading",
    "resources",
    "units",
    "writing",
}
HARDWARE = {"hardware", "hardware_file", "hardware_schema"}
REPORTS = {"caching", "claims", "memory", "reports", "validation"}
COUNTED_AND_PRICED = {
    "model", "plan", "ops", "tables", "forwards", "io", "evidence", "estimators", "speculation",
}  # fmt: skip
BELOW: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    **dict.fromkeys(HARDWARE, BASE | HARDWARE),
    "model": BASE,
    "plan": BASE | {"model"},
    "ops": BASE | {"model", "plan"},
    "tables": BASE | HARDWARE,
    "forwards": BASE | HARDWARE | {"model", "plan", "ops", "memory", "tables"},
    "io": BASE | HARDWARE | {"model", "plan", "ops", "memory", "tables", "forwards"},
    "evidence": BASE | HARDWARE | {"model", "plan", "ops", "tables"},
    "estimators": BASE | HARDWARE | {"model", "plan", "ops", "tables", "forwards", "evidence"},
    "speculation": BASE | HARDWARE | {"model", "plan", "ops", "estimators"},
    **dict.fromkeys(REPORTS, BASE | HARDWARE | COUNTED_AND_PRICED | REPORTS),
    "pictures": BASE | HARDWARE | COUNTED_AND_PRICED | REPORTS | {"sweeps"},
    "sweeps": BASE | HARDWARE | {"model", "plan", "estimators", "memory"},
    "cli": BASE | HARDWARE | COUNTED_AND_PRICED | REPORTS | {"pictures", "sweeps"},
}
"""What each part may import, besides itself (DESIGN §1, §3-§6)."""

EXCEPTIONS = {
    ("estimators/result.py", "memory"): "an estimate carries the memory verdict of its step",
    (
        "estimators/result.py",
        "pictures",
    ): "an estimate draws itself when asked to (DESIGN §6)",
}
VERSION = "__version__"
"""What the package itself says without loading anything."""
SURFACE = "__init__.py"
"""Names of the public surface load on first use, from wherever they live."""


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported(path: Path) -> set[str]:
    """Full names of everything that a module imports, at its top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def at_the_top(path: Path) -> set[str]:
    """Names imported when the module itself is imported."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(f"{node.module}")
    return names


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_every_part_has_its_place():
    assert {part_of(path) for path in MODULES} - {"__init__"} - set(BELOW) == set()


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_imports_point_one_way(path: Path):
    if shown(path) == SURFACE:
        return
    own = part_of(path)
    for name in imported(path):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first != "aisim_v41" or target == VERSION or (shown(path), target) in EXCEPTIONS:
            continue
        assert target in BELOW[own] | {own}, f"{shown(path)} imports {name}"


def test_exceptions_are_still_needed():
    for (name, target), reason in EXCEPTIONS.items():
        path = PACKAGE / name
        found = {other for other in imported(path) if other.startswith(f"aisim_v41.{target}")}
        assert found, reason


FOREIGN = {"torch", "triton", "jax", "tensorflow", "matplotlib", "collectors", "requests"}
DRAWS = {"estimators/result.py", "cli/draw.py"}
"""What names matplotlib, an extra, outside `aisim_v41.pictures`: axes that are handed on."""
SCIPY = {
    "evidence/forwards/bands.py",
    "evidence/forwards/flags.py",
    "evidence/forwards/physical.py",
    "evidence/forwards/residual.py",
    "evidence/robust.py",
    "validation/plain.py",
}
"""Modules that need scipy, which takes as long to import as the rest together."""


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_no_module_needs_a_gpu_stack_a_plot_or_the_network(path: Path):
    first = {name.partition(".")[0] for name in imported(path)}
    draws = shown(path) in DRAWS or part_of(path) == "pictures"
    assert not first & FOREIGN - ({"matplotlib"} if draws else set())
    assert "matplotlib" not in {name.partition(".")[0] for name in at_the_top(path)}
    assert "scipy" not in first or shown(path) in SCIPY


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_frames_load_where_they_are_made(path: Path):
    """pandas takes longer to import than a million steps take to count."""
    assert "pandas" not in at_the_top(path)


HEAVY = ("pandas", "scipy", "pydantic", "yaml", "torch", "numpy", "typer", "rich")


def fresh(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_imports_nothing_heavy():
    loaded = fresh("import sys, aisim_v41; print(*sys.modules)").split()
    assert "aisim_v41" in loaded
    assert not set(HEAVY) & set(loaded)
    assert not [name for name in loaded if name.startswith("aisim_v41.")]


def test_the_hot_path_needs_no_frames():
    """A model, a GPU and a compiled step, without pandas."""
    program = (
        "import sys, aisim_v41 as a;"
        "model, gpu = a.load_model('deepseek-v4.1-flash'), a.load_hardware('gb300');"
        "step = a.compile(model, gpu, method='sol');"
        "step([a.Request(new_tokens=8)]);"
        "print(*sys.modules)"
    )
    loaded = fresh(program).split()
    assert "aisim_v41.estimators.compiled" in loaded
    assert not {"pandas", "scipy", "torch", "typer", "rich"} & set(loaded)


def test_names_load_in_any_order():
    """A subpackage that loads on the way must not hide a public name."""
    names = "('compile', 'estimate', 'capacity', 'ledger', 'policy', 'load_model')"
    program = (
        "import itertools, subprocess, sys, aisim_v41 as a;"
        f"order = sys.argv[1:] or list({names});"
        "[getattr(a, name) for name in order];"
        f"assert all(callable(getattr(a, name)) for name in {names});"
        "import aisim_v41.estimators.sol, aisim_v41.memory, aisim_v41.plan.ledger;"
        f"assert all(callable(getattr(a, name)) for name in {names}); print('ok')"
    )
    for order in (("compile", "estimate"), ("capacity", "estimate"), ("ledger", "policy")):
        done = subprocess.run(
            [sys.executable, "-c", program, *order], capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == "ok", done.stderr
