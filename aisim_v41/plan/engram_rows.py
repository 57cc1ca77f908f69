"""How many different Engram rows a text asks for: step by step, module by module.

The policy's ``engram_distinct_share`` is what this counts. Repeated text asks for rows again,
within a step and from one step to the next; varied text hardly does (docs/updates.md, "Engram").
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Model
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.plan.engram_hash import EngramHash, Ids
from aisim_v41.plan.engram_text import RequestText

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRows:
    """What one module looks up in one step.

    Attributes:
        step: number of the step.
        layer: layer before which the module sits.
        tokens: text positions computed.
        lookups: rows looked up, repeats included.
        distinct: different rows among them.
        new: of those, rows that no earlier step looked up.
        ngrams: rows that there would be if no two n-grams hashed to the same one.
    """

    step: int
    layer: int
    tokens: int
    lookups: int
    distinct: int
    new: int
    ngrams: int

    @property
    def distinct_share(self) -> float:
        """Different rows over rows looked up; 1 where nothing was."""
        return self.distinct / self.lookups if self.lookups else 1.0

    @property
    def collisions(self) -> int:
        """Rows that different n-grams of the step share."""
        return self.ngrams - self.distinct


@dataclass(frozen=True, slots=True)
class EngramRows:
    """Rows of every step and module of a text."""

    modules: tuple[ModuleRows, ...]

    @property
    def lookups(self) -> int:
        """Rows looked up in all steps."""
        return sum(module.lookups for module in self.modules)

    @property
    def distinct_share(self) -> float:
        """Different rows of each step over all: the policy's ``engram_distinct_share``."""
        return sum(m.distinct for m in self.modules) / self.lookups if self.lookups else 1.0

    @property
    def new_share(self) -> float:
        """Rows that no step looked up before, over all: what a cache without limit would miss."""
        return sum(m.new for m in self.modules) / self.lookups if self.lookups else 1.0

    def to_frame(self) -> pd.DataFrame:
        """One row a step and module."""
        import pandas as pd

        return pd.DataFrame([*map(_as_dict, self.modules)], columns=list(_COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            "lookups": self.lookups,
            "distinct_share": self.distinct_share,
            "new_share": self.new_share,
            "modules": [_as_dict(module) for module in self.modules],
        }


_COLUMNS = (
    "step", "layer", "tokens", "lookups", "distinct", "distinct_share", "new", "ngrams",
    "collisions",
)  # fmt: skip


def _as_dict(module: ModuleRows) -> dict[str, Any]:
    return {name: getattr(module, name) for name in _COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRows:
    """What a cache of hot rows does for a text.

    Attributes:
        capacity: rows that it holds.
        asked: rows asked of it: the different ones of every step.
        hits: of those, rows that it had.
    """

    capacity: int
    asked: int
    hits: int

    @property
    def hit_share(self) -> float:
        """Hits over rows asked; 0 where none was."""
        return self.hits / self.asked if self.asked else 0.0


def row_bytes(model: Model) -> int:
    """One table row with its scales [B].

    Raises:
        InvalidInputError: no Engram modules.

    >>> from aisim_v41.model.load import load_model
    >>> row_bytes(load_model("deepseek-v4.1-flash"))
    264
    """
    if model.engram is None:
        raise InvalidInputError(f"{model.name} has no Engram modules, so there are no rows")
    table = layer_tensors(model, model.layers[model.engram.layers[0]])["engram.embed"]
    return table.format.bytes(1, model.engram.head_dim)


def count_rows(hashing: EngramHash, steps: Iterable[Sequence[RequestText]]) -> EngramRows:
    """Rows that steps look up, counted one by one.

    Args:
        hashing: from `aisim_v41.plan.engram_hash.engram_hash`.
        steps: in the order they run, each a list of request texts; `chunks` makes them.

    Raises:
        InvalidInputError: a token id that the model does not have.

    >>> import aisim_v41 as aisim
    >>> from aisim_v41.plan.engram_hash import engram_hash
    >>> from aisim_v41.plan.engram_text import RequestText, chunks
    >>> hashing = engram_hash(aisim.load_model("deepseek-v4.1-flash"))
    >>> varied, repeated = RequestText(token_ids=range(100)), RequestText(token_ids=[7] * 100)
    >>> [count_rows(hashing, chunks([text], 50)).distinct_share for text in (varied, repeated)]
    [1.0, 0.04]
    """
    engram = hashing.engram
    known: list[Ids] = [np.empty(0, np.int64) for _ in engram.layers]
    found: list[ModuleRows] = []
    for number, step in enumerate(steps):
        rows = _rows_of_step(hashing, step)
        ngrams = engram.heads * _distinct_ngrams(hashing, step)
        for module, layer in enumerate(engram.layers):
            distinct = np.unique(rows[:, module])
            merged = np.union1d(known[module], distinct)
            found.append(
                ModuleRows(
                    step=number,
                    layer=layer,
                    tokens=len(rows),
                    lookups=rows[:, module].size,
                    distinct=len(distinct),
                    new=len(merged) - len(known[module]),
                    ngrams=ngrams,
                )
            )
            known[module] = merged
    return EngramRows(tuple(found))


def cached_rows(
    hashing: EngramHash, steps: Iterable[Sequence[RequestText]], capacity: int
) -> CachedRows:
    """Hits of a cache that keeps the rows used last, over all modules together.

    Args:
        hashing: as for `count_rows`.
        steps: as for `count_rows`; a step asks for each of its rows once, in the order of
            positions, modules and columns.
        capacity: rows that the cache holds.

    Raises:
        InvalidInputError: a capacity below 0, or a token id that the model does not have.
    """
    if type(capacity) is not int or capacity < 0:
        raise InvalidInputError(f"capacity = {capacity!r}: must be a whole number of rows >= 0")
    starts = np.cumsum([0, *hashing.engram.rows[:-1]])
    kept: OrderedDict[int, None] = OrderedDict()
    asked = hits = 0
    for step in steps:
        rows = (_rows_of_step(hashing, step) + starts[:, None]).ravel()
        _, first = np.unique(rows, return_index=True)
        for row in rows[np.sort(first)].tolist():
            asked += 1
            if row in kept:
                hits += 1
                kept.move_to_end(row)
                continue
            kept[row] = None
            if len(kept) > capacity:
                kept.popitem(last=False)
    return CachedRows(capacity=capacity, asked=asked, hits=hits)


def _rows_of_step(hashing: EngramHash, step: Sequence[RequestText]) -> Ids:
    engram = hashing.engram
    none = np.empty((0, len(engram.layers), engram.rows_per_token), np.int64)
    return np.concatenate([none, *(hashing.rows(text) for text in step)])


def _distinct_ngrams(hashing: EngramHash, step: Sequence[RequestText]) -> int:
    """Different n-grams of a step, orders added up, whatever they hash to."""
    seen = np.concatenate(
        [
            np.empty((0, hashing.engram.max_ngram), np.int64),
            *(_text_classes(hashing, t) for t in step),
        ]
    )
    names, total = seen[:, 0], 0
    several = max(hashing.ids, hashing.pad + 1)
    for order in range(1, hashing.engram.max_ngram):
        different, names = np.unique(names * several + seen[:, order], return_inverse=True)
        total += len(different)
    return total


def _text_classes(hashing: EngramHash, text: RequestText) -> Ids:
    seen, is_text = hashing.classes_of(text)
    return seen[is_text]
