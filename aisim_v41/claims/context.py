"""What claims are computed from: one model, its relatives, GPUs, and shorthands for the ledger.

A claim is a function of a `Context`, so that the same formulas can be run on a changed config: a
value that does not move with anything was not computed (``tests/claims``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from aisim_v41.claims.verdict import Value
from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.cache_rows import CacheRows, cache_rows
from aisim_v41.model.config import ConfigFile, TextConfig, parse_config
from aisim_v41.model.description import Draft, Engram, Indexer, Model, Vision
from aisim_v41.model.earlier import EarlierModel, require_step_model
from aisim_v41.model.inventory import Inventory, inventory
from aisim_v41.model.load import load_model, model_from_config
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from aisim_v41.reading import read_mapping
from aisim_v41.resources import find

MODEL = "deepseek-v4.1-flash"
SHORT_CONTEXT = 1 << 12
"""4K: the lower end of the report's Fig. 2 [tokens]."""

_Part = TypeVar("_Part")


def load_earlier(name: str) -> EarlierModel:
    """A generation before V4.1 by its packaged name."""
    model = load_model(name)
    if not isinstance(model, EarlierModel):
        raise InvalidInputError(f"{name!r} is not an earlier generation")
    return model


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """Everything that a formula may use.

    Args:
        content: the config as the file has it.
        model: what the library makes of it.
        earlier: loads a generation before V4.1 by name.
        hardware: loads a GPU by name.
    """

    content: Mapping[str, Any]
    model: Model
    earlier: Callable[[str], EarlierModel] = load_earlier
    hardware: Callable[[str], Hardware] = load_hardware

    @classmethod
    def packaged(cls) -> Context:
        """The official model, its bytes checked against the profile."""
        model = require_step_model(load_model(MODEL))
        return cls(content=read_mapping(find("profiles", MODEL, "/config.json")), model=model)

    @classmethod
    def of_config(cls, content: Mapping[str, Any], **others: Any) -> Context:
        """A changed model; ``others`` are fields of this class."""
        model = model_from_config(content, name="changed config")
        return cls(content=content, model=model, **others)

    # --- the model ------------------------------------------------------------------------

    @cached_property
    def config(self) -> ConfigFile:
        """The config, typed; for fields that change nothing that the library models."""
        return parse_config(dict(self.content), where="config")[0]

    @property
    def text(self) -> TextConfig:
        """Its language part."""
        return self.config.text_config

    @cached_property
    def inventory(self) -> Inventory:
        """Totals of the checkpoint."""
        return inventory(self.model)

    @property
    def window(self) -> int:
        """Sliding window [tokens]."""
        return self.model.attention.window

    @property
    def max_context(self) -> int:
        """Longest context [tokens]: 1M of the publications."""
        return self.model.max_context

    @property
    def boundary(self) -> int:
        """Last KV owner: the first decoder layer."""
        return _present(self.model.boundary, "global KV")

    @property
    def indexer(self) -> Indexer:
        """The indexer."""
        return _present(self.model.indexer, "indexer")

    @property
    def engram(self) -> Engram:
        """The Engram modules."""
        return _present(self.model.engram, "Engram")

    @property
    def draft(self) -> Draft:
        """The DSpark drafter."""
        return _present(self.model.draft, "drafter")

    @property
    def vision(self) -> Vision:
        """The vision encoder."""
        return _present(self.model.vision, "vision encoder")

    def rows(self, layout: str) -> CacheRows:
        """Cache rows of a named layout at this model's widths."""
        return cache_rows(self.model, layout)

    # --- the ledger -----------------------------------------------------------------------

    def ledger(
        self, *requests: Request, policy: RuntimePolicy, parallel: Parallel | None = None
    ) -> Ledger:
        """Counts of one step."""
        mapping = Parallel() if parallel is None else parallel
        return ledger(Plan(self.model, requests, parallel=mapping, policy=policy))


Formula = Callable[[Context], Value]
"""How one claim is recomputed: a function of what there is to compute from."""


def decode(context: int) -> Request:
    """One decode token whose context has ``context`` tokens, itself included."""
    return Request(new_tokens=1, prefix_tokens=context - 1, kind="decode")


def _present(part: _Part | None, what: str) -> _Part:
    if part is None:
        raise InvalidInputError(f"this model has no {what}: the claim has no meaning for it")
    return part
