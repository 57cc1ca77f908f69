"""Collectives by torch.distributed, with inputs that every rank can work out."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.case import Case
from collectors.errors import InputError, UnavailableError
from collectors.op.prepared import Agreement, Prepared

ELEMENT_BYTES = 2


def build(case: Case, device: torch.device) -> Prepared:
    """A collective among the ranks that run this case.

    Raises:
        UnavailableError: other ranks or another library run here.
        InputError: the message does not divide.
    """
    ranks, library = case.whole("ranks"), case.options["library"]
    if not dist.is_available() or not dist.is_initialized():
        raise UnavailableError(f"{ranks} ranks are needed, this process is alone")
    if dist.get_world_size() != ranks or dist.get_backend() != library:
        raise UnavailableError(f"{dist.get_world_size()} ranks of {dist.get_backend()} run here, "
                               f"not {ranks} of {library}")  # fmt: skip
    elements = case.whole("message_bytes") // ELEMENT_BYTES
    if elements < ranks or elements % ranks:
        raise InputError(f"case {case.text}: message_bytes must be a multiple of "
                         f"{ranks * ELEMENT_BYTES}")  # fmt: skip
    part, rank = elements // ranks, dist.get_rank()
    run, reference = _CALLS[case.operator](elements, part, ranks, rank, device)

    def make(_: torch.Generator):
        size = part if case.operator == "all_gather" else elements
        return given(rank, size, device), torch.empty(0, device=device)

    return Prepared(
        make=make, run=run, reference=reference, agreement=Agreement(relative=0.02),
        kernel_source="torch_distributed", engine_version=_version(library),
    )  # fmt: skip


def given(rank: int, size: int, device: torch.device) -> torch.Tensor:
    """What a rank brings: small whole numbers that every other rank can work out."""
    return ((torch.arange(size, device=device) + 3 * rank) % 8).to(torch.bfloat16)


def _all_reduce(elements, part, ranks, rank, device):
    def run(mine, _):
        mine = mine.clone()
        dist.all_reduce(mine)
        return mine

    def reference(mine, _):
        return sum(given(other, elements, device).float() for other in range(ranks))

    return run, reference


def _all_gather(elements, part, ranks, rank, device):
    def run(mine, _):
        out = torch.empty(elements, dtype=mine.dtype, device=device)
        dist.all_gather_into_tensor(out, mine)
        return out

    def reference(mine, _):
        return torch.cat([given(other, part, device) for other in range(ranks)])

    return run, reference


def _reduce_scatter(elements, part, ranks, rank, device):
    def run(mine, _):
        out = torch.empty(part, dtype=mine.dtype, device=device)
        dist.reduce_scatter_tensor(out, mine)
        return out

    def reference(mine, _):
        whole = sum(given(other, elements, device).float() for other in range(ranks))
        return whole[rank * part : (rank + 1) * part]

    return run, reference


def _all_to_all(elements, part, ranks, rank, device):
    def run(mine, _):
        out = torch.empty_like(mine)
        dist.all_to_all_single(out, mine)
        return out

    def reference(mine, _):
        own = slice(rank * part, (rank + 1) * part)
        return torch.cat([given(other, elements, device)[own] for other in range(ranks)])

    return run, reference


_CALLS = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}


def _version(library: str) -> str:
    if library == "nccl":
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    return f"torch {torch.__version__}"
