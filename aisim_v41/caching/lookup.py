"""What a prefix cache has of a prompt, each of its two domains by itself.

Global entries grow with a text and are worth keeping for days; window rows are those of its last
128 tokens and fit only one end (report §3.2; runtime-semantics §2). So a cache can have one
without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from aisim_v41.errors import InvalidInputError
from aisim_v41.plan.request import MAX_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """A prompt, and what a cache found for it.

    Args:
        prompt_tokens: length of the prompt [tokens].
        global_tokens: longest prefix whose global entries and index keys are all there [tokens].
        window_tokens: end of the last stored window tail within that prefix [position]; 0: none.
        window_rows: rows of that tail [rows]; by default as many as cutting the hit to a page
            takes (SGLang keeps the window and a page).
        snapshot: the tail is whole, with the state of unfinished groups (TensorRT-LLM).

    Raises:
        InvalidInputError: lengths that no prompt has.

    Example:
        >>> CacheLookup(prompt_tokens=8256, global_tokens=8192).window_tokens
        0
    """

    prompt_tokens: int
    global_tokens: int = 0
    window_tokens: int = 0
    window_rows: int | None = None
    snapshot: bool = False

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self) if f.name != "snapshot"):
            value = getattr(self, name)
            if name == "window_rows" and value is None:
                continue
            low = 1 if name in ("prompt_tokens", "window_rows") else 0
            if type(value) is not int or not low <= value <= MAX_TOKENS:
                raise InvalidInputError(
                    f"CacheLookup.{name} = {value!r}: must be a whole number from {low} to "
                    f"{MAX_TOKENS}"
                )
        if type(self.snapshot) is not bool:
            raise InvalidInputError(
                f"CacheLookup.snapshot = {self.snapshot!r}: must be True or False"
            )
        for name, most in (("global_tokens", "prompt_tokens"), ("window_tokens", "global_tokens")):
            if getattr(self, name) > getattr(self, most):
                raise InvalidInputError(
                    f"CacheLookup.{name} = {getattr(self, name)}: beyond {most} = "
                    f"{getattr(self, most)}"
                )
        if not self.window_tokens and (self.snapshot or self.window_rows is not None):
            raise InvalidInputError(
                "CacheLookup.window_tokens = 0 with snapshot or window_rows: say where the stored "
                "window ends"
            )

    def window_covers(self, end: int, window: int, page: int) -> bool:
        """Whether the stored tail holds the window that ends at a position.

        Args:
            end: that position.
            window: its rows [rows].
            page: what a hit is cut to a multiple of [tokens].
        """
        if not self.window_tokens or end > self.window_tokens:
            return False
        rows = window + page if self.window_rows is None else self.window_rows
        return max(0, end - window) >= self.window_tokens - rows
