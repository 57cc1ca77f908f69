"""Runs of the encoder: cut over ranks, captured, packed; against the oracle and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.vision import largest_load, messages, multiply_accumulates, span

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.vision import ImageGrid, image_grid
from aisim_v41.ops.operator import Traffic
from aisim_v41.ops.vision import encode_flop, encode_operators, gather_embeddings
from aisim_v41.ops.vision_memory import activation_bytes, embedding_bytes, weight_bytes
from aisim_v41.ops.vision_runs import balanced, captured_tokens, encode_runs

_LOADED = load_model("deepseek-v4.1-flash")
assert isinstance(_LOADED, Model)
MODEL: Model = _LOADED


def grid(wide: int, high: int, downsample: int = 3) -> ImageGrid:
    return ImageGrid(
        width=14 * wide, height=14 * high, patches_wide=wide, patches_high=high,
        cells_wide=-(-wide // downsample), cells_high=-(-high // downsample),
    )  # fmt: skip


LARGEST, SMALLEST = image_grid(MODEL, 1302, 1302), image_grid(MODEL, 544, 544)


def small_model(random: Random) -> Model:
    """A small encoder whose widths four ranks divide."""
    assert MODEL.vision is not None
    heads = random.choice((4, 8))
    vision = replace(
        MODEL.vision, layers=random.randint(1, 3), heads=heads, hidden=heads * 4,
        intermediate=4 * random.randint(1, 6), downsample=random.randint(1, 3),
        patch=random.randint(1, 3),
    )  # fmt: skip
    return replace(MODEL, vision=vision, hidden=4 * random.randint(1, 5))


@pytest.mark.parametrize("seed", range(60))
def test_work_and_messages_are_the_oracles(seed: int) -> None:
    random = Random(seed)
    model = small_model(random)
    vision = model.vision
    assert vision is not None
    images = [
        grid(random.randint(1, 7), random.randint(1, 7), vision.downsample)
        for _ in range(random.randint(1, 3))
    ]
    ranks = random.choice((1, 2, 4))
    tokens = sum(len(span(image)) for image in images)
    captured = random.choice((0, tokens, tokens + 9))
    operators = encode_operators(model, images, ranks=ranks, captured_tokens=captured)
    asked = {"ranks": ranks, "captured_tokens": captured}
    assert encode_flop(operators) == 2 * multiply_accumulates(model, images, **asked)
    assert sum(o.calls * o.payload for o in operators) == messages(model, images, **asked)


@pytest.mark.parametrize(("ranks", "each"), [(1, 970_536_960), (2, None), (4, None), (16, None)])
def test_cut_weights_add_up(ranks: int, each: int | None) -> None:
    """What is cut adds to the checkpoint; what is not is on every rank.

    Not cut: patch embedding 1024 x 589, norms 65 x 1024, biases of summed products
    32 x 1024 + 5120, delimiters 3 x 5120: values of 2 B.
    """
    whole = 2 * (1024 * 589 + 65 * 1024 + 32 * 1024 + 5120 + 3 * 5120)
    assert weight_bytes(MODEL, ranks=ranks) == whole + (970_536_960 - whole) // ranks
    assert each is None or weight_bytes(MODEL, ranks=ranks) == each


def test_a_captured_run_by_hand() -> None:
    # 1,521 patches of a 184-token image in a graph of 256 tokens: 2,304 rows, 783 of them padding
    operators = {o.name: o for o in encode_operators(MODEL, [SMALLEST], captured_tokens=256)}
    core = operators["vision.blocks.attn.core"]
    assert (core.rows, core.pairs) == (2304, 1521**2 + 783**2)
    assert operators["aligner.w1"].rows == 256
    assert operators["image_span"].traffic[Traffic.ACTIVATION_WRITE] == 2 * 5120 * 184


def test_ranks_that_do_not_divide_and_graphs_that_are_too_small() -> None:
    with pytest.raises(UnsupportedPlanError, match="over 3 ranks: 16 heads"):
        encode_operators(MODEL, [SMALLEST], ranks=3)
    with pytest.raises(InvalidInputError, match="184 image tokens in a graph of 183"):
        encode_operators(MODEL, [SMALLEST], captured_tokens=183)


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "most", "captured"),
    [(1, 8192, 64), (64, 8192, 64), (65, 8192, 128), (994, 8192, 1024), (5000, 6000, 6000),
     (994, 0, 0)],
)  # fmt: skip
def test_captured_sizes(tokens: int, most: int, captured: int) -> None:
    assert captured_tokens(tokens, most) == captured


def test_runs_by_hand() -> None:
    three = [LARGEST, SMALLEST, LARGEST]
    alone = encode_runs(three, "one_by_one")
    assert [(r.images, r.times, r.captured_tokens) for r in alone] == [
        ((LARGEST,), 2, 0), ((SMALLEST,), 1, 0)
    ]  # fmt: skip
    (packed,) = encode_runs(three, "packed")
    assert (packed.images, packed.captured_tokens) == (tuple(three), 0)
    # 994 + 184 = 1,178 fit a graph of 2,048 with 994 more beyond it
    graphs = encode_runs(three, "packed", captured_up_to=2048)
    assert [(len(r.images), r.captured_tokens) for r in graphs] == [(2, 2048), (1, 1024)]
    assert encode_runs([], "packed") == encode_runs([], "one_by_one", captured_up_to=64) == ()


def test_a_captured_run_takes_64_images() -> None:
    tiny = grid(3, 3)
    runs = encode_runs([tiny] * 130, "packed", captured_up_to=8192)
    assert [len(run.images) for run in runs] == [64, 64, 2]
    assert [run.captured_tokens for run in runs] == [256, 256, 64]  # 4 tokens each


@given(st.lists(st.integers(0, 5), max_size=40), st.sampled_from(["one_by_one", "packed"]))
def test_every_image_is_encoded_once(picks: list[int], batching: str) -> None:
    sizes = [image_grid(MODEL, 300 * (n + 1), 400) for n in range(6)]
    images = [sizes[n] for n in picks]
    for most in (0, 2048):
        runs = encode_runs(images, batching, captured_up_to=most)  # type: ignore[arg-type]
        found = Counter(image for run in runs for image in run.images * run.times)
        assert found == Counter(images)
        for run in runs:
            tokens = sum(image.tokens for image in run.images)
            assert bool(run.captured_tokens) == bool(most)
            assert not most or tokens <= run.captured_tokens <= most


def test_an_image_beyond_every_graph() -> None:
    with pytest.raises(UnsupportedPlanError, match="an image of 994 tokens in encoder graphs"):
        encode_runs([LARGEST], "packed", captured_up_to=512)
    with pytest.raises(UnsupportedPlanError, match="the smallest holds 64"):
        encode_runs([grid(3, 3)], "packed", captured_up_to=63)


# --- ranks ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 3))
def test_greedy_balance_is_within_a_third_of_the_best(patches: list[int], ranks: int) -> None:
    """The bound of the longest-first rule: 4/3 - 1/(3 m) of the optimum."""
    images = [grid(n, 1) for n in patches]
    found = balanced(images, ranks)
    assert len(found) == ranks
    assert Counter(i for own in found for i in own) == Counter(images)
    load = max(sum(image.patches for image in own) for own in found)
    best = largest_load(patches, ranks)
    assert best <= load <= best * (4 / 3 - 1 / (3 * ranks)) + 1e-9


def test_the_gather_is_as_long_as_the_fullest_rank() -> None:
    gather = gather_embeddings(MODEL, 961, 4)
    assert (gather.payload, gather.group) == (4 * 961 * 5120 * 2, 4)


# --- memory -----------------------------------------------------------------------------------


def test_memory_by_hand() -> None:
    # 8,649 patches: a residual of 1,024 and gate, up and product of 2,816 each, 2 B a value
    assert activation_bytes(MODEL, [LARGEST]) == 2 * 8649 * (1024 + 3 * 2816)
    assert activation_bytes(MODEL, [LARGEST], ranks=4) == 2 * 8649 * (1024 + 3 * 704)
    assert activation_bytes(MODEL, [SMALLEST], captured_tokens=256) == 2 * 2304 * (1024 + 3 * 2816)
    assert embedding_bytes(MODEL, [LARGEST, SMALLEST]) == (994 + 184) * 5120 * 2
    assert activation_bytes(MODEL, []) == embedding_bytes(MODEL, []) == 0
