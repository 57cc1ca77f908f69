"""How the sources are written: units in one place, short files, nobody's machine."""

from __future__ import annotations

import ast
import getpass
import re
import socket
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "aisim_v41"
MODULES = sorted(PACKAGE.rglob("*.py"))
PYTHON = sorted(
    path
    for folder in ("aisim_v41", "benchmarks", "collectors", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
LONGEST = 450


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- units ---------------------------------------------------------------------------------------

DECIMAL = {10.0**power for power in (3, 6, 9, 12, 15, -3, -6, -9, -12)}
BINARY = {1 << power for power in (10, 20, 30, 40, 50)}
SHIFTS = {10, 20, 30, 40, 50}

NOT_UNITS = {
    ("aisim_v41/plan/request.py", "1000000 * chunk_tokens"): "a million steps",
    ("aisim_v41/reading.py", "4 << 20"): "largest file that is read",
}
"""Literals that look like a unit and are none."""


def value_of(node: ast.AST) -> float | None:
    """The number that a literal, a power or a shift of literals stands for."""
    match node:
        case ast.Constant(value=int() | float() as value) if type(value) is not bool:
            return value
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift() as op, right=right):
            low, high = value_of(left), value_of(right)
            if low is None or high is None or not 0 < high < 100:
                return None
            return low**high if isinstance(op, ast.Pow) else int(low) << int(high)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = value_of(operand)
            return None if inner is None else -inner
    return None


def unit_literals(source: str) -> Iterator[str]:
    """Places that scale by a power of 1000 or 1024 written out, or shift by one."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.BinOp):
            continue
        if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            sides = (node.left, node.right)
        elif isinstance(node.op, ast.LShift | ast.RShift):
            left, right = value_of(node.left), value_of(node.right)
            if right in SHIFTS and left != 1:
                yield ast.unparse(node)
            continue
        else:
            continue
        if any((value := value_of(side)) is not None and abs(value) in DECIMAL | BINARY
               for side in sides):  # fmt: skip
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_units_are_converted_in_one_module(path: Path):
    if path.name == "units.py":
        return
    found = set(unit_literals(path.read_text(encoding="utf-8")))
    assert {f for f in found if (shown(path), f) not in NOT_UNITS} == set()


def test_literals_that_are_no_units_are_still_there():
    for name, literal in NOT_UNITS:
        assert literal in set(unit_literals((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "source",
    [
        "x * 1e9", "1e-3 * x", "x / 1e12", "x // 1024", "x * 1024**3", "x / (1 << 30)", "x << 20",
        "x >> 30", "x / 1e-6", "x * 10**9", "x * 1_000", "2**30 * x", "x * -1e3", "x * 1048576",
    ],
)  # fmt: skip
def test_the_search_finds_stray_units(source: str):
    assert list(unit_literals(source))


@pytest.mark.parametrize(
    "source",
    ["x * 100", "LIMIT = 1 << 40", "x * GIB", "x < 1024", "1 << n", "x / 10", "f(1e-12)", "x % 8"],
)
def test_the_search_leaves_other_numbers_alone(source: str):
    assert not list(unit_literals(source))


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PYTHON, ids=shown)
def test_files_are_short(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_no_grab_bags(path: Path):
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the repository; without git, everything that is not hidden."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
        return tuple(path for path in names if path.is_file())
    hidden = re.compile(r"/\.|__pycache__|\.egg-info|/dist/|/build/")
    return tuple(
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not hidden.search(f"/{path.relative_to(ROOT).as_posix()}")
    )


# Written so that this file does not find itself.
MACHINE = re.compile(
    r"(?<![\w.$}])/(?:home|Users|root)/[A-Za-z]"
    r"|(?<![\w.$}])/(?:work|workspace|mnt|srv)/[A-Za-z]"
    r"|(?<![\w.$}])/tmp/[a-z]"
    r"|\b[A-Z]:\\\\?Users\b"
)
WORKPLACE = {"root", "user", "runner", "ubuntu", "debian", "localhost", "admin", "agent", "python"}


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return path.read_bytes().decode("latin-1")


def test_no_path_of_a_machine():
    found = {
        shown(path): match.group() for path in tracked() if (match := MACHINE.search(text_of(path)))
    }
    assert len(tracked()) > 100
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "/home/" + "jo/x", "(/root/" + "x)", "/mnt/" + "data/a.py", "/tmp/" + "x/bin",
        "C:\\" + "Users",
    ],
)  # fmt: skip
def test_the_search_finds_paths(text: str):
    assert MACHINE.search(text)
    assert not MACHINE.search("https://example.org/home/page and shared/facts, tmp/x")


def test_no_name_of_a_user_or_host():
    names = {getpass.getuser(), socket.gethostname(), Path.home().name} - WORKPLACE
    for name in (n for n in names if len(n) >= 5):
        mentions = re.compile(rf"\b{re.escape(name)}\b")
        assert [shown(path) for path in tracked() if mentions.search(text_of(path))] == []


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_the_library_prints_nothing_and_runs_no_text(path: Path):
    """Only the shell, and packages that are commands, write to the terminal."""
    if "cli" in path.parts or path.name == "__main__.py":
        return
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not {"print", "eval", "exec", "input"} & calls
