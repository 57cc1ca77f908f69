"""What one rank holds of each stored tensor.

The cut of every tensor is in its record (`Split`); the choices in which engines differ are the
fields of `ShardingRules`. Source: runtime-semantics §4.1, docs/assumptions.md, "Sharding".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.formats import BF16
from aisim_v41.model.parallel import MAX_RANKS, Parallel
from aisim_v41.model.tensor import Split, Tensor, TensorGroup, bytes_by_group
from aisim_v41.model.tensors import all_tensors

OUTPUT_PROJECTION = "attn.wo_a"
"""Role of the grouped output projection, which some runtimes widen at load."""


MAX_COPIES = 1 << 16
"""Most further copies of experts in one layer."""


class Placement(StrEnum):
    """Divided over tensor-parallel ranks, or a full copy on each."""

    SPLIT = "split"
    REPLICATED = "replicated"


class StoredAs(StrEnum):
    """Kept as the checkpoint has it, or widened to BF16 when it is loaded."""

    CHECKPOINT = "checkpoint"
    BF16 = "bf16"


class TableRanks(StrEnum):
    """Over which ranks the rows of an Engram table are divided."""

    TENSOR = "tensor"
    """Tensor-parallel ranks; every attention-data-parallel group has its own table (vLLM)."""
    ALL = "all"
    """All ranks of the replica (SGLang with attention data parallelism)."""


class UnevenRanks(StrEnum):
    """Tensor-parallel ranks that do not divide the heads, their output groups or an expert."""

    REFUSE = "refuse"
    PAD = "pad"
    """Whole groups of heads, and values of an expert's width, are added until they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingRules:
    """Choices of a runtime that change what a rank holds.

    Args:
        indexer: Heads of the indexer; replicated in the engines, split in the reference.
        shared_expert: Split in vLLM and SGLang, replicated in the reference.
        expert_slice_multiple: A slice of a routed expert is padded to a multiple of so many
            values of the expert width [values].
        redundant_experts: Further copies of routed experts of a layer under expert parallelism, all
            ranks together (EPLB).
        wo_a: Grouped output projection in the checkpoint's FP8, or widened to BF16 at load.
        embedding: Input embeddings by vocabulary rows, or replicated.
        engram_table: Ranks over which table rows are divided.
        uneven_ranks: What happens with ranks that do not divide heads or experts; engines refuse.

    Raises:
        InvalidInputError: a value is not one of the choices.
    """

    indexer: Placement = Placement.REPLICATED
    shared_expert: Placement = Placement.SPLIT
    expert_slice_multiple: int = 1
    redundant_experts: int = 0
    wo_a: StoredAs = StoredAs.CHECKPOINT
    embedding: Placement = Placement.SPLIT
    engram_table: TableRanks = TableRanks.TENSOR
    uneven_ranks: UnevenRanks = UnevenRanks.REFUSE

    def __post_init__(self) -> None:
        for name, choices in (
            ("indexer", Placement),
            ("shared_expert", Placement),
            ("wo_a", StoredAs),
            ("embedding", Placement),
            ("engram_table", TableRanks),
            ("uneven_ranks", UnevenRanks),
        ):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in list(choices):
                raise InvalidInputError(
                    f"ShardingRules.{name} = {value!r}: must be one of "
                    f"{', '.join(choice.value for choice in choices)}"
                )
            object.__setattr__(self, name, choices(value))
        multiple = self.expert_slice_multiple
        if type(multiple) is not int or not 1 <= multiple <= 1 << 16:
            raise InvalidInputError(
                f"ShardingRules.expert_slice_multiple = {multiple!r}: must be a whole number from "
                f"1 to {1 << 16}"
            )

        copies = self.redundant_experts
        if type(copies) is not int or not 0 <= copies <= MAX_COPIES:
            raise InvalidInputError(
                f"ShardingRules.redundant_experts = {copies!r}: must be a whole number from 0 to "
                f"{MAX_COPIES}"
            )


def check_mapping(
    model: Model, parallel: Parallel, rules: ShardingRules, *, drafts: bool = True
) -> None:
    """Whether the model can be cut this way at all.

    Args:
        model, parallel, rules: what is cut, into what, and how.
        drafts: the draft blocks are loaded, so that their experts must divide too.

    Raises:
        UnsupportedPlanError: names the two numbers that do not divide, and the values that do.
    """
    attention, experts = model.attention, model.experts
    tp, ep, ranks = parallel.tp, parallel.ep, parallel.expert_ranks
    pads = rules.uneven_ranks is UnevenRanks.PAD
    if pads and tp > attention.o_groups:
        raise UnsupportedPlanError(
            f"tp = {tp} on {attention.o_groups} o_groups of {model.name}: some ranks would hold "
            f"nothing but padding; use tp <= {attention.o_groups}"
        )
    for count, what in ((attention.o_groups, "o_groups"), (attention.heads, "attention heads")):
        if count % tp and not pads:
            both = [n for n in _divisors(attention.o_groups) if attention.heads % n == 0]
            raise UnsupportedPlanError(
                f"tp = {tp} does not divide {count} {what} of {model.name}; "
                f"allowed: {_listed(both)}, or any below with uneven_ranks='pad'. More ranks: dp "
                "for attention, ep for experts"
            )
    if ranks % ep:
        raise UnsupportedPlanError(
            f"ep = {ep} does not divide the {ranks} ranks that hold experts (tp x dp x cp = "
            f"{tp} x {parallel.dp} x {parallel.cp}); allowed: {_listed(_divisors(ranks))}"
        )
    slices = parallel.expert_slices
    routed = [("routed experts", experts.routed)]
    if drafts and model.draft is not None:
        routed.append(("routed experts of the draft blocks", model.draft.experts.routed))
    copies = rules.redundant_experts
    if copies and ep == 1:
        raise UnsupportedPlanError(
            f"redundant_experts = {copies} and ep = 1 exclude each other: every rank has a slice "
            "of every expert; use ep > 1, or no copies"
        )
    for what, count in routed:
        if (count + copies) % ep:
            fit = [
                n
                for n in _divisors(ranks)
                if all((number + copies) % n == 0 for _, number in routed)
            ]
            more = f" and {copies} copies" if copies else ""
            raise UnsupportedPlanError(
                f"ep = {ep} does not divide {count} {what}{more} of {model.name}; allowed: "
                f"{_listed(fit)}"
            )
    if experts.width % slices and not pads:
        raise UnsupportedPlanError(
            f"{slices} ranks (tp x dp x cp / ep) do not divide the expert width {experts.width} of "
            f"{model.name}; allowed slices: {_listed(_divisors(experts.width))}"
        )
    split = rules.shared_expert is Placement.SPLIT
    if split and experts.shared * experts.width % tp and not pads:
        raise UnsupportedPlanError(
            f"tp = {tp} does not divide the width {experts.shared * experts.width} of the shared "
            f"experts of {model.name}"
        )


def padded(model: Model, parallel: Parallel, rules: ShardingRules) -> Model:
    """The model as ranks hold it: with as many groups of heads as its ranks divide.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> model = load_model("deepseek-v4.1-flash")
        >>> held = padded(model, Parallel(tp=3), ShardingRules(uneven_ranks="pad"))
        >>> held.attention.o_groups, held.attention.heads
        (9, 72)
    """
    attention, tp = model.attention, parallel.tp
    if attention.o_groups % tp == 0:
        return model
    groups = _ceil(attention.o_groups, tp) * tp
    heads = attention.heads // attention.o_groups * groups
    return replace(model, attention=replace(attention, o_groups=groups, heads=heads))


def local(tensor: Tensor, parallel: Parallel, rules: ShardingRules) -> Tensor:
    """What the fullest rank holds of a tensor; scales follow the blocks of the cut matrix.

    The mapping must fit the model (`check_mapping`). Vocabulary and table rows that do not
    divide are rounded up.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> from aisim_v41.model.tensors import layer_tensors
        >>> model = load_model("deepseek-v4.1-flash")
        >>> expert = layer_tensors(model, model.layers[7])["ffn.experts.w1"]
        >>> padded = ShardingRules(expert_slice_multiple=128)
        >>> local(expert, Parallel(tp=4), padded).rows
        640
    """
    rows, columns, copies = tensor.rows, tensor.columns, tensor.copies
    stored = tensor.format
    match tensor.split:
        case Split.REPLICATED:
            return tensor
        case Split.OUTPUT_ROWS:
            rows = _ceil(rows, parallel.tp)
            if tensor.role == OUTPUT_PROJECTION and rules.wo_a is StoredAs.BF16:
                stored = BF16
        case Split.INPUT_COLUMNS:
            columns = _ceil(columns, parallel.tp)
        case Split.EXPERT_ROWS:
            copies = _ceil(copies + rules.redundant_experts, parallel.ep)
            rows = _slice(rows, parallel, rules)
        case Split.EXPERT_COLUMNS:
            copies = _ceil(copies + rules.redundant_experts, parallel.ep)
            columns = _slice(columns, parallel, rules)
        case Split.SHARED_EXPERT_ROWS:
            rows = _placed(rows, parallel.tp, rules.shared_expert)
        case Split.SHARED_EXPERT_COLUMNS:
            columns = _placed(columns, parallel.tp, rules.shared_expert)
        case Split.INDEXER_HEADS:
            rows = _placed(rows, parallel.tp, rules.indexer)
        case Split.EMBEDDING:
            rows = _placed(rows, parallel.tp, rules.embedding)
        case Split.VOCABULARY:
            rows = _ceil(rows, parallel.tp * parallel.cp)
        case Split.TABLE_ROWS:
            over_all = rules.engram_table is TableRanks.ALL
            rows = _ceil(rows, parallel.expert_ranks if over_all else parallel.tp)
    if (rows, columns, copies, stored) == (
        tensor.rows,
        tensor.columns,
        tensor.copies,
        tensor.format,
    ):
        return tensor
    return replace(tensor, rows=rows, columns=columns, copies=copies, format=stored)


def weights_per_rank(
    model: Model, parallel: Parallel, rules: ShardingRules
) -> dict[TensorGroup, int]:
    """Resident weight bytes [B] of the fullest rank, by group; they never depend on tokens.

    Every group that the model has is listed; leave out what a plan keeps elsewhere (Engram
    tables on the host) or does not load (draft, vision).

    Raises:
        UnsupportedPlanError: the mapping does not divide the model, or has pipeline stages.
    """
    if parallel.pp != 1:
        raise UnsupportedPlanError(
            f"pp = {parallel.pp}: which layers a pipeline stage holds is not modelled; use pp = 1"
        )
    check_mapping(model, parallel, rules)
    held = padded(model, parallel, rules)
    return bytes_by_group(local(tensor, parallel, rules) for tensor in all_tensors(held))


def _slice(width: int, parallel: Parallel, rules: ShardingRules) -> int:
    """Expert width per rank, padded as kernels want it; a whole expert is not padded."""
    if parallel.expert_slices == 1:
        return width
    share = _ceil(width, parallel.expert_slices)
    return _ceil(share, rules.expert_slice_multiple) * rules.expert_slice_multiple


def _placed(count: int, ranks: int, placement: Placement) -> int:
    return _ceil(count, ranks) if placement is Placement.SPLIT else count


def _ceil(count: int, parts: int) -> int:
    return -(-count // parts)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, MAX_RANKS) + 1) if number % n == 0]


_MOST_LISTED = 16


def _listed(values: list[int]) -> str:
    text = ", ".join(str(value) for value in values[:_MOST_LISTED])
    return f"{text}, ..." if len(values) > _MOST_LISTED else text
