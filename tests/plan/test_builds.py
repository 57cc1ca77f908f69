"""Builds: what the file says, what is refused, and that names and dates hold."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aisim_v41.errors import InvalidInputError, SchemaError, UnsupportedPlanError
from aisim_v41.plan.builds import UNNAMED, build, builds, builds_for
from aisim_v41.plan.policy import policy, preset_names
from aisim_v41.reading import read_mapping

FILE = Path(__file__).resolve().parents[2] / "profiles/deepseek-v4.1-flash/builds.yaml"
GOOD = FILE.read_text(encoding="utf-8")


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A user's builds.yaml in front of the packaged one."""

    def write(text: str) -> None:
        folder = tmp_path / "profiles/deepseek-v4.1-flash"
        folder.mkdir(parents=True)
        (folder / "builds.yaml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))

    return write


@pytest.mark.parametrize("name", builds())
def test_a_build_is_dated_sourced_and_named_after_both(name: str):
    one = build(name)
    assert one.engine in preset_names()
    assert name.startswith(f"{one.engine}-{one.date}")
    assert datetime.date(2026, 9, 10) <= datetime.date.fromisoformat(one.date)
    assert any(re.search(r"pull request|@[0-9a-f]{7}", source) for source in one.sources)
    assert all(re.fullmatch(r"sm\d+", architecture) for architecture in one.architectures)


def test_the_file_holds_no_time_and_no_factor():
    """Its numbers are rows, ranks, heads and kernels, all whole."""

    def numbers(value: object, key: str = "") -> Iterator[tuple[str, object]]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from numbers(inner, key if key in ("more", "verify") else name)
        elif isinstance(value, list):
            for inner in value:
                yield from numbers(inner, key)
        elif not isinstance(value, str):
            yield key, value

    found = list(numbers(read_mapping(FILE)))
    assert {key for key, _ in found} == {"rows", "ranks", "heads", "more", "verify"}
    assert all(type(value) is int for _, value in found)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("name", builds())
def test_fewer_rows_never_run_more_small_kernels(name: str, ranks: int):
    decode = build(name).of_ranks(ranks)
    counts = [sum(times for _, times in one.more) for one in decode]
    assert counts == sorted(counts)
    assert decode[-1].rows is None
    assert not decode[-1].ranks


def test_builds_of_an_architecture_come_oldest_first():
    found = builds_for("sglang", "sm103")
    assert len(found) >= 8
    assert [one.date for one in found] == sorted(one.date for one in found)
    assert found[-1].name == "sglang-2026-09-19"
    hopper = [one.name for one in builds_for("sglang", "sm90")]
    assert hopper == ["sglang-2026-09-22-hopper", "sglang-2026-10-09-hopper"]
    assert builds_for("atom", "sm103") == builds_for("sglang", "gfx950") == ()


# --- the policy field ---------------------------------------------------------------------------


def test_a_policy_names_none_unless_asked():
    for name in preset_names():
        assert policy(name).build == UNNAMED
    named = policy("sglang", build="sglang-2026-09-15")
    assert named.changed_fields() == {"build": "sglang-2026-09-15"}


def test_an_unknown_build_names_the_nearest():
    with pytest.raises(InvalidInputError, match=r"'sglang-2026-09-18'.*sglang-2026-09-1"):
        policy("sglang", build="sglang-2026-09-18")
    with pytest.raises(InvalidInputError, match="build"):
        policy("sglang", build=3)


def test_a_build_of_another_engine_is_refused():
    with pytest.raises(UnsupportedPlanError, match=r"one of vllm.*sglang's.*sglang-2026-09-10"):
        policy("sglang", build="vllm-2026-09-20")
    with pytest.raises(UnsupportedPlanError, match="no build of paper is known"):
        policy("paper", build="vllm-2026-09-20")


# --- damaged files ------------------------------------------------------------------------------

SMALL = "[final_collapse_norm, combine_norm]"
DAMAGES = {
    "an operator that there is not": ("mhc_collapse site_norm\n", "mhc_colapse\n", "mhc_collapse"),
    "a kernel that there is not": (SMALL, SMALL.replace("combine_norm", "combine_nrm"), "_norm"),
    "a kernel named like an operator": ("  mega_mhc:", "  mhc_expand:", "an operator has that"),
    "an operator in two kernels": (SMALL, "[post_combine_norm, combine_norm]", "in two kernels"),
    "rows that fall": ("rows: 384", "rows: 4", "rising rows"),
    "a date that is none": ('date: "2026-09-12"', 'date: "2026-13-12"', "yyyy-mm-dd"),
    "an unknown key": ("heads: 64", "head: 64", "heads"),
    "ranks that are no list": ("ranks: [4]", "ranks: 4", "ranks: must be a list"),
    "a number that is no count": ("heads: 64", "heads: 1.5", "whole number"),
    "an unknown law of attention": ("attention: native", "attention: naive", "must be one of"),
    "small kernels that are no number": (": 47,", ": many,", "verify.compress_pool"),
    "small kernels of no operator": ("verify: {compress_pool", "verify: {compress", "verify"),
    "no inventory": ("    decode:\n", "    decode: []\n    older:\n", "older"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused_by_place(name: str, own_file):
    old, new, said = DAMAGES[name]
    assert old in GOOD
    own_file(GOOD.replace(old, new, 1))
    with pytest.raises(SchemaError, match=r"builds\.yaml") as caught:
        builds()
    assert said in str(caught.value)


def test_a_user_may_add_builds(own_file):
    own_file(GOOD.replace("  vllm-2026-09-20:", "  vllm-2026-09-20-mine:"))
    assert policy("vllm", build="vllm-2026-09-20-mine").build in builds()
    with pytest.raises(InvalidInputError):
        policy("vllm", build="vllm-2026-09-20")
