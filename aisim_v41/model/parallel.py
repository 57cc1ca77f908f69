"""How the model is laid over GPUs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from aisim_v41.errors import InvalidInputError

MAX_RANKS = 4096
"""Most ranks in one dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Ranks per dimension of the mapping of one replica.

    Args:
        tp: Tensor-parallel ranks of attention, dense products and vocabulary.
        ep: Groups of ranks that hold different routed experts; 1 slices every expert over all
            of tp x dp x cp, and ep = tp x dp x cp gives every rank whole experts.
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
            if type(value) is not int or not 1 <= value <= MAX_RANKS:
                raise InvalidInputError(
                    f"Parallel.{field.name} = {value!r}: must be a whole number from 1 to "
                    f"{MAX_RANKS}"
                )

    def named(self) -> dict[str, int]:
        """Ranks by dimension: tensor-parallel ones, and every other dimension that is used.

        >>> Parallel(tp=4, ep=4).named()
        {'tp': 4, 'ep': 4}
        """
        sizes = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: size for name, size in sizes.items() if name == "tp" or size > 1}

    @property
    def gpus(self) -> int:
        """GPUs of one replica; expert groups are made of the same ranks."""
        return self.tp * self.dp * self.cp * self.pp

    @property
    def expert_ranks(self) -> int:
        """Ranks of one stage; together they hold each routed expert once."""
        return self.tp * self.dp * self.cp

    @property
    def expert_slices(self) -> int:
        """Ranks over which the width of one routed expert is divided."""
        return self.expert_ranks // self.ep
