"""A case on this CPU: its answer against its reference, as the harness compares them."""

from __future__ import annotations

import torch

from collectors.case import Case
from collectors.op.kinds.registry import kind_of
from collectors.op.prepared import Prepared
from collectors.timing.answer import difference

torch.set_num_threads(1)
CPU = torch.device("cpu")


def completed(text: str) -> Case:
    case = Case.from_text(text)
    return kind_of(case).complete(case)


def prepared(text: str, kernel_source: str) -> Prepared:
    case = completed(text)
    (way,) = [w for w in kind_of(case).implementations if w.kernel_source == kernel_source]
    return way.load()(case, CPU)


def inputs_of(ready: Prepared, seed: int = 1) -> tuple:
    return ready.make(torch.Generator().manual_seed(seed))


def problem_of(ready: Prepared, seed: int = 1) -> str:
    """What is wrong with the answer; empty if nothing is."""
    return difference(ready, inputs_of(ready, seed)).wrong


def memory_of(inputs: tuple) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in inputs)
