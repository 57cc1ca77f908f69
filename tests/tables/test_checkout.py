"""Tables out of a checkout: found, written whole, with revision and licence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.tables.aisimulate import PACKAGE
from aisim_v41.tables.checkout import UNKNOWN, import_checkout, revision_of, systems_of
from aisim_v41.tables.load import read_table
from tests.tables.test_aisimulate import attention, collectives, experts, gemm, others, v41

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of Git, its package two folders down."""
    root = tmp_path / "checkout" / "src"
    root.mkdir(parents=True)
    for make in (gemm, experts, collectives, attention, v41, others):
        make(root)
    git = root.parent / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    return root.parent


def test_every_family_is_written_and_read_again(checkout: Path, tmp_path: Path):
    written = list(import_checkout(checkout, "gb200", tmp_path / "own"))
    assert [one.family for one in written] == [
        "gemm", "experts", "collectives", "hyper_connections", "attention", "quantise",
        "v41_modules", "v41_dense",
    ]  # fmt: skip
    for one in written:
        table = read_table(one.path)
        assert len(table) == one.rows
        assert table.sidecar["licence"] == "Apache-2.0"
        assert {entry["version"] for entry in table.sidecar["sources"]} == {COMMIT}
        assert sum(entry["rows"] for entry in table.sidecar["sources"]) == one.rows


def test_replay_campaigns_keep_their_mode(checkout: Path, tmp_path: Path):
    (one,) = import_checkout(checkout, "gb200", tmp_path, families=["v41_modules"])
    table = read_table(one.path)
    assert {dict(i)["decoder_replay"] for i in map(dict, table.identities)} == {"on", "off"}


def test_the_folder_of_tables_is_found_wherever_it_lies(checkout: Path):
    systems = checkout / "src" / PACKAGE / "systems"
    assert systems_of(checkout) == systems_of(systems) == systems_of(systems.parent) == systems


@pytest.mark.parametrize(
    ("write", "found"),
    [
        ({"HEAD": COMMIT}, COMMIT),
        ({"HEAD": "ref: refs/heads/gone", "packed-refs": f"{COMMIT} refs/heads/gone\n"}, COMMIT),
        ({"HEAD": "ref: ../../outside"}, UNKNOWN),
        ({"HEAD": "nonsense"}, UNKNOWN),
        ({"HEAD": "ref: refs/heads/gone"}, UNKNOWN),
    ],
)
def test_the_revision_is_read_from_git(checkout: Path, write: dict[str, str], found: str):
    for name, text in write.items():
        (checkout / ".git" / name).write_text(text)
    assert revision_of(checkout) == found
    assert revision_of(checkout / "src") == found


def test_without_git_the_revision_is_said_to_be_unknown(tmp_path: Path):
    assert revision_of(tmp_path / "nowhere") == UNKNOWN


def test_what_is_there_is_kept_unless_it_may_be_replaced(checkout: Path, tmp_path: Path):
    (one,) = import_checkout(checkout, "gb200", tmp_path, families=["gemm"])
    before = one.path.read_bytes()
    with pytest.raises(InvalidInputError, match="has gemm already"):
        list(import_checkout(checkout, "gb200", tmp_path))
    assert one.path.read_bytes() == before
    assert not (one.path.parent / "experts.parquet").exists()
    (again,) = import_checkout(checkout, "gb200", tmp_path, families=["gemm"], replace=True)
    assert again.path.read_bytes() == before


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"gpu": "rtx"}, InvalidInputError, "no tables of 'rtx'"),
        ({"gpu": "h100"}, MissingProfileError, "no table of h100"),
        ({"families": ["nothing"]}, MissingProfileError, "no family"),
        ({"gpu": "h100", "families": ["gemm"]}, MissingProfileError, "no table"),
    ],
)
def test_what_cannot_be_is_refused(checkout: Path, tmp_path: Path, how, error, said: str):
    given = {"gpu": "gb200", **how}
    with pytest.raises(error, match=said):
        list(import_checkout(checkout, given.pop("gpu"), tmp_path, **given))
    assert not (tmp_path / "profiles").exists()


def test_no_checkout_is_said(tmp_path: Path):
    with pytest.raises(MissingProfileError, match="no such folder"):
        systems_of(tmp_path / "nowhere")
    with pytest.raises(MissingProfileError, match="no tables"):
        systems_of(tmp_path)


def test_files_that_were_not_fetched_are_named(checkout: Path, tmp_path: Path):
    path = next(checkout.glob("**/gemm_perf.parquet"))
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(SchemaError, match="git lfs pull"):
        list(import_checkout(checkout, "gb200", tmp_path))


def test_damaged_files_give_typed_errors(checkout: Path, tmp_path: Path):
    path = next(checkout.glob("**/gemm_perf.parquet"))
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            list(import_checkout(checkout, "gb200", tmp_path / str(place), families=["gemm"]))
        except AisimError:
            continue
        sidecar = tmp_path / str(place) / "profiles" / "gb200" / "op" / "gemm.json"
        assert json.loads(sidecar.read_text())["rows"] > 0
