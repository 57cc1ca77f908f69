"""How the model is laid over GPUs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from aisim_v41.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Ranks per dimension of the mapping of one replica.

    Args:
        tp: Tensor-parallel ranks of attention, dense products and vocabulary.
        ep: Expert-parallel ranks; 1 slices every expert over ``tp``.
        dp: Attention data-parallel ranks.
        cp: Context-parallel ranks.
        pp: Pipeline stages.

    Raises:
        InvalidInputError: a value is not a whole number of at least 1.
    """

    tp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 1 <= value <= 4096:
                raise InvalidInputError(
                    f"Parallel.{field.name} = {value!r}: must be a whole number from 1 to 4096"
                )

    @property
    def gpus(self) -> int:
        """GPUs of one replica; expert-parallel ranks are a subset of tp x dp."""
        return self.tp * self.dp * self.cp * self.pp
