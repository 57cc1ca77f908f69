"""No formula returns what it should compute: values move with the model, and none is typed in."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from aisim_v41.claims import Context, load_claims
from aisim_v41.claims.context import load_earlier
from aisim_v41.claims.registry import MODULES, all_formulas
from aisim_v41.claims.verdict import Parsed, exact
from aisim_v41.errors import AisimError
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.earlier import EarlierModel
from aisim_v41.model.earlier_attention import CompressedAttention

FIXED = {
    "arch-30": "the only word that the loader accepts",
    "arch-entries-1": "no model with a ratio above 1 has an entry after one token",
    "eng-12": "a shared host copy needs no all-reduce whatever the model",
    "inv-draft-heads-tensors": "seven whatever their widths",
    "inv-embedding-tensors": "one",
    "inv-head-tensors": "one",
    "hit-batch-forwards": "one a request and one for all, whatever the model",
    "hit-rows-short": "a hit shorter than a page is not used whatever the window",
    "kern-04": "(2n + 2) / (4n + 4) is a half for any n",
    "kv-10": "a property of two number formats",
    "led-8192-cp4": "a quarter of the prompt",
    "led-8192-cp4-writes": "the prompt",
}
"""Values that no config moves, and why; each is still computed."""


def other_widths(config: dict[str, Any]) -> None:
    """Every width and count of the text model, Engram, DSpark and vision; layers as they are."""
    config["text_config"].update(
        hidden_size=4096, moe_intermediate_size=2048, n_routed_experts=256, num_experts_per_tok=4,
        vocab_size=130_000, num_attention_heads=32, head_dim=256, q_lora_rank=1024,
        o_lora_rank=512, o_groups=16, sliding_window=96, index_n_heads=16, index_head_dim=64,
        index_topk=256, candidate_topk_blocks=1024, hc_mult=2, hc_sinkhorn_iters=10,
        engram_num_embeddings=[300_000_000, 300_100_000], engram_n_heads=4, engram_head_dim=128,
        engram_max_ngram_size=3, dspark_block_size=4, dspark_markov_rank=128,
        dspark_n_routed_experts=64, dspark_num_experts_per_tok=2, n_shared_experts=2,
    )  # fmt: skip
    config["vision_config"].update(
        num_hidden_layers=16, hidden_size=512, intermediate_size=1024, patch_size=16,
        downsample_ratio=2, max_image_tokens=480, min_pixels=65_536,
    )  # fmt: skip


def other_layers(config: dict[str, Any]) -> None:
    """36 layers, other sources, half the context, ratio 4, three Engram layers, two drafters."""
    text = config["text_config"]
    text.update(
        num_hidden_layers=36, compress_ratios=[0] * 3 + [4] * 15 + [1] * 18 + [0] * 2,
        kv_source_layer_ids=[3, 9, 14, 18, 24], index_source_layer_ids=[3, 9, 14, 18, 24, 28],
        candidate_source_layer_id=24, engram_layer_ids=[1, 14, 20],
        engram_num_embeddings=[384_006_168, 384_016_682, 384_020_000],
        num_nextn_predict_layers=2, dspark_target_layer_ids=[34, 35],
        max_position_embeddings=524_288,
    )  # fmt: skip
    text["rope_scaling"].update(original_max_position_embeddings=32_768)


def no_change(config: dict[str, Any]) -> None:
    pass


def other_generation(name: str) -> EarlierModel:
    """An earlier generation with other layers, heads and totals."""
    model = load_earlier(name)
    attention = model.attention
    if isinstance(attention, CompressedAttention):
        ratios = attention.ratios[:-7]
        attention = replace(attention, head_dim=640, ratios=ratios)
    elif hasattr(attention, "kv_heads"):
        attention = replace(attention, kv_heads=4)  # type: ignore[type-var]
    else:
        attention = replace(attention, kv_rank=640)  # type: ignore[type-var]
    published = replace(model.published, total_parameters=10**12, active_parameters=10**10)
    return replace(model, attention=attention, published=published)


def scaled(factor: float) -> Callable[[str], Hardware]:
    def load(name: str) -> Hardware:
        gpu = load_hardware(name)
        return replace(gpu, hbm_bytes=int(gpu.hbm_bytes * factor))

    return load


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = {
    "widths": (other_widths, {}),
    "layers": (other_layers, {}),
    "other": (no_change, {"earlier": other_generation, "hardware": scaled(0.3)}),
    "larger": (no_change, {"hardware": scaled(3)}),
}


def values(context: Context) -> dict[str, Parsed]:
    """Every formula's value; left out where the changed model has none."""
    found = {}
    for name, formula in all_formulas().items():
        try:
            found[name] = exact(formula(context))
        except (AisimError, LookupError, StopIteration):
            continue
    return found


@pytest.fixture(scope="module")
def official() -> dict[str, Parsed]:
    return values(Context.packaged())


def test_every_value_moves_with_something(official: dict[str, Parsed]) -> None:
    packaged = Context.packaged()
    moved: set[str] = set()
    for change, others in CHANGES.values():
        content = copy.deepcopy(dict(packaged.content))
        change(content)
        changed = values(Context.of_config(content, **others))
        moved |= {name for name, value in changed.items() if value != official[name]}
    assert set(official) - moved == set(FIXED)


def test_changed_contexts_have_most_claims(official: dict[str, Parsed]) -> None:
    """The test above means something only if changed models can be asked at all."""
    packaged = Context.packaged()
    for name, (change, others) in CHANGES.items():
        content = copy.deepcopy(dict(packaged.content))
        change(content)
        changed = values(Context.of_config(content, **others))
        assert len(changed) > 0.9 * len(official), (name, sorted(set(official) - set(changed)))


def functions(tree: ast.AST) -> Iterator[ast.Lambda | ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef)):
            yield node


def trees() -> Iterator[tuple[str, ast.Module]]:
    for module in MODULES:
        yield module.__name__, ast.parse(inspect.getsource(module))


def test_every_formula_uses_its_context() -> None:
    checked = 0
    for name, tree in trees():
        for node in functions(tree):
            arguments = [a.arg for a in node.args.args]
            if not arguments or arguments[0] not in ("c", "context"):
                continue
            body = node.body if isinstance(node.body, list) else [node.body]
            used = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
            assert arguments[0] in used, (name, node.lineno)
            checked += 1
    assert checked > 150


def test_no_published_figure_is_typed_in() -> None:
    """Long numbers in the formulas are none of those that they compute."""
    published: set[Fraction] = set()
    for claim in load_claims():
        for value in (claim.published, claim.guard and claim.guard[0]):
            if isinstance(value, tuple):
                published.update(value)
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                number = Fraction(str(node.value))
                if abs(number) >= 1000 or number.denominator > 100:
                    assert number not in published, (name, node.lineno, node.value)


def test_formulas_return_numbers_words_or_several_numbers(official: dict[str, Parsed]) -> None:
    assert len(official) == len(all_formulas())
    assert all(isinstance(value, (str, tuple)) and value for value in official.values())
