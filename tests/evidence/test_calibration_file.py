"""Files that are not calibrations are refused, with file, field and remedy."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from aisim_v41 import AisimError, SchemaError
from aisim_v41.evidence.calibration_file import read_calibration, read_hosts
from aisim_v41.evidence.laws import FORMS

ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
schema: 1
gpu: mine
link_bytes_per_s: 9.0e+11
engines:
  sglang:
    "quantise":
      kind: elementwise
      parameters: {launch_s: 2.0e-06, memory_share: 0.7}
      error: {median: 0.05, p90: 0.1, bias: 0.0, rows: 112}
      penalty: 0.1
      hull: {rows: [1.0, 16384.0]}
      sources: ["a table"]
      note: "a note"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "calibration.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_file(tmp_path: Path):
    file = read_calibration(write(tmp_path, GOOD))
    law = file.engines["sglang"]["quantise"]
    assert file.link_bytes_per_s == 9e11
    assert law.parameters == {"launch_s": 2e-6, "memory_share": 0.7}
    assert law.error_p90 == pytest.approx(0.2)  # with its penalty
    assert law.hull == {"rows": (1.0, 16384.0)}
    assert (law.rows_fitted, law.origin, law.note) == (112, "calibrated", "a note")


@pytest.mark.parametrize("name", sorted(ROOT.glob("profiles/*/op/calibration.yaml")))
def test_packaged_files_are_read_and_name_their_gpu(name: Path):
    file = read_calibration(name)
    assert {"sglang", "vllm", "trtllm", "any"} == set(file.engines)
    assert f"gpu: {name.parent.parent.name}\n" in name.read_text(encoding="utf-8")
    for laws in file.engines.values():
        for law in laws.values():
            assert set(law.parameters) == set(FORMS[law.kind].parameters)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 2", r"schema is 2.*refit with"),
        ("gpu: mine", "gpus: mine", r"no field 'gpus'; nearest: gpu"),
        ("9.0e+11", "9.0", r"link_bytes_per_s must be between"),
        ("engines:", "engine:", r"no field 'engine'"),
        ('"quantise"', '"Quantise"', r"engines.sglang.Quantise: a key is lower-case"),
        ('"quantise"', '"quantise@0"', r"a key is lower-case"),
        ("kind: elementwise", "kind: elementwize", r"kind is 'elementwize'; nearest: elementwise"),
        ("kind: elementwise", "kinds: elementwise", r"no field 'kinds'"),
        ("kind: elementwise", "kind: product", r"no field 'memory_share'|inner_s is missing"),
        ("launch_s: 2.0e-06, ", "", r"parameters.launch_s is missing \(fixed time of a call"),
        ("2.0e-06", "2e-06", r"must be a number \(write 4.0e-06, not 4e-06\), found '2e-06'"),
        ("2.0e-06", "2.0", r"launch_s must be between 0 and 0.01, found 2.0"),
        ("2.0e-06", ".nan", r"finite"),
        ("0.7", "1.7", r"memory_share must be between 0.001 and 1, found 1.7"),
        ("0.7", "true", r"memory_share must be a number"),
        ("p90: 0.1", "p90: 0.01", r"p90 0.01 is below the median 0.05"),
        ("rows: 112", "rows: 1.5", r"error.rows must be a whole number"),
        ("rows: 112", "row: 112", r"no field 'row'"),
        ("[1.0, 16384.0]", "[16384.0, 1.0]", r"lowest 16384 is above highest 1"),
        ("[1.0, 16384.0]", "[1.0]", r"must be \[lowest, highest\]"),
        ('["a table"]', "[]", r"must be a list of texts, at least one"),
        ("penalty: 0.1", "penalty: -0.1", r"penalty must be between"),
        ("penalty: 0.1", "origin: measured", r"origin is 'measured'; known: calibrated, default"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str):
    assert GOOD.count(old) >= 1
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(SchemaError, match=message) as caught:
        read_calibration(path)
    assert str(path) in str(caught.value)


def test_limits_must_rise(tmp_path: Path):
    parameters = {name: bounds[0] for name, bounds in FORMS["collective"].parameters.items()}
    parameters |= {"limit_1_bytes": 100.0, "limit_2_bytes": 50.0, "limit_3_bytes": 100.0}
    flow = ", ".join(f"{name}: {value:.1f}" for name, value in parameters.items())
    text = GOOD.replace("kind: elementwise", "kind: collective")
    text = re.sub(r"parameters: \{.*\}", f"parameters: {{{flow}}}", text)
    with pytest.raises(SchemaError, match="limits must not fall"):
        read_calibration(write(tmp_path, text))


def test_damaged_files_never_raise_anything_else(tmp_path: Path):
    """Bytes changed, dropped and doubled at random places of a packaged file."""
    text = (ROOT / "profiles/b200/op/calibration.yaml").read_text(encoding="utf-8")[:9000]
    refused: list[str] = []
    for seed in range(150):
        draw = random.Random(seed)
        lines = text.splitlines()
        place = draw.randrange(len(lines))
        change = draw.randrange(4)
        if change == 0:
            del lines[place]
        elif change == 1:
            lines.insert(place, lines[place])
        elif change == 2:
            at = draw.randrange(max(len(lines[place]), 1))
            lines[place] = lines[place][:at] + draw.choice('x0{}[]:,"-\t%') + lines[place][at + 1 :]
        else:
            lines[place] = lines[place].replace("e-", "e+").replace("0.", "-0.")
        try:
            read_calibration(write(tmp_path, "\n".join(lines)))
        except AisimError as error:
            refused.append(str(error))
    assert len(refused) > 75
    assert all("calibration.yaml" in message for message in refused)


def test_hosts_need_both_platforms(tmp_path: Path):
    good = (ROOT / "profiles/defaults/hosts.yaml").read_text(encoding="utf-8")
    assert set(read_hosts(write(tmp_path, good))) == {"x86", "grace"}
    with pytest.raises(SchemaError, match=r"schema is 2, this version reads 1"):
        read_hosts(write(tmp_path, good.replace("schema: 1", "schema: 2")))
    with pytest.raises(SchemaError, match=r"platforms.grace is missing"):
        read_hosts(write(tmp_path, good.replace("  grace:", "  arm:")))
    with pytest.raises(SchemaError, match=r"framework_call_s must be a number"):
        read_hosts(write(tmp_path, good.replace("20.0e-6", "fast")))
