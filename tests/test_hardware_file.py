"""Hardware files that cannot be right: what they are told, and seeded random damage."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.errors import AisimError, SchemaError
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.reading import read_mapping

T = 10**12
G = 10**9
DROP = object()
"""In a change: take the key away."""

SHEETS = {
    name: read_mapping(resources.find("hardware", name, ".yaml"))
    for name in ("gb300", "h200", "gb10", "rtx_5090")
}


def changed(raw: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``raw`` with other values at dotted paths."""
    raw = copy.deepcopy(raw)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = at(raw, parents)
        if value is DROP:
            del place[last]
        else:
            place[last] = value
    return raw


def at(raw: dict[str, Any], keys: list[str]) -> Any:
    place: Any = raw
    for key in keys:
        place = place[key]
    return place


def refusal(path: Path) -> str:
    """What `load_hardware` says about a file that it must refuse: one error, without a chain."""
    with pytest.raises(SchemaError) as caught:
        load_hardware(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def refusal_of(folder: Path, raw: object) -> str:
    path = folder / "bad.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    return refusal(path)


WHERE = {"kind": "measured", "source": "a run", "date": "2026-11"}

WRONG_VALUES = [
    # (figure, value, what the message must say besides the path)
    ("memory.hbm_bandwidth_tb_per_s", 0, "between 0.05 and 50 TB/s; give TB/s, not GB/s, found 0"),
    ("memory.hbm_bandwidth_tb_per_s", -8.0, "found -8.0"),
    ("memory.hbm_bandwidth_tb_per_s", 8000, "give TB/s, not GB/s, found 8000"),
    ("memory.hbm_bandwidth_tb_per_s", 1e9, "found 1000000000.0"),
    ("memory.hbm_bandwidth_tb_per_s", "8 TB/s", "must be a number, found '8 TB/s'; write plain"),
    ("memory.hbm_bandwidth_tb_per_s", True, "must be a number, found True"),
    ("memory.hbm_bandwidth_tb_per_s", None, "must be a number, found None"),
    ("memory.hbm_bandwidth_tb_per_s", [8], "must be a number, found [8]"),
    ("memory.hbm_bandwidth_tb_per_s", 7.0, "hbm_bandwidth_achieved_tb_per_s is 7.11"),
    ("memory.hbm_bandwidth_achieved_tb_per_s", 8.1, "what was achieved cannot exceed the peak"),
    ("memory.hbm_marketing_gb", 0, "give decimal GB"),
    ("memory.hbm_marketing_gb", 0.288, "between 8 and 4000 GB"),
    ("memory.hbm_usable_gib", 284208, "not MiB"),
    ("memory.hbm_usable_gib", 298013687808, "not bytes"),
    ("memory.hbm_usable_gib", 300, "is 1.12 times the bytes of hbm_marketing_gb 288"),
    ("memory.hbm_usable_gib", 28, "is 0.10 times the bytes of hbm_marketing_gb"),
    ("memory.l2_mib", 132644864, "not bytes"),
    ("compute.bf16_tflop_per_s", 2.5e15, "not FLOP/s"),
    ("compute.bf16_tflop_per_s", 0, "between 1 and 200000 TFLOP/s"),
    ("compute.bf16_tflop_per_s", 2.5, "bf16_tflop_per_s is 2.5, below tf32_tflop_per_s with 1250"),
    ("compute.bf16_tflop_per_s", None, "must be a number"),
    ("compute.fp8_tflop_per_s", 2000, "is 2000, below bf16_tflop_per_s with 2500"),
    ("compute.fp8_tflop_per_s", 0, "between 1 and 200000"),
    ("compute.fp4_tflop_per_s", 15, "is 15, below mxfp4_mxfp8_tflop_per_s with 5000"),
    ("compute.int8_top_per_s", -1, "dense TOP/s"),
    ("links.scale_up_gb_per_s", 0, "one direction"),
    ("links.scale_up_gb_per_s", None, "scale_up_kind is nvlink but scale_up_gb_per_s is None"),
    ("links.scale_up_kind", "none", "scale_up_kind is none but scale_up_gb_per_s is 900"),
    ("links.scale_up_kind", "ethernet", "'nvlink', 'infinity_fabric', 'pcie' or 'none'"),
    ("links.scale_up_kind", "pcie", "in_network_reduction is true but scale_up_kind is pcie"),
    ("links.scale_up_domain_gpus", 0, "count this GPU too"),
    ("links.scale_up_domain_gpus", 72.5, "must be a whole number"),
    ("links.in_network_reduction", "yes", "valid boolean, found 'yes'"),
    ("links.in_network_reduction", 1, "valid boolean, found 1"),
    ("links.host_link_gb_per_s", 100, "host_link_achieved_gb_per_s is 170"),
    ("host.platform", "arm", "'x86' or 'grace'"),
    ("host.eager_launch_us", 33e-6, "give microseconds"),
    ("host.graph_node_gap_us", -1, "give microseconds"),
    ("host.memory_shared_by_gpus", 0, "GPUs"),
    ("chip.boost_mhz", 2.06, "give MHz"),
]


@pytest.mark.parametrize(("figure", "value", "message"), WRONG_VALUES)
def test_a_wrong_value_is_told_field_value_and_remedy(
    tmp_path: Path, figure: str, value: Any, message: str
) -> None:
    told = refusal_of(tmp_path, changed(SHEETS["gb300"], {f"{figure}.value": value}))
    assert figure.split(".")[1] in told
    assert message in told


WRONG_FORMS: list[tuple[dict[str, Any], str]] = [
    (
        {"compute.fp8_tflop_per_s": 5000},
        "compute.fp8_tflop_per_s must be a mapping of value, kind, source and date, found 5000",
    ),
    ({"links.nic_gb_per_s": None}, "links: nic_gb_per_s is null; leave the key out"),
    ({"chip": None}, "the file: chip is null"),
    ({"memory": []}, "memory must be a mapping, found []"),
    (
        {"memory.hbm_bandwidth_tb_per_s": DROP},
        "memory.hbm_bandwidth_tb_per_s is missing; add it as a mapping of value",
    ),
    ({"memory.l2_mib.value": DROP}, "memory.l2_mib.value is missing; add it"),
    ({"memory.l2_mib.source": DROP}, "memory.l2_mib.source is missing"),
    ({"memory.l2_mib.kind": DROP}, "memory.l2_mib.kind is missing"),
    ({"memory.l2_mib.date": DROP}, "memory.l2_mib.date is missing"),
    ({"memory.l2_mib.note": DROP}, "memory.l2_mib: note is missing; a figure of kind estimate"),
    ({"links": DROP}, "links is missing; add it (hardware/README.md shows the form)"),
    ({"name": DROP}, "name is missing"),
    (
        {"memory.l2_mib.kind": "guess"},
        "memory.l2_mib.kind: Input should be 'datasheet', 'measured', 'derived' or 'estimate'",
    ),
    ({"memory.l2_mib.source": "  "}, "memory.l2_mib.source: must be one line of 1 to 800"),
    ({"memory.l2_mib.source": "a\nb"}, "memory.l2_mib.source: must be one line"),
    ({"memory.l2_mib.note": "n" * 801}, "memory.l2_mib.note: must be one line"),
    ({"memory.l2_mib.date": "26"}, "memory.l2_mib.date: must be a year or a year and month"),
    ({"memory.l2_mib.date": "2026-13"}, "found '2026-13'"),
    ({"memory.l2_mib.date": True}, "memory.l2_mib.date: Input should be a valid string"),
    ({"name": "GB300"}, "name: must be 1 to 64 lower-case letters"),
    ({"name": "../gb300"}, "name: must be 1 to 64 lower-case letters"),
    ({"compute.fp8_tflops": {}}, "compute.fp8_tflops is not a known key, found {}; nearest: fp8"),
    ({"memory.l2_mb": 50}, "memory.l2_mb is not a known key, found 50; nearest: l2_mib"),
    ({"fans": {}}, "fans is not a known key, found {}"),
    (
        {"memory.l2_mib.url": "x"},
        "memory.l2_mib.url is not a known key, found 'x'; known: date, kind, note, source, value",
    ),
    (
        {"host.memory_shared_by_gpus": DROP},
        "host: memory_gb is given without memory_shared_by_gpus; add how many GPUs share it",
    ),
    (
        {"host.disk_reads_per_s": {"value": 500_000, **WHERE}},
        "host: disk_reads_per_s is given without disk_gb_per_s; add the rate",
    ),
    (
        {"host.disk_gb_per_s": {"value": 6_000_000_000, **WHERE}},
        "host.disk_gb_per_s.value: must be between 0.5 and 10000 GB/s",
    ),
    (
        {"links.host_link_gb_per_s": DROP},
        "host_link_achieved_gb_per_s is 170 but host_link_gb_per_s is None",
    ),
    (
        {
            "links.scale_up_kind.value": "none",
            "links.scale_up_gb_per_s.value": None,
            "links.in_network_reduction.value": False,
        },
        "scale_up_domain_gpus is 72 but scale_up_kind is none",
    ),
    ({"memory.l2_mib.value": json.loads("[" * 60 + "]" * 60)}, "memory.l2_mib.value"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_FORMS)
def test_a_wrong_form_is_told_field_and_remedy(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in refusal_of(tmp_path, changed(SHEETS["gb300"], changes))


def test_of_many_errors_the_first_five_are_told(tmp_path: Path) -> None:
    empty: dict[str, Any] = {"memory": {}, "links": {}, "host": {}}  # 4 + 3 + 3 required figures
    told = refusal_of(tmp_path, changed(SHEETS["gb300"], empty))
    assert told.count(" is missing; add it") == 5
    assert told.endswith(". 5 more errors follow")


def test_a_list_is_no_hardware_file(tmp_path: Path) -> None:
    told = refusal_of(tmp_path, [SHEETS["gb300"]])
    assert "the top level must be a mapping, found list" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the top level must be a mapping"),
        (b"name: \xff\xfe", "not UTF-8"),
        (b"name: [", "not YAML"),
        (b"name: !!python/object/apply:os.system ['true']", "not YAML"),
        (b"name: !!bool 7", "a YAML tag does not fit its value"),
        (b"name: !!float ''", "a YAML tag does not fit its value"),
        (b"name: &a x\nvendor: *a", "aliases"),
        (b"name: a\nname: b", "'name' occurs twice"),
        (b"name: .nan", "name: nan is not a finite number"),
        (b"name: 2026-10-01", "name: date is not plain data"),
        (b"[" * 3000, "nested too deeply"),
        (b"name: a\n---\nname: b", "not YAML"),
    ],
)
def test_text_that_is_no_plain_mapping(tmp_path: Path, text: bytes, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(text)
    assert message in refusal(file)


# --- seeded random damage -------------------------------------------------------------------

ONE_FIELD_ROUNDS = 1500
MANY_FIELD_ROUNDS = 500
TEXT_ROUNDS = 400
ODD: list[Callable[[random.Random], Any]] = [
    lambda _: None,
    lambda r: r.choice([True, False]),
    lambda r: r.choice([0, 0.0, -0.0, 1, -1, 2**31, -(2**63), 10**30, 2**62 + 1]),
    lambda r: r.choice([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324]),
    lambda r: r.choice(["", " ", "8", "8 TB/s", "none", "null", "\x00", "a\nb", "é", "x" * 5000]),
    lambda r: r.choice([[], {}, [1], {"value": 1}, [[]], {"": None}, [None]]),
    lambda r: json.loads("[" * (n := r.randrange(2, 80)) + "]" * n),
    lambda r: json.loads('{"a":' * (n := r.randrange(2, 80)) + "1" + "}" * n),
    lambda r: r.uniform(-10, 10) * 10.0 ** r.randrange(-12, 16),
    lambda r: r.randrange(-(10**6), 10**6),
]
ODD_TEXT = [
    *(b"&a ", b"*a", b"!!bool 7", b"!!float ''", b"!!int x", b"!!set {a, b}", b"!!binary aGk="),
    *(b"!!map ab", b"!!map [a]", b"!!omap [a: 1]", b"!!timestamp x", b"!<x> ", b"!!str "),
    *(b"!!python/name:os.system ", b"<<: {a: 1}\n", b"? [a]\n: b\n", b"{a: b}: c\n", b"---\n"),
    *(b"...\n", b"%TAG ! x\n", b"\t", b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\x85", b"'"),
    *(b'"', b"|\n", b">\n", b"[", b"]", b"{", b"}", b": ", b"- ", b"#", b",", b"@", b"`", b".nan"),
    *(b"1:30", b"0x1F", b"1_0", b"1e9", b"9" * 5000, b"[" * 2000, b"name: x\n", b"  value: 1\n"),
]


def loaded_or_refused(path: Path) -> str | None:
    """Message of the typed error, or None when a Hardware came out and it is plausible."""
    try:
        gpu = load_hardware(path)
    except AisimError as error:
        return str(error)
    assert isinstance(gpu, Hardware)
    assert all(T <= rate <= 200_000 * T for rate in gpu.peak_flop_per_s.values())
    assert gpu.peak("fp32")[0] <= gpu.peak("bf16")[0] <= gpu.peak("fp8")[0] <= gpu.peak("fp4")[0]
    assert 0.05 * T <= gpu.hbm_bandwidth_bytes_per_s <= 50 * T
    assert 4 * 2**30 <= gpu.hbm_bytes <= 4000 * 2**30
    assert 2**19 <= gpu.l2_bytes <= 2000 * 2**20
    assert gpu.link_domain_gpus >= 1
    assert gpu.link_bytes_per_s is None or G / 2 <= gpu.link_bytes_per_s <= 10_000 * G
    assert 1e-7 <= gpu.eager_launch_s <= 5e-4
    assert 1e-8 <= gpu.graph_node_gap_s <= 1e-4
    assert hash(gpu) == hash(copy.deepcopy(gpu))
    return None


def written(folder: Path, raw: object) -> Path:
    """The file; as YAML if it holds NaN or infinity, which JSON lacks."""
    plain = json.dumps(raw)
    text = re.sub(r"(?<=[ \[])(-?)(NaN|Infinity)(?=[,\]}])", _yaml_number, plain)
    path = folder / "damaged"
    path.write_text(text if text == plain else f"---\n{text}", encoding="utf-8")
    return path


def _yaml_number(match: re.Match[str]) -> str:
    return f"{match[1]}{'.nan' if match[2] == 'NaN' else '.inf'}"


def fields(raw: dict[str, Any]) -> list[str]:
    """Dotted paths of sections, figures and their parts; values twice, as they matter most."""
    found = []
    for top, section in raw.items():
        found.append(top)
        for key, entry in section.items() if isinstance(section, dict) else ():
            found.append(f"{top}.{key}")
            found.extend(f"{top}.{key}.{part}" for part in (*entry, "value"))
    return found


def damage_one(raw: dict[str, Any], r: random.Random) -> tuple[dict[str, Any], str]:
    """A change of one field, and the name that an error has to mention."""
    path = r.choice(fields(raw))
    *parents, last = path.split(".")
    value = at(raw, [*parents, last])
    changes: dict[str, Any] = {path: r.choice(ODD)(r)}
    kind = r.randrange(5)
    if kind == 0:
        changes = {path: DROP}
    elif kind == 1 and isinstance(value, int | float):
        changes = {path: value * r.choice([-1, 1e-9, 1e-3, 0.9, 1.1, 8, 1e3, 1e9, 1e12])}
    elif kind == 2:
        path += r.choice(["_", "x", "s", " "])  # an unknown key
        changes = {path: value}
    parts = path.split(".")
    return changed(raw, changes), parts[1] if len(parts) > 1 else parts[0]


def test_damage_to_one_field_is_harmless_or_names_the_field(tmp_path: Path) -> None:
    r = random.Random(20261130)
    refused = 0
    for _ in range(ONE_FIELD_ROUNDS):
        raw, field = damage_one(r.choice(list(SHEETS.values())), r)
        path = written(tmp_path, raw)
        told = loaded_or_refused(path)
        if told is not None:
            refused += 1
            assert field in told.removeprefix(str(path)), (field, told)
            assert len(told) < 3000
    assert ONE_FIELD_ROUNDS * 0.6 < refused < ONE_FIELD_ROUNDS * 0.95


def damage_another(raw: dict[str, Any], r: random.Random) -> None:
    """Swap two figures of a section, or put something odd anywhere; earlier damage may stand."""
    sections = [value for value in raw.values() if isinstance(value, dict) and len(value) > 1]
    if not sections:
        raw[r.choice(["name", "memory", "links"])] = r.choice(ODD)(r)
        return
    section = r.choice(sections)
    one, two = r.sample(sorted(section), 2)
    if r.random() < 0.3:  # contradictory
        section[one], section[two] = section[two], section[one]
    elif isinstance(section[one], dict) and section[one]:
        section[one][r.choice(sorted(section[one]))] = r.choice(ODD)(r)
    else:
        section[one] = r.choice(ODD)(r)


def test_damage_to_many_fields_gives_a_typed_error_or_a_plausible_gpu(tmp_path: Path) -> None:
    r = random.Random(41)
    refused = 0
    for _ in range(MANY_FIELD_ROUNDS):
        raw = copy.deepcopy(r.choice(list(SHEETS.values())))
        for _ in range(r.randrange(2, 9)):
            damage_another(raw, r)
        refused += loaded_or_refused(written(tmp_path, raw)) is not None
    assert MANY_FIELD_ROUNDS * 0.8 < refused <= MANY_FIELD_ROUNDS


def damage_text(text: bytearray, r: random.Random) -> None:
    place = r.randrange(len(text)) if text else 0
    start, end = text.rfind(b"\n", 0, place) + 1, text.find(b"\n", place) + 1
    match r.randrange(6):
        case 0:
            text[place:place] = r.choice(ODD_TEXT)
        case 1:
            colon = text.find(b": ", start)
            text[colon + 2 : end - 1] = r.choice(ODD_TEXT)
        case 2 if text:
            text[place] = r.randrange(256)
        case 3:
            del text[place : place + r.randrange(1, 60)]
        case 4:  # a line twice: a duplicate key
            text[start:start] = text[start:end]
        case _:
            del text[place:]


def test_damage_to_the_text_gives_a_typed_error_or_a_plausible_gpu(tmp_path: Path) -> None:
    r = random.Random(7)
    original = resources.find("hardware", "rtx_4090", ".yaml").read_bytes()
    refused = 0
    for number in range(TEXT_ROUNDS):
        text = bytearray(original)
        for _ in range(r.randrange(1, 4)):
            damage_text(text, r)
        path = tmp_path / f"text{number}.yaml"
        path.write_bytes(text)
        refused += loaded_or_refused(path) is not None
    assert TEXT_ROUNDS * 0.4 < refused < TEXT_ROUNDS


def test_disks_of_a_host_are_shared_by_its_gpus(tmp_path: Path) -> None:
    """Two GPUs of a Grace: 6 GB/s are 3 each, a million reads half a million."""
    disks = {
        "host.disk_gb_per_s": {"value": 6, **WHERE},
        "host.disk_reads_per_s": {"value": 1_000_000, **WHERE},
    }
    path = tmp_path / "good.json"
    path.write_text(json.dumps(changed(SHEETS["gb300"], disks)), encoding="utf-8")
    with_disks = load_hardware(path)
    assert (with_disks.disk_bytes_per_s, with_disks.disk_reads_per_s) == (3 * G, 500_000)
    assert load_hardware("gb300").disk_bytes_per_s is None
    path.write_text(
        json.dumps(changed(SHEETS["gb10"], disks | {"host.disk_gb_per_s": {"value": None, **WHERE},
                   "host.disk_reads_per_s": {"value": None, **WHERE}})),
        encoding="utf-8",
    )  # fmt: skip
    assert load_hardware(path).disk_bytes_per_s is None
