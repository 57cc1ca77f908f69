"""One deployment to size: model, GPU, mapping, policy and the engine's limits, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.hardware import Hardware
from aisim_v41.memory.budget import Budget, budget
from aisim_v41.memory.pool import KvPool, kv_pool
from aisim_v41.memory.workspace import LargestStep
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import check_policy, stored_model
from aisim_v41.plan.mappings import check_mapping_is_modelled, check_split
from aisim_v41.plan.policy import RuntimePolicy

_MOST_REQUESTS = 1 << 30
_MOST_BYTES = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What `capacity` was asked.

    Args:
        model: From `load_model`.
        hardware: From `load_hardware`.
        parallel: Ranks per dimension of one replica.
        policy: From `policy`.
        max_length: Longest context that the engine admits [tokens].
        requests: Running requests of the replica.
        hosts: Hosts that the replica spans.
        host_memory_bytes: Memory of all those hosts [B]; None: what the hardware file says.

    Raises:
        InvalidInputError: a value of the wrong type or sign.
        OutOfRangeError: a context that the model does not have, or an absurd number.
        UnsupportedPlanError: the engine refuses the combination.
    """

    model: Model
    hardware: Hardware
    parallel: Parallel
    policy: RuntimePolicy
    max_length: int
    requests: int
    hosts: int = 1
    host_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        require_step_model(self.model)
        for name, expected in (
            ("hardware", Hardware),
            ("parallel", Parallel),
            ("policy", RuntimePolicy),
        ):
            value = getattr(self, name)
            if not isinstance(value, expected):
                raise InvalidInputError(
                    f"capacity: {name} = {value!r}: must be a {expected.__name__}, found "
                    f"{type(value).__name__}"
                )
        _check("max_length", self.max_length, _MOST_REQUESTS, "tokens")
        if self.max_length > self.model.max_context:
            raise OutOfRangeError(
                f"capacity: max_length = {self.max_length} tokens: {self.model.name} has a context "
                f"of {self.model.max_context}; ask for at most that"
            )
        _check("requests", self.requests, _MOST_REQUESTS, "requests")
        _check("hosts", self.hosts, self.parallel.gpus, "hosts, one GPU each at least")
        if self.host_memory_bytes is not None:
            _check("host_memory_bytes", self.host_memory_bytes, _MOST_BYTES, "bytes")
        object.__setattr__(self, "model", stored_model(self.model, self.policy))
        check_policy(self.policy, self.parallel, self.hardware.architecture)
        check_mapping_is_modelled(self.parallel)
        check_split(self.policy, self.parallel)

    @property
    def rank_requests(self) -> int:
        """Running requests of one attention-data-parallel rank, the fullest one."""
        return -(-self.requests // self.parallel.dp)

    @property
    def largest_step(self) -> LargestStep:
        """What bounds the buffers."""
        return LargestStep(
            rows=self.policy.chunk_tokens, max_length=self.max_length, requests=self.rank_requests
        )

    def budget(self) -> Budget:
        """Memory of one GPU, shared out."""
        return budget(self.model, self.hardware, self.parallel, self.policy, self.largest_step)

    def pool(self) -> KvPool:
        """KV of one rank."""
        return kv_pool(self.model, self.policy)


def _check(name: str, value: object, most: int, unit: str) -> None:
    if type(value) is not int:
        raise InvalidInputError(
            f"capacity: {name} = {value!r}: must be a whole number of {unit}, found "
            f"{type(value).__name__}"
        )
    if not 1 <= value <= most:
        raise OutOfRangeError(f"capacity: {name} = {value}: must be from 1 to {most} ({unit})")
