"""What an encode answers, what sending its embeddings takes, and a first token behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.vision import ImageGrid
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

    from aisim_v41.estimators.result import Estimate

Ranks = Literal["copies", "tensor", "images"]
Way = Literal["link", "network", "host"]
WAYS: tuple[Way, ...] = ("link", "network", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeBounds:
    """Lower bounds of an encode [s].

    Attributes:
        resource_s: products, attention, weights and messages over the peak of each resource.
        graph_s: rooflines of products, attention and messages one after another, norms and
            rotations fused into their neighbours.
    """

    resource_s: float
    graph_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeRow:
    """One operator of the slowest rank, all its calls.

    Attributes:
        operator, family: which.
        calls: over blocks and runs.
        rows: patches or cells of all runs, each block once.
        flop: of all calls [FLOP].
        bytes: of all calls [B].
        message_bytes: of all calls [B].
        seconds: of all calls [s].
        bound: resource that takes longest at peak.
        source: kind of evidence.
    """

    operator: str
    family: str
    calls: int
    rows: int
    flop: int
    bytes: int
    message_bytes: int
    seconds: float
    bound: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeMemory:
    """Memory on one rank [B].

    Attributes:
        weight_bytes: encoder, projector and delimiters.
        activation_bytes: the most that a run keeps at once.
        embedding_bytes: results of all images.
    """

    weight_bytes: int
    activation_bytes: int
    embedding_bytes: int


@dataclass(frozen=True, kw_only=True)
class EncodeEstimate:
    """How long a batch of images takes to encode.

    Attributes:
        model, images, hardware, method, tp, policy: what was asked.
        ranks, batching, execution: how it is run, see `aisim_v41.estimators.vision.encode`.
        latency_s: the estimate [s].
        band_s: interval that should hold the true value [s]; a bound has no upper end.
        bounds: speed-of-light bounds.
        kernels_s: time of the kernels as if the host were never late [s]; 0 for a bound.
        host_s: time that the host needs to issue them [s]; 0 for a bound and for graphs.
        source_share: share of the time by kind of evidence.
        rows: operator by operator, of the slowest rank.
        memory: of one rank.
        rank_images: images of each rank whose work differs.
    """

    model: Model
    images: tuple[ImageGrid, ...]
    hardware: Hardware
    method: str
    tp: int
    policy: str
    ranks: Ranks
    batching: str
    execution: str
    latency_s: float
    band_s: tuple[float, float]
    bounds: EncodeBounds
    kernels_s: float
    host_s: float
    source_share: Mapping[str, float]
    rows: tuple[EncodeRow, ...]
    memory: EncodeMemory
    rank_images: tuple[int, ...]

    @property
    def latency_ms(self) -> float:
        """Estimated time [ms]."""
        return self.latency_s / MILLISECOND

    @property
    def band_ms(self) -> tuple[float, float]:
        """Interval [ms] that should hold the true value."""
        return (self.band_s[0] / MILLISECOND, self.band_s[1] / MILLISECOND)

    @property
    def tokens(self) -> int:
        """Language tokens of all images."""
        return sum(image.tokens for image in self.images)

    @property
    def embedding_bytes(self) -> int:
        """What a prefill elsewhere must be sent [B]."""
        return self.memory.embedding_bytes

    @property
    def flop(self) -> int:
        """Work of the slowest rank [FLOP]."""
        return sum(row.flop for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """One row an operator; columns as of an `Estimate`, where they have a meaning."""
        import pandas as pd

        return pd.DataFrame([_row(row) for row in self.rows], columns=list(_COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data for JSON; an absent upper end of the band is None."""
        upper = self.band_ms[1]
        return {
            "method": self.method,
            "hardware": self.hardware.name,
            "model": self.model.name,
            "parallel": {"tp": self.tp},
            "policy": self.policy,
            "ranks": self.ranks,
            "batching": self.batching,
            "execution": self.execution,
            "images": [
                {
                    "encoded": [image.width, image.height],
                    "patches": image.patches,
                    "cells": image.cells,
                    "tokens": image.tokens,
                }
                for image in self.images
            ],
            "tokens": self.tokens,
            "latency_ms": self.latency_ms,
            "band_ms": [self.band_ms[0], upper if upper != float("inf") else None],
            "bounds_ms": {
                "resource": self.bounds.resource_s / MILLISECOND,
                "graph": self.bounds.graph_s / MILLISECOND,
            },
            "kernels_ms": self.kernels_s / MILLISECOND,
            "host_ms": self.host_s / MILLISECOND,
            "source_share": dict(self.source_share),
            "rank_images": list(self.rank_images),
            "memory": {
                "weight_bytes": self.memory.weight_bytes,
                "activation_bytes": self.memory.activation_bytes,
                "embedding_bytes": self.memory.embedding_bytes,
            },
            "operators": [_row(row) for row in self.rows],
        }


_COLUMNS = (
    "operator", "family", "calls", "rows", "flop", "bytes", "message_bytes", "time_ms", "bound",
    "source",
)  # fmt: skip


def _row(row: EncodeRow) -> dict[str, Any]:
    return {
        name: row.seconds / MILLISECOND if name == "time_ms" else getattr(row, name)
        for name in _COLUMNS
    }


def send_seconds(encoded: EncodeEstimate, hardware: Hardware, way: Way) -> float:
    """Time that embeddings take from a separate encode stage to the prefill, at peak [s].

    Args:
        encoded: what is sent: two bytes a value of the hidden width a token.
        hardware: whose link it is; the slower end, where the two differ.
        way: the scale-up "link" between GPUs, the scale-out "network", or through the "host".

    Raises:
        InvalidInputError: another way.
        MissingProfileError: the hardware file has no figure for it.

    >>> import aisim_v41 as aisim
    >>> from aisim_v41.estimators.vision import encode
    >>> gb300 = aisim.load_hardware("gb300")
    >>> found = encode(aisim.load_model("deepseek-v4.1-flash"), [(1302, 1302)], gb300, "sol")
    >>> round(1e6 * send_seconds(found, gb300, "network"), 1)  # 994 x 5120 x 2 B over 100 GB/s
    101.8
    """
    if way not in WAYS:
        raise InvalidInputError(f"way = {way!r}: must be one of {', '.join(WAYS)}")
    rate, field = {
        "link": (hardware.link_bytes_per_s, "links.scale_up_gb_per_s"),
        "network": (hardware.nic_bytes_per_s, "links.nic_gb_per_s"),
        "host": (hardware.host_link_bytes_per_s, "links.host_link_gb_per_s"),
    }[way]
    if rate is None:
        raise MissingProfileError(
            f"{hardware.name} has no figure for the {way}: add {field} to its file, or choose "
            "another way"
        )
    return encoded.embedding_bytes / rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePrompt:
    """A prompt with images up to its first token, without queue and host.

    Attributes:
        encode_s: its images, once [s].
        send_s: their embeddings from a separate stage; 0 where the same GPUs encode [s].
        prefill_s: the steps that compute the prompt [s].
    """

    encode_s: float
    send_s: float
    prefill_s: float

    @property
    def first_token_s(self) -> float:
        """One after the other [s]."""
        return self.encode_s + self.send_s + self.prefill_s


def image_prompt(
    encoded: EncodeEstimate,
    steps: Sequence[Estimate],
    *,
    way: Way | None = None,
    receiver: Hardware | None = None,
) -> ImagePrompt:
    """Encode, send and prefill of one prompt.

    Args:
        encoded: all images of the prompt.
        steps: estimates of the prefill's steps, which hold the images' tokens.
        way: how a separate stage sends its embeddings; None: the same GPUs encode.
        receiver: hardware of the prefill, where the encode's differs; the slower end counts.

    Raises:
        InvalidInputError: the steps hold other numbers of image tokens than were encoded.
        MissingProfileError: as `send_seconds`.
    """
    held = sum(r.image_tokens * r.count for step in steps for r in step.plan.requests)
    if held != encoded.tokens:
        raise InvalidInputError(
            f"the steps hold {held} image tokens, {encoded.tokens} were encoded: give a prefill "
            "Request(image_tokens=...) as many as its images have"
        )
    send = 0.0
    if way is not None:
        ends = (encoded.hardware, encoded.hardware if receiver is None else receiver)
        send = max(send_seconds(encoded, end, way) for end in ends)
    return ImagePrompt(
        encode_s=encoded.latency_s,
        send_s=send,
        prefill_s=sum(step.latency_s for step in steps),
    )
