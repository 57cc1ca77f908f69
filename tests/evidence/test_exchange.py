"""Laws of an exchange of rows: NCCL's all-to-all stands in for engines' kernels, and the network
cards give what crosses link domains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aisim_v41.errors import MissingProfileError
from aisim_v41.evidence import features as of
from aisim_v41.evidence.calibration import ENGINE_PENALTY, load_calibration
from aisim_v41.evidence.links import LinkKind, links_of, network_of
from aisim_v41.hardware import load_hardware
from aisim_v41.plan.expert_groups import Scatter
from aisim_v41.tables.load import load_table

SHAPE = {
    "hidden": np.array(7168.0), "expert_width": np.array(3072.0),
    "experts_routed": np.array(384.0), "experts_per_token": np.array(6.0),
}  # fmt: skip
RANKS = 4


def message_s(law, size: np.ndarray) -> np.ndarray:
    silent = {"compute_s": 0.0, "memory_s": 0.0, "rows": np.ones_like(size)}
    return law.seconds(silent | {"message_bytes": size, "ranks": float(RANKS)})


@pytest.mark.parametrize("gpu", ["gb200", "gb300", "b200", "h200"])
def test_nccl_stands_in_for_an_engines_exchange(gpu: str):
    known = load_calibration(load_hardware(gpu), "sglang")
    plain, stands_in = (known.law(f"all_to_all.{one}", RANKS) for one in ("nccl", "sglang"))
    assert plain.origin == "calibrated"
    assert stands_in.origin == "sibling"
    assert stands_in.parameters == plain.parameters
    assert stands_in.error_p90 == pytest.approx(plain.error_p90 + ENGINE_PENALTY)
    assert "NCCL's, not sglang's own kernel" in stands_in.note


def test_a_gpu_without_tables_has_an_exchange_by_its_links():
    known = load_calibration(load_hardware("mi355x"), "sglang")
    law = known.law("all_to_all.sglang", 8)
    assert law.origin == "default"
    # Half of a ring's bytes: 1/8 of the message over each of seven links at .59 of their rate.
    links = links_of(load_hardware("mi355x"))
    assert links is not None
    rate = 0.59 * links.bytes_per_s / (links.gpus - 1) * 8
    assert law.parameters["rate_4_bytes_per_s"] == pytest.approx(rate, rel=1e-9)


def test_what_crosses_domains_goes_over_the_cards():
    gpu = load_hardware("h200")
    cards = network_of(gpu)
    assert cards is not None
    assert (cards.kind, cards.bytes_per_s) == (LinkKind.NETWORK, gpu.nic_bytes_per_s)
    law = load_calibration(gpu).law("all_reduce.network", 4)
    assert law.origin == "default"
    # The ring of large messages: 2 x 3/4 of the message at .8 of the card.
    assert law.parameters["rate_4_bytes_per_s"] == pytest.approx(0.8 * cards.bytes_per_s / 1.5)
    alone = replace(gpu, name="h200", nic_bytes_per_s=None)
    with pytest.raises(MissingProfileError, match="no link or network is known"):
        load_calibration(alone).law("all_reduce.network", 4)


@pytest.mark.parametrize("gpu", ["gb200", "gb300"])
def test_experts_and_their_exchange_beside_one_kernel_that_does_both(gpu: str):
    """MegaMoE on four GPUs starts later and hides its messages: the sum of the parts is .55 to .9
    of it up to 128 rows a rank, and 1.1 to 1.75 times it above."""
    hardware = load_hardware(gpu)
    known = load_calibration(hardware, "sglang")
    table = load_table(gpu, "experts")
    found = table.matching(operator="mega_moe", expert_load="balanced", expert_parallel=RANKS)
    (identity,) = found
    rows = table.select(flags=(), **identity).where(
        **{name: int(value) for name, value in SHAPE.items()}
    )
    tokens = rows.sizes["tokens"].astype(np.float64)
    experts = of.experts_features(
        hardware, "mxfp4_mxfp8", "balanced", SHAPE | {"tokens": tokens}, 1, RANKS
    )
    law = known.law("all_to_all.sglang", RANKS)
    buffer = tokens / RANKS * 7168 * Scatter(384, 6, fewest=False).reached(RANKS)
    sent_s = message_s(law, buffer * 33 / 32) + message_s(law, buffer * 2)
    ratio = (known.law("experts.mxfp4").seconds(experts) + sent_s) * 1e6 / rows.latency_us
    few = tokens / RANKS <= 128
    assert few.sum() >= 6
    assert 0.5 < ratio[few].min() < ratio[few].max() < 1.0
    assert 1.0 < ratio[~few].min() < ratio[~few].max() < 1.8
