"""Distinct experts of a step, expert by expert and row by row.

Source: runtime rows choose top-k experts each; docs/assumptions.md, "Experts".
"""

from __future__ import annotations

from functools import cache

from .rows import Sequence


def expert_draws(policy, sequence: Sequence, rows: int) -> tuple[int, float]:
    """Draws of experts by the rows of one request in one layer: of a bound, and as expected."""
    if policy.expert_routing == "independent" or sequence.kind != "verify":
        return rows, rows
    expected = 0.0
    for row in range(rows):
        expected += 1.0 if row == 0 else 1.0 - policy.expert_locality
    return min(rows, 1), expected


def experts_touched(model, policy, draws: float, image_draws: float = 0) -> float:
    """Expected distinct experts: each is touched unless every draw misses it.

    Image rows are routed by a bias of their own: which expert of theirs has which popularity is
    unknown, so every pairing with those of text, one shifted against the other, counts alike.
    """
    text, images = (misses(model, policy, one) for one in (draws, image_draws))
    shifts = range(len(text) if image_draws else 1)
    touched = 0.0
    for shift in shifts:
        for expert in range(len(text)):
            touched += 1.0 - text[expert] * images[(expert + shift) % len(text)]
    return touched / len(shifts)


def misses(model, policy, draws: float) -> list[float]:
    """Chance of each expert to be missed by all draws."""
    routed, top_k = model.experts.routed, model.experts.top_k
    popularity = policy.expert_popularity
    if isinstance(popularity, tuple):
        return [(1.0 - chance) ** draws for chance in chances(popularity, top_k)]
    return [missed_by_all(top_k / routed, popularity, draws)] * routed


@cache
def missed_by_all(chance: float, popularity: float, draws: float) -> float:
    """Chance that all draws miss an expert, draw by draw.

    The longer an expert was missed, the less popular it is likely to be: with gamma-distributed
    hazards of shape a, the mean hazard after n misses falls as 1 / (1 + c n).
    """
    if popularity == 0 or chance == 1:
        return (1.0 - chance) ** draws
    shape = 1.0 / popularity
    falls = (1.0 - chance) ** (-popularity) - 1.0
    missed, done = 1.0, 0.0
    while done < draws:
        step = min(1.0, draws - done)
        missed *= ((1.0 + falls * done) / (1.0 + falls * (done + step))) ** shape
        done += step
    return missed


def chances(shares: tuple[float, ...], top_k: int) -> list[float]:
    """Chance of each expert to be in a row: by its share, at most 1, top_k in all."""
    found = [0.0] * len(shares)
    undecided = {expert for expert, share in enumerate(shares) if share > 0}
    while undecided:
        left = top_k - sum(chance == 1.0 for chance in found)
        mass = sum(shares[expert] for expert in undecided)
        certain = {expert for expert in undecided if left * shares[expert] >= mass}
        for expert in certain or undecided:
            found[expert] = 1.0 if certain else left * shares[expert] / mass
        undecided -= certain or undecided
    return found
