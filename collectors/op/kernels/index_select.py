"""Selection of entries and of candidate blocks: inputs, the torch way, and what is a right answer.

Several answers may be right: of equal scores, any is as good as another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from collectors.case import Case
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.index_score import DTYPES, counts_of
from collectors.op.kinds.indexer import CANDIDATE_BLOCK
from collectors.op.prepared import Prepared


class SelectInputs(NamedTuple):
    """One set of inputs.

    Attributes:
        scores: [rows, most positions].
        counts: positions that a row sees, [rows], INT32.
    """

    scores: torch.Tensor
    counts: torch.Tensor


def build_torch(case: Case, device: torch.device) -> Prepared:
    """The torch way: a top-k and a sort of its positions."""
    top_k, top_blocks = case.whole("top_k"), int(case.sizes.get("candidate_blocks", 0))

    def run(scores, counts):
        chosen = _best(_visible(scores, counts), counts, top_k)
        if not top_blocks:
            return chosen
        return chosen, _best(_block_scores(scores, counts), _blocks(counts), top_blocks)

    return _prepared(case, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """A kernel for positions and one for blocks, two each where rows are cut.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels.index_select_triton import select

    top_k, top_blocks = case.whole("top_k"), int(case.sizes.get("candidate_blocks", 0))

    def run(scores, counts):
        chosen = select(scores, counts, top_k)
        if not top_blocks:
            return chosen
        return chosen, select(scores, counts, top_blocks, group=CANDIDATE_BLOCK)

    return _prepared(case, run, "triton")


def _prepared(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, pattern = case.whole("rows"), case.options["score_pattern"]
    top_k, top_blocks = case.whole("top_k"), int(case.sizes.get("candidate_blocks", 0))

    def make(generator: torch.Generator) -> SelectInputs:
        device = generator.device
        counts = counts_of(case, device)
        width = int(counts.max())
        if pattern == "random":
            scores = torch.randn(rows, width, generator=generator, device=device)
        elif pattern == "ordered":
            scores = torch.linspace(-1.0, 1.0, width, device=device).repeat(rows, 1)
        else:
            scores = torch.ones(rows, width, device=device)
        return SelectInputs(scores.to(DTYPES[case.options["score_format"]]), counts)

    def reference(scores, counts):
        return _reference(scores, counts, top_k, top_blocks)

    def compare(answer, wanted, inputs):
        scores, counts = inputs
        if not top_blocks:
            return _wrong(answer, wanted, _visible(scores, counts), "positions")
        pairs = zip(
            answer, wanted, (_visible(scores, counts), _block_scores(scores, counts)), strict=True
        )
        names = iter(("positions", "blocks"))
        found = [_wrong(a, w, of, next(names)) for a, w, of in pairs]
        return found[0] or found[1]

    return Prepared(
        make=make, run=run, reference=reference, compare=compare, kernel_source=kernel_source
    )


def _reference(scores, counts, top_k: int, top_blocks: int):
    """Row by row: a stable sort of all scores, its first ones, in order."""
    chosen = torch.full((len(scores), top_k), -1, dtype=torch.int32)
    blocks = torch.full((len(scores), max(top_blocks, 1)), -1, dtype=torch.int32)
    for row, count in enumerate(counts.tolist()):
        seen = scores[row, :count].double()
        best = torch.sort(seen, descending=True, stable=True).indices[:top_k]
        chosen[row, : len(best)] = best.sort().values.int().cpu()
        if top_blocks:
            parts = [part.max() for part in seen.split(CANDIDATE_BLOCK)]
            parts[-1] = torch.full_like(parts[-1], torch.inf)
            order = torch.sort(torch.stack(parts), descending=True, stable=True).indices
            kept = order[:top_blocks].sort().values.int().cpu()
            blocks[row, : len(kept)] = kept
    both = chosen.to(scores.device), blocks.to(scores.device)
    return both if top_blocks else both[0]


def _wrong(
    answer: torch.Tensor, wanted: torch.Tensor, scores: torch.Tensor, what: str
) -> str | None:
    """What is wrong: order, number, or scores worse than the best."""
    if answer.shape != wanted.shape:
        return f"{what} are {list(answer.shape)}, not {list(wanted.shape)}"
    there = wanted >= 0
    if not torch.equal(answer >= 0, there) or bool((answer[~there] != -1).any()):
        return f"{what} are not as many as there should be, with -1 behind them"
    if bool((answer >= scores.shape[1]).any()):
        return f"{what} lie behind the last score"
    if bool(((answer[:, 1:] <= answer[:, :-1]) & there[:, 1:]).any()):
        return f"{what} are not in order, each once"
    values = [
        torch.where(there, scores.gather(1, picks.clamp(min=0).long()), torch.inf).sort(1).values
        for picks in (answer, wanted)
    ]
    return None if torch.equal(*values) else f"{what} miss some of the best scores"


def _visible(scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Scores as FP32, -inf where a row does not see the position."""
    seen = torch.arange(scores.shape[1], device=counts.device) < counts[:, None]
    return torch.where(seen, scores.float(), -torch.inf)


def _blocks(counts: torch.Tensor) -> torch.Tensor:
    return (counts + CANDIDATE_BLOCK - 1) // CANDIDATE_BLOCK


def _block_scores(scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Best score of each block, +inf for the newest."""
    seen = _visible(scores, counts)
    seen = pad(seen, (0, -seen.shape[1] % CANDIDATE_BLOCK), value=-torch.inf)
    best = seen.unflatten(1, (-1, CANDIDATE_BLOCK)).amax(2)
    return best.scatter(1, (_blocks(counts) - 1)[:, None].long(), torch.inf)


def _best(scores: torch.Tensor, counts: torch.Tensor, most: int) -> torch.Tensor:
    """The ``most`` best of each row in order, then -1."""
    picks = scores.topk(min(most, scores.shape[1]), sorted=False).indices
    behind = scores.shape[1]
    picks = torch.where(picks < counts[:, None], picks, behind).sort(1).values
    picks = torch.where(picks < behind, picks, -1).int()
    return pad(picks, (0, most - picks.shape[1]), value=-1)
