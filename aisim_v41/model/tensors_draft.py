"""Stored tensors of the DSpark draft blocks (report §2.4.3; headers of ``mtp.*``).

The blocks have the form of a window-only backbone layer with their own experts. They use the
backbone's embedding and head and ship none of their own. The first block holds the projection of
the taps, the last one the Markov and confidence heads and the norm before the shared head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aisim_v41.model.description import Draft, Model
from aisim_v41.model.tensor import Split, Tensor, TensorGroup
from aisim_v41.model.tensors_block import Shape, block_shapes, placed


def draft_tensors(model: Model) -> tuple[Mapping[str, Tensor], ...]:
    """Tensors by role, one mapping per draft block; empty when the model has no drafter."""
    draft = model.draft
    if draft is None:
        return ()
    return tuple(_block(model, draft, block) for block in range(draft.blocks))


def _block(model: Model, draft: Draft, block: int) -> Mapping[str, Tensor]:
    prefix = f"mtp.{block}."
    common = block_shapes(
        hidden=model.hidden,
        attention=model.attention,
        experts=draft.experts,
        hyper=model.hyper,
        formats=model.formats.of_draft,
        image_router_bias=model.vision is not None,
    )
    tensors = {shape[0]: _as_draft(placed(shape, prefix)) for shape in common}
    tensors.update((shape[0], placed(shape, prefix)) for shape in _heads(model, draft, block))
    return tensors


def _as_draft(tensor: Tensor) -> Tensor:
    routed = tensor.group is TensorGroup.ROUTED_EXPERTS
    return replace(tensor, group=TensorGroup.DRAFT_EXPERTS if routed else TensorGroup.DRAFT)


def _heads(model: Model, draft: Draft, block: int) -> Iterator[Shape]:
    group, replicated, hidden = TensorGroup.DRAFT_HEADS, Split.REPLICATED, model.hidden
    linear, plain = model.formats.of_draft.linear, model.formats.plain
    if block == 0:
        taps_width = len(draft.taps) * hidden
        yield "main_proj", group, hidden, taps_width, linear, replicated, 1
        yield "main_norm", group, 1, hidden, plain, replicated, 1
    if block == draft.blocks - 1:
        rank = draft.markov_rank
        yield "norm", group, 1, hidden, plain, replicated, 1
        yield "markov_head.embed", group, model.vocab, rank, plain, Split.EMBEDDING, 1
        yield "markov_head.head", group, model.vocab, rank, plain, Split.VOCABULARY, 1
        yield "confidence_head.proj", group, 1, hidden + rank, plain, replicated, 1
