"""What a forward is made of, for the fit of whole forwards: host, and kernels by family.

The seconds of families are OP's (`aisim_v41.estimators.op.compiled`): from the ledger, filled up to
captured sizes, by the build's kernels for that many rows. Where kernels overlap, each family is
shortened alike, so that the families add up to OP's time. Beside them stand the resources of each
family at peak, linear in the ledger: products of a tensor or scalar unit, bytes of memory, bytes on
links and network.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.estimators.op.builds import PREFILL, CompiledBuild
from aisim_v41.estimators.op.compiled import CompiledOp
from aisim_v41.estimators.program import whole_blocks
from aisim_v41.estimators.resources import RESOURCES, Resource
from aisim_v41.evidence.forwards.samples import Terms
from aisim_v41.ops.operator import Family
from aisim_v41.plan.captured import Mask

FAMILIES: Final = tuple(str(family) for family in Family)
RESOURCE_TERMS: Final = (
    ("compute", (Resource.TENSOR, Resource.SCALAR)),
    ("memory", (Resource.HBM,)),
    ("link", (Resource.LINK, Resource.NETWORK)),
    ("host link", (Resource.HOST_LINK, Resource.DISK)),
)
"""Name of a term -> resources whose seconds it adds."""
SEQUENCE_S: Final = 2e-6
"""Unit of the term of sequences [s]: what samplers and schedulers do for each, which no kernel here
has."""


class FamilyTerms:
    """Seconds of a build's host and kernel families.

    Args:
        build: compiled operators.
    """

    def __init__(self, build: CompiledBuild) -> None:
        self.build = build
        self._sums: dict[int, Floats] = {}
        self.names, self._resources = self._of_ledger()

    def __call__(
        self, counts: Floats, prefills: Mask | bool, uncaptured: Mask | None = None
    ) -> Terms:
        """Terms of steps: of one for [columns], of each for [columns, steps].

        Args:
            counts: filled up to captured sizes.
            prefills: which steps hold a prefill: they run as such even where every row reaches
                the head.
            uncaptured: decode steps above every captured size.
        """
        if counts.ndim == 1:
            op = self.build.at(counts, prefills=bool(prefills))
            device = self._device(op, counts)
            host = op.host.seconds(counts, uncaptured, prefills)
            return self._terms(np.atleast_1d(host), np.atleast_1d(prefills), device[None, :])
        steps = counts.shape[1]
        place = np.searchsorted(self.build.kernels.limits, self.build.rows(counts))
        place = np.where(prefills, PREFILL, place)
        host_s, device_s = np.empty(steps), np.empty((steps, len(self.names)))
        for one in np.unique(place).tolist():
            here = np.flatnonzero(place == one)
            part = counts[:, here]
            op = self.build.at(part[:, 0], prefills=one == PREFILL)
            device_s[here] = self._device(op, whole_blocks(part))[:, : len(here)].T
            apart = None if uncaptured is None else uncaptured[here]
            host_s[here] = op.host.seconds(part, apart, np.full(len(here), one == PREFILL))
        return self._terms(host_s, np.broadcast_to(prefills, steps), device_s)

    def _terms(self, host_s: Floats, prefills: Mask, device_s: Floats) -> Terms:
        return Terms(
            names=self.names, families=len(FAMILIES), host_s=host_s,
            prefills=prefills.astype(np.float64), device_s=device_s,
        )  # fmt: skip

    def _device(self, op: CompiledOp, counts: Floats) -> Floats:
        """Seconds of the terms: [names] or [names, steps]."""
        return np.concatenate([self._families(op, counts), self._resources @ counts])

    def _families(self, op: CompiledOp, counts: Floats) -> Floats:
        """Seconds of the families: [families] or [families, steps]."""
        spent = op.prices.seconds(counts)
        families: Floats = self._by_family(op) @ spent
        overlaps = op.overlaps(counts)
        if not overlaps.any() and not op.backbone.fetches:
            return families
        alone = families.sum(axis=0)
        together = op.overlapped.seconds(spent, counts) if overlaps.any() else alone
        if counts.ndim > 1 or not overlaps.any():
            together = np.where(overlaps, together, op.one_by_one(spent))
        scaled: Floats = families * (together / np.maximum(alone, np.finfo(float).tiny))
        return scaled

    def _by_family(self, op: CompiledOp) -> Floats:
        """Calls of a forward at each price, by family [families, prices]."""
        known = self._sums.get(id(op))
        if known is None:
            family = np.array([FAMILIES.index(str(task.family)) for task in op.tasks])
            known = np.zeros((len(FAMILIES), op.prices.size))
            np.add.at(known, (family, op.prices.same), op.calls)
            self._sums[id(op)] = known
        return known

    def _of_ledger(self) -> tuple[tuple[str, ...], Floats]:
        """Names of all terms, and seconds a count of those behind the families [terms, columns].

        Resources are those of the kernels that steps without a prefill run; fusion hardly moves
        them.
        """
        op = self.build.at(np.zeros(len(self.build.program.columns)), prefills=False)
        forms = op.resource_forms * op.calls[:, None, None]
        names, found = list(FAMILIES), []
        for family in Family:
            own = [place for place, task in enumerate(op.tasks) if task.family is family]
            total = forms[own].sum(axis=0)
            for name, resources in RESOURCE_TERMS:
                form = total[[RESOURCES.index(one) for one in resources]].sum(axis=0)
                if form.any():
                    names.append(f"{family} {name}")
                    found.append(form)
        sequences = np.zeros(forms.shape[2])
        sequences[self.build.program.logits_place] = SEQUENCE_S
        return (*names, "sequences"), np.array([*found, sequences])
