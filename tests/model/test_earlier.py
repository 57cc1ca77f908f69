from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from aisim_v41 import resources
from aisim_v41.errors import SchemaError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import EarlierModel, require_step_model
from aisim_v41.model.earlier_attention import CompressedAttention
from aisim_v41.model.earlier_file import read_generation
from aisim_v41.model.load import load_model

NAMES = ["deepseek-v1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"]


def earlier(name: str) -> EarlierModel:
    model = load_model(name)
    assert isinstance(model, EarlierModel)
    return model


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("deepseek-v1", Fraction(389_120)),  # 95 x 2 x 8 x 128 x 2
        ("deepseek-v3.2", Fraction(48_068)),  # 61 x (656 + 132)
        ("deepseek-v4-flash", Fraction(14_057, 4)),  # 21 x 652/4 + 20 x 584/128
        ("deepseek-v4-pro", Fraction(80_503, 16)),  # 30 x 652/4 + 31 x 584/128 = 5031.4375
    ],
)
def test_kv_bytes_per_token(name: str, size: Fraction) -> None:
    model = earlier(name)
    assert model.kv_bytes_per_token == size
    published = model.published.kv_bytes_per_token
    assert published is None or round(model.kv_bytes_per_token) == published


def test_ratios_to_this_generation() -> None:
    assert 890 / earlier("deepseek-v4-flash").kv_bytes_per_token == pytest.approx(0.2533, abs=5e-5)
    assert earlier("deepseek-v1").kv_bytes_per_token / 890 == pytest.approx(437.2, abs=0.05)


@pytest.mark.parametrize(
    ("name", "parameters", "tolerance"),
    [
        ("deepseek-v1", 67e9, 0.007),
        ("deepseek-v3.2", 671e9, 0.0015),  # the card counts no indexer (0.85e9)
        ("deepseek-v4-flash", 284e9, 0.0015),
        ("deepseek-v4-pro", 1.6e12, 0.018),  # the card rounds 1.573e12 to 1.6T
    ],
)
def test_parameters_from_shapes(name: str, parameters: float, tolerance: float) -> None:
    model = earlier(name)
    assert model.published.total_parameters == parameters
    assert model.parameters == pytest.approx(parameters, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "active"),
    [("deepseek-v3.2", 37e9), ("deepseek-v4-flash", 13e9), ("deepseek-v4-pro", 49e9)],
)
def test_active_parameters_from_shapes(name: str, active: float) -> None:
    assert earlier(name).active_parameters == pytest.approx(active, rel=0.025)


def test_v4_flash_routed_experts() -> None:
    # 43 x 256 x 3 x 4096 x 2048 (model-facts §10)
    assert earlier("deepseek-v4-flash").parameters_by_part()["routed experts"] == 277_025_390_592


@pytest.mark.parametrize(
    ("name", "counts"),
    [("deepseek-v4-flash", {0: 2, 4: 21, 128: 20}), ("deepseek-v4-pro", {4: 30, 128: 31})],
)
def test_ratios_of_v4(name: str, counts: dict[int, int]) -> None:
    attention = earlier(name).attention
    assert isinstance(attention, CompressedAttention)
    assert {ratio: attention.ratios.count(ratio) for ratio in set(attention.ratios)} == counts


@pytest.mark.parametrize("name", NAMES)
def test_earlier_generations_have_no_step_model(name: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=f"{name} is packaged for comparison only"):
        require_step_model(earlier(name))


def test_this_generation_passes(model: Model) -> None:
    assert require_step_model(model) is model


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_where_it_is_from(name: str) -> None:
    model = earlier(name)
    assert model.source
    assert model.note
    assert model.published.source
    assert model.confidence in "ABC"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("layers: 43", "layers: none", "layers"),
        ("kind: compressed", "kind: linear", "attention"),
        ("heads: 64\n  head_dim", "heads: -1\n  head_dim", "attention.heads"),
        ("window: 128", "window: 128\n  extra: 1", "attention.extra"),
    ],
)
def test_a_broken_file_names_the_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    text = resources.find("profiles", "deepseek-v4-flash", "/generation.yaml").read_text()
    assert old in text
    broken = tmp_path / "generation.yaml"
    broken.write_text(text.replace(old, new))
    with pytest.raises(SchemaError, match=field):
        read_generation(broken)
