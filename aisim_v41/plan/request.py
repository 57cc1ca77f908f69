"""What one sequence does in one step (docs/assumptions.md, "Requests")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.parallel import MAX_RANKS

Kind = Literal["prefill", "decode", "verify"]
Window = Literal["running", "cached", "missing", "snapshot"]

KIND_CODES: Final[dict[str, int]] = {"prefill": 0, "decode": 1, "verify": 2}
WINDOW_CODES: Final[dict[str, int]] = {"running": 0, "cached": 1, "missing": 2, "snapshot": 3}
KINDS: Final = tuple(KIND_CODES)
WINDOWS: Final = tuple(WINDOW_CODES)

MAX_TOKENS = 1 << 40
"""Sanity bound of one length; the model's own context limit is checked by the plan."""

PACKED: Final = struct.Struct("=10d")
"""One request as ten float64 (whole numbers): the order of `PACKED_FIELDS`."""
PACKED_FIELDS: Final = (
    "new_tokens",
    "prefix_tokens",
    "prompt_tokens",
    "count",
    "kind",
    "window",
    "window_start",
    "prompt_logprobs",
    "image_tokens",
    "rank",
)
LONGEST_FIELD: Final = 2
KIND_FIELD: Final = 4
SPECIAL_FIELDS: Final = slice(5, 9)
"""Fields that are 0 in most requests: window, window_start, prompt_logprobs, image_tokens."""
RANK_FIELD: Final = -1
"""Packed as the number after the rank's, so that 0 stands for None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request of a step, or ``count`` identical ones.

    Args:
        new_tokens: Rows to compute [tokens]: a prefill chunk, one decode token, or 1 + k rows of a
            verify step.
        prefix_tokens: Positions computed before this step [tokens].
        kind: "prefill" (any part of a prompt, first or later chunk), "decode" or "verify".
        count: Identical requests in the step.
        prompt_tokens: Length of the whole prompt [tokens]; by default the prompt ends with this
            step. A larger value says that more chunks follow.
        window: Where the window KV of the prefix is: "running" (earlier steps of this request left
            it in place), "cached" (a prefix-cache hit that includes it), "missing" (a hit of the
            global entries alone) or "snapshot" (a hit with a stored window and pair state).
        window_start: First position whose window KV exists, where an earlier replay of this
            request left older ones out [position].
        prompt_logprobs: Whether log-probabilities of the prompt's own tokens are asked for.
        image_tokens: Rows of this step that belong to images, delimiters included; they come first
            (docs/assumptions.md, "Images") [tokens].
        rank: Attention-data-parallel rank that holds the request; by default requests are dealt
            evenly (`aisim_v41.plan.dealing`).

    Raises:
        InvalidInputError: a value that no request can have.

    Example:
        >>> Request(new_tokens=64, prefix_tokens=8192).end
        8256
    """

    new_tokens: int
    prefix_tokens: int = 0
    kind: Kind = "prefill"
    count: int = 1
    prompt_tokens: int | None = None
    window: Window = "running"
    window_start: int = 0
    prompt_logprobs: bool = False
    image_tokens: int = 0
    rank: int | None = None
    packed: bytes = b""
    """Filled at construction: the request as `PACKED`, so that a step of many is read at once."""

    def __post_init__(self) -> None:
        for name in ("new_tokens", "prefix_tokens", "count", "window_start", "image_tokens"):
            _require_whole(name, getattr(self, name))
        if not isinstance(self.kind, str) or self.kind not in KIND_CODES:
            raise InvalidInputError(f"Request.kind = {self.kind!r}: must be one of {KINDS}")
        if not isinstance(self.window, str) or self.window not in WINDOW_CODES:
            raise InvalidInputError(f"Request.window = {self.window!r}: must be one of {WINDOWS}")
        if type(self.prompt_logprobs) is not bool:
            raise InvalidInputError(
                f"Request.prompt_logprobs = {self.prompt_logprobs!r}: must be True or False"
            )
        if self.packed:
            raise InvalidInputError("Request.packed is derived; leave it out")
        if self.rank is not None and not (type(self.rank) is int and 0 <= self.rank < MAX_RANKS):
            raise InvalidInputError(
                f"Request.rank = {self.rank!r}: must be None or a whole number from 0 to "
                f"{MAX_RANKS - 1}"
            )
        end = self.prefix_tokens + self.new_tokens
        prompt = end if self.prompt_tokens is None else self.prompt_tokens
        _require_whole("prompt_tokens", prompt)
        self._check_consistency(end, prompt)
        object.__setattr__(
            self,
            "packed",
            PACKED.pack(
                self.new_tokens,
                self.prefix_tokens,
                prompt if self.kind == "prefill" else end,
                self.count,
                KIND_CODES[self.kind],
                WINDOW_CODES[self.window],
                self.window_start,
                self.prompt_logprobs,
                self.image_tokens,
                0 if self.rank is None else self.rank + 1,
            ),
        )

    def _check_consistency(self, end: int, prompt: int) -> None:
        if self.kind == "prefill" and prompt < end:
            raise InvalidInputError(
                f"Request.prompt_tokens = {prompt}: below prefix_tokens + new_tokens = {end}; "
                "give the length of the whole prompt, prefix included"
            )
        if self.kind == "decode" and self.new_tokens > 1:
            raise InvalidInputError(
                f"Request.new_tokens = {self.new_tokens} with kind 'decode': a decode step "
                "computes one token a request; use kind 'verify' for 1 + k rows, or count for more "
                "requests"
            )
        if self.kind != "prefill" and (self.window != "running" or self.prompt_logprobs):
            raise InvalidInputError(
                f"Request.kind = {self.kind!r} with window = {self.window!r}, prompt_logprobs = "
                f"{self.prompt_logprobs}: cache hits and prompt log-probabilities belong to prefill"
            )
        if self.image_tokens > (self.new_tokens if self.kind == "prefill" else 0):
            raise InvalidInputError(
                f"Request.image_tokens = {self.image_tokens} with kind {self.kind!r}, new_tokens = "
                f"{self.new_tokens}: images are rows of a prefill, among its new tokens"
            )
        if self.window_start > self.prefix_tokens:
            raise InvalidInputError(
                f"Request.window_start = {self.window_start}: beyond prefix_tokens = "
                f"{self.prefix_tokens}"
            )
        if self.window != "running" and (self.prefix_tokens == 0 or self.window_start):
            raise InvalidInputError(
                f"Request.window = {self.window!r} needs a prefix and no window_start; found "
                f"prefix_tokens = {self.prefix_tokens}, window_start = {self.window_start}"
            )

    @property
    def end(self) -> int:
        """Positions computed after this step [tokens]."""
        return self.prefix_tokens + self.new_tokens

    def __repr__(self) -> str:
        shown = [f"new_tokens={self.new_tokens}"]
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                shown.append(f"{name}={value!r}")
        return f"Request({', '.join(shown)})"


_DEFAULTS: dict[str, Any] = {
    "prefix_tokens": 0,
    "kind": "prefill",
    "count": 1,
    "prompt_tokens": None,
    "window": "running",
    "window_start": 0,
    "prompt_logprobs": False,
    "image_tokens": 0,
    "rank": None,
}


def _require_whole(name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise InvalidInputError(
            f"Request.{name} = {value!r}: must be a whole number from 0 to {MAX_TOKENS}"
        )


def chunked(
    new_tokens: int, *, chunk_tokens: int, prefix_tokens: int = 0, count: int = 1
) -> list[Request]:
    """The steps of one prompt computed in chunks: one `Request` a step.

    Args:
        new_tokens: Tokens to compute over all chunks [tokens].
        chunk_tokens: Largest chunk [tokens].
        prefix_tokens: Tokens already computed before the first chunk [tokens].
        count: Identical prompts that advance together.

    Example:
        >>> [r.new_tokens for r in chunked(10, chunk_tokens=4)]
        [4, 4, 2]
    """
    _require_whole("new_tokens", new_tokens)
    _require_whole("prefix_tokens", prefix_tokens)
    if type(chunk_tokens) is not int or chunk_tokens < 1:
        raise InvalidInputError(f"chunk_tokens = {chunk_tokens!r}: must be a whole number >= 1")
    if new_tokens > 1_000_000 * chunk_tokens:
        raise InvalidInputError(
            f"{new_tokens} tokens in chunks of {chunk_tokens}: more than a million steps"
        )
    prompt = prefix_tokens + new_tokens
    return [
        Request(
            new_tokens=min(chunk_tokens, new_tokens - done),
            prefix_tokens=prefix_tokens + done,
            prompt_tokens=prompt,
            count=count,
        )
        for done in range(0, new_tokens, chunk_tokens)
    ]
