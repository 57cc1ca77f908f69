"""Handing a sequence over: from a prefill server to a decode server, from an encoder to a prefill.

Every rank of the receiver needs a copy of its own; a layer's state can leave as soon as the layer
is done (docs/updates.md, "Where KV lives, and moving it"). What engines refuse of it:
runtime-semantics §2.1, §9; deployment question 54.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aisim_v41.caching.adoption import Adoption, adopt
from aisim_v41.caching.kinds import require_kind
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.overlap import LayerTimes, end_of_sends, layer_times
from aisim_v41.caching.state import Domain, StatePart, sequence_state, state_bytes
from aisim_v41.caching.ways import Way
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import listed
from aisim_v41.estimators.entry import estimate
from aisim_v41.hardware import Hardware
from aisim_v41.memory.pool import KvPool, kv_pool
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.formats import BF16
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.vision import image_grid
from aisim_v41.plan.compatibility import (
    check_disaggregated,
    check_policy,
    disaggregation_faults,
    engine_warnings,
)
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One side of a hand-over.

    Args:
        policy: its engine.
        parallel: its ranks; those of attention (tp x cp) hold a copy each.
    """

    policy: RuntimePolicy
    parallel: Parallel = field(default_factory=Parallel)

    def __post_init__(self) -> None:
        for name, kind in (("policy", RuntimePolicy), ("parallel", Parallel)):
            require_kind(f"Role.{name}", getattr(self, name), kind)

    @property
    def copies(self) -> int:
        """Ranks that hold the whole state of one sequence."""
        return self.parallel.tp * self.parallel.cp


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """A sequence on its way from prefill to decode.

    Attributes:
        sender, receiver, way, method, hardware: what was asked.
        adoption: what the sender ran.
        parts: what one copy consists of.
        copies: copies that the receiver needs.
        copies_a_link: of these, how many one sending rank's link carries.
        compute_s: the sender's forwards [s].
        transfer_s: of one copy, after them and all at once [s].
        total_s: until the receiver has everything, layer by layer [s].
        warnings: what engines would refuse of sides whose ``engine_rules`` are "warned".
    """

    sender: Role
    receiver: Role
    way: Way
    method: str
    hardware: str
    adoption: Adoption
    parts: tuple[StatePart, ...]
    copies: int
    copies_a_link: int
    compute_s: float
    transfer_s: float
    total_s: float
    warnings: tuple[str, ...] = ()

    @property
    def copy_bytes(self) -> int:
        """One copy [B]."""
        return state_bytes(self.parts)

    @property
    def wire_bytes(self) -> int:
        """All copies [B]."""
        return self.copies * self.copy_bytes

    @property
    def exposed_s(self) -> float:
        """What the hand-over adds behind the last forward, layer by layer [s]."""
        return self.total_s - self.compute_s

    def to_frame(self) -> pd.DataFrame:
        """One row a layer and domain of one copy: domain, layer, rows, payload_bytes, bytes."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "domain": str(part.domain),
                    "layer": part.layer,
                    "rows": part.rows,
                    "payload_bytes": part.payload_bytes,
                    "bytes": part.bytes,
                }
                for part in self.parts
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "hardware": self.hardware,
            "method": self.method,
            "policy": self.sender.policy.name,
            "policy_revision": self.sender.policy.revision,
            "way": self.way.name,
            "bytes_per_s": self.way.bytes_per_s,
            "prompt_tokens": self.adoption.lookup.prompt_tokens,
            "bytes_by_domain": {str(d): state_bytes(self.parts, d) for d in Domain},
            "payload_bytes": sum(part.payload_bytes for part in self.parts),
            "copy_bytes": self.copy_bytes,
            "copies": self.copies,
            "copies_a_link": self.copies_a_link,
            "wire_bytes": self.wire_bytes,
            "compute_ms": self.compute_s / MILLISECOND,
            "transfer_ms": self.transfer_s / MILLISECOND,
            "exposed_ms": self.exposed_s / MILLISECOND,
            "total_ms": self.total_s / MILLISECOND,
            "warnings": list(self.warnings),
        }


def transfer(
    model: Model,
    hardware: Hardware,
    lookup: CacheLookup,
    *,
    sender: Role,
    receiver: Role,
    way: Way,
    method: str = "auto",
    held_tokens: int = 0,
) -> TransferReport:
    """Compute a prompt on one server and hand it to another.

    Args:
        model: from `load_model`.
        hardware: the sender's GPU.
        lookup: the prompt, and what the sender's cache has of it.
        sender, receiver: both sides.
        way: between them, see `aisim_v41.caching.ways.way_to`; its rate is that of one rank.
        method: as for `estimate`.
        held_tokens: prefix whose entries the receiver has already [tokens].

    Raises:
        InvalidInputError: an argument of the wrong kind.
        UnsupportedPlanError: the two sides store unlike rows or pages, or an engine refuses it.
        OutOfRangeError, MissingProfileError: as for `adopt` and `estimate`.
    """
    require_step_model(model)
    for name, value, kind in (
        ("hardware", hardware, Hardware), ("sender", sender, Role), ("receiver", receiver, Role),
        ("way", way, Way),
    ):  # fmt: skip
        require_kind(name, value, kind)
    check_roles(model, sender, receiver)
    adoption = adopt(model, lookup, sender.policy)
    prompt = lookup.prompt_tokens
    parts = sequence_state(model, sender.policy, prompt, held_tokens=held_tokens)
    steps = [
        layer_times(estimate(Plan(model, [r], sender.parallel, sender.policy), hardware, method))
        for r in adoption.requests
    ]
    compute_s = sum(seconds for step in steps for _, seconds in step)
    carried = -(-receiver.copies // sender.copies)
    link = way.shared_by(carried)
    pool = kv_pool(model, sender.policy)
    ready = _ready(pool, adoption, parts, steps, held_tokens)
    end = end_of_sends(ready, bytes_per_s=link.bytes_per_s, start_s=link.start_s)
    return TransferReport(
        sender=sender,
        receiver=receiver,
        way=way,
        method=method,
        hardware=hardware.name,
        adoption=adoption,
        parts=parts,
        copies=receiver.copies,
        copies_a_link=carried,
        compute_s=compute_s,
        transfer_s=link.seconds(state_bytes(parts)),
        total_s=max(compute_s, end),
        warnings=tuple(
            dict.fromkeys(
                (
                    *hand_over_warnings(sender, receiver),
                    *engine_warnings(sender.policy, sender.parallel, hardware.architecture),
                    *adoption.warnings,
                    *engine_warnings(receiver.policy, receiver.parallel),
                )
            )
        ),
    )


def check_roles(model: Model, sender: Role, receiver: Role) -> None:
    """Refuse two sides between which no sequence can be handed over.

    Raises:
        UnsupportedPlanError: naming both sides' choices and the revision that refuses.
    """
    for role in (sender, receiver):
        check_policy(role.policy, role.parallel)
    check_disaggregated(sender.policy, receiver.policy)
    pools = kv_pool(model, sender.policy), kv_pool(model, receiver.policy)
    unlike = [name for name, value in _layout(pools[0]).items() if value != _layout(pools[1])[name]]
    if unlike:
        raise UnsupportedPlanError(
            f"prefill stores {_shown(pools[0])} and decode {_shown(pools[1])}: {unlike[0]} differ, "
            "and no engine converts one into the other. Give both sides the same kv_layout and "
            "page fields."
        )
    if receiver.policy.speculation != "off" and sender.policy.speculation == "off":
        raise UnsupportedPlanError(
            f"prefill with speculation='off' and decode with {receiver.policy.speculation!r} "
            f"exclude each other ({receiver.policy.revision}): draft windows are filled by the "
            "prefill. Give both sides the same speculation."
        )


def hand_over_warnings(sender: Role, receiver: Role) -> tuple[str, ...]:
    """What engines would refuse of sides whose ``engine_rules`` are "warned"."""
    found = [
        f"{role.policy.revision} refuses it: {fault}"
        for role in (sender, receiver)
        if role.policy.engine_rules == "warned"
        for fault in disaggregation_faults(role.policy, sender.policy, receiver.policy)
    ]
    policy = receiver.policy
    if policy.name == "sglang" and policy.speculation != "off":
        if policy.verify_lengths == "ragged":
            found.append(f"verify_lengths='ragged': {_LATER_TEXT}")
        if receiver.parallel.cp > 1:
            found.append(f"a decode side of cp={receiver.parallel.cp}: {_LATER_TEXT}")
    return tuple(dict.fromkeys(found))


_LATER_TEXT = (
    "a later text of SGLang allows DSpark with separate servers for uniform lengths and a decode "
    "side of cp=1 alone"
)


def _layout(pool: KvPool) -> dict[str, object]:
    """What must be alike for pages to be copied as they are."""
    return {
        "pages of entries": pool.owners,
        "window pages": (pool.window_page_bytes, pool.window_page_rows, pool.window_row_bytes),
        "rings of unfinished groups": pool.pair_bytes,
        "pools": pool.blocks is None,
    }


def _shown(pool: KvPool) -> str:
    owner = pool.owners[0] if pool.owners else None
    pages = "" if owner is None else f" in pages of {owner.span_tokens} tokens"
    return f"{pool.layout}{pages}, {pool.window_page_rows} window rows a page"


def _ready(
    pool: KvPool,
    adoption: Adoption,
    parts: Sequence[StatePart],
    steps: Sequence[LayerTimes],
    held_tokens: int,
) -> list[tuple[float, float]]:
    """When each piece can leave and how large it is [s, B]: full pages of entries after their layer
    of a chunk, what lies in the last ones and all windows after that of the last chunk."""
    found: list[tuple[float, float]] = []
    pages = {owner.layer: owner for owner in pool.owners}
    sent = {layer: held_tokens // owner.span_tokens for layer, owner in pages.items()}

    def send(layer: int, until: int, when: float) -> None:
        owner = pages[layer]
        if until > sent[layer]:
            found.append((when, float((until - sent[layer]) * owner.page_bytes)))
            sent[layer] = until

    for layer, owner in pages.items():
        send(layer, adoption.hit_tokens // owner.span_tokens, 0.0)
    clock = 0.0
    ends: dict[int, float] = {}
    for request, step in zip(adoption.requests, steps, strict=True):
        for layer, seconds in step:
            clock += seconds
            ends[layer] = clock
        for layer, owner in pages.items():
            send(layer, request.end // owner.span_tokens, ends[layer])
    prompt = adoption.lookup.prompt_tokens
    for layer, owner in pages.items():
        send(layer, owner.pages(prompt), ends[layer])
    found += [
        (ends.get(part.layer, clock), float(part.bytes))
        for part in parts
        if part.domain is not Domain.ENTRIES
    ]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTransfer:
    """Embeddings of images on their way from an encoder to a prefill server.

    Attributes:
        cells: rows of the projector over all images.
        copy_bytes: one copy [B].
        copies: ranks that need one.
        seconds: until one rank has its copy [s].
    """

    cells: int
    copy_bytes: int
    copies: int
    seconds: float

    @property
    def wire_bytes(self) -> int:
        """All copies [B]."""
        return self.copies * self.copy_bytes


def transfer_images(
    model: Model, sizes: Sequence[tuple[int, int]], *, receiver: Role, way: Way
) -> ImageTransfer:
    """Hand the embeddings of images over: a row of the hidden width in BF16 a cell.

    Newlines and delimiters are token ids, not rows of the projector (model-facts §7).

    Args:
        model: with a vision encoder.
        sizes: width and height of each image [pixel].
        receiver: the prefill side; the encoder sends a copy to each of its ranks.
        way: one rank's link.

    Raises:
        UnsupportedPlanError, InvalidInputError, OutOfRangeError: as for `image_grid`.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> from aisim_v41.plan.policy import policy
        >>> sent = transfer_images(
        ...     load_model("deepseek-v4.1-flash"), [(1024, 768)],
        ...     receiver=Role(policy=policy("paper")), way=Way(name="network", bytes_per_s=5e10))
        >>> sent.copy_bytes  # 25 x 19 cells x 5,120 values x 2 B
        4864000
    """
    require_step_model(model)
    require_kind("receiver", receiver, Role)
    require_kind("way", way, Way)
    cells = sum(image_grid(model, *_size(pair)).cells for pair in listed("sizes", sizes, "pairs"))
    moved = BF16.element_bytes(cells, model.hidden)
    return ImageTransfer(
        cells=cells, copy_bytes=moved, copies=receiver.copies, seconds=way.seconds(moved)
    )


def _size(pair: object) -> tuple[int, int]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInputError(f"sizes hold {pair!r:.120}: must be pairs of width and height")
    width, height = pair
    return width, height
