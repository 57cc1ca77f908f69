"""Collectives by link: public timings, physical limits, and a file that is refused when wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aisim_v41 import load_hardware
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.evidence.calibration import COLLECTIVES, load_calibration
from aisim_v41.evidence.links import LinkKind, links_of
from aisim_v41.evidence.links_file import read_links
from aisim_v41.hardware import Hardware
from aisim_v41.units import KIB, MIB, MICROSECOND

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "profiles/defaults/links.yaml"
WITHOUT_TABLES = ("a100", "gb10", "mi300x", "mi355x", "rtx_4090", "rtx_5090", "rtx_pro_6000")


def times_us(hardware: Hardware, key: str, ranks: int, sizes: list[float]) -> np.ndarray:
    law = load_calibration(hardware).law(key, ranks)
    message = np.array(sizes, np.float64)
    still = np.zeros_like(message)
    return (
        law.seconds(
            {"compute_s": still, "memory_s": still, "rows": still + 1, "message_bytes": message,
             "ranks": np.array(float(ranks))}
        ) / MICROSECOND
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [("a100", "nvlink"), ("gb10", "network"), ("mi355x", "mesh"), ("rtx_4090", "pcie_host"),
     ("rtx_5090", "pcie_host"), ("rtx_pro_6000", "pcie_peer"), ("gb300", "nvlink")],
)  # fmt: skip
def test_kinds(gpu: str, kind: str):
    links = links_of(load_hardware(gpu))
    assert links is not None
    assert links.kind == kind


@pytest.mark.parametrize(
    ("gpu", "ranks", "sizes", "measured_us", "within"),
    [
        # voipmonitor/rtx6kpro, NCCL on 4 and on 8 RTX PRO 6000
        ("rtx_pro_6000", 4, [4 * KIB, 32 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB],
         [13.2, 15.6, 24.7, 40.9, 71.7, 85.2], 0.15),
        ("rtx_pro_6000", 8, [KIB, 8 * KIB, 32 * KIB], [24.1, 24.2, 24.5], 0.25),
        # nccl issue 1530, 8 RTX 4090
        ("rtx_4090", 8, [8], [40.0], 0.1),
        # local-inference-lab/b12x pull 295, NCCL on 4 GB10; dgx-spark-playbooks pull 103, on 2
        ("gb10", 4, [8 * KIB, 48 * KIB, 1.5 * MIB], [51.3, 59.0, 877.0], 0.15),
        ("gb10", 2, [16 * KIB, 32 * KIB], [31.0, 38.0], 0.2),
        # vllm pulls 39080 (two builds: the middle) and 19744
        ("mi355x", 8, [24 * KIB, 48 * KIB, 384 * KIB, 1.5 * MIB], [6.4, 6.7, 10.3, 18.5], 0.2),
        ("mi300x", 4, [2 * KIB, 32 * KIB, MIB, 4 * MIB, 16 * MIB],
         [7.2, 7.6, 22.9, 63.9, 230.5], 0.15),
    ],
)  # fmt: skip
def test_public_timings(
    gpu: str, ranks: int, sizes: list[float], measured_us: list[float], within: float
):
    found = times_us(load_hardware(gpu), "all_reduce.vllm", ranks, sizes)
    assert found == pytest.approx(np.array(measured_us), rel=within)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("key", COLLECTIVES)
@pytest.mark.parametrize("gpu", WITHOUT_TABLES)
def test_never_faster_than_the_link(gpu: str, key: str, ranks: int):
    """2(n - 1)/n of the message leaves every rank, half of it in a gather; larger is not faster."""
    hardware = load_hardware(gpu)
    links = links_of(hardware)
    assert links is not None
    sizes = np.geomspace(1, 2**31, 60)
    share = (ranks - 1) / ranks * (2 if key.startswith("all_reduce") else 1)
    found = times_us(hardware, key, ranks, list(sizes))
    assert (found * MICROSECOND >= share * sizes / links.bytes_per_s).all()
    assert (np.diff(found) >= 0).all()


def test_a_mesh_uses_few_links_for_few_ranks():
    """Two GPUs of a board of eight have one link of seven: 76.8 GB/s, not 537."""
    large = 2**28
    two, eight = (
        times_us(load_hardware("mi355x"), "all_reduce.sglang", ranks, [large])[0]
        for ranks in (2, 8)
    )
    assert two > large / 76.8e9 / MICROSECOND
    assert two > 3 * eight


def test_through_the_host_is_slower_at_every_size():
    peer = load_hardware("rtx_pro_6000")
    refused = tuple(
        replace(figure, value=False) if figure.path == "links.peer_to_peer" else figure
        for figure in peer.figures
    )
    host = replace(peer, name="rtx_without_peers", figures=refused)
    sizes = list(np.geomspace(1, 2**28, 40))
    for ranks in (2, 4, 8):
        fast, slow = (times_us(gpu, "all_reduce.sglang", ranks, sizes) for gpu in (peer, host))
        assert (slow >= fast).all()


def test_latency_grows_with_ranks():
    for gpu in ("rtx_4090", "rtx_pro_6000", "gb10"):
        found = [
            times_us(load_hardware(gpu), "all_reduce.vllm", ranks, [64])[0] for ranks in (2, 4, 8)
        ]
        assert found == sorted(found)
        assert found[2] > 1.5 * found[0]


def test_a_rate_without_a_kind():
    """A hand-made GPU: a fast link is a switch, a slow one PCIe, none a network."""
    made = replace(load_hardware("b200"), name="made", architecture="sm110", figures=())
    assert links_of(made).kind is LinkKind.NVLINK
    assert links_of(replace(made, link_bytes_per_s=64e9)).kind is LinkKind.PCIE_HOST
    alone = replace(made, link_bytes_per_s=None, link_domain_gpus=1)
    assert links_of(alone).kind is LinkKind.NETWORK
    nothing = replace(alone, nic_bytes_per_s=None)
    assert links_of(nothing) is None
    with pytest.raises(MissingProfileError, match="no link or network is known"):
        load_calibration(nothing).law("all_reduce.sglang", 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 2", "schema is 2"),
        ("algorithm: one_shot", "algorithm: two_shots", "nearest: two_shot"),
        ("share: 0.8}", "share: 1.2}", "share must be between"),
        ("until_bytes: 65536.0", "until_bytes: 165536000.0", "until_bytes must grow"),
        ("step_s: 1.6e-06,", "", "step_s must be a number"),
        ("  mesh:", "  grid:", "has no field 'grid'"),
        ("error: {median: 0.2, p90: 0.6}", "error: {median: 0.2}", r"mesh.error.p90 must be"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str):
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "links.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SchemaError, match=message):
        read_links(path)
