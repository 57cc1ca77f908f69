"""Memory of one rank: what a deployment holds (`capacity`), what a step needs (`demand`).

A sibling of time, not a by-product: nothing here asks an estimator, and no estimator asks this but
for the verdict of a step.
"""

from aisim_v41.memory.capacity import CapacityReport, capacity
from aisim_v41.memory.demand import StepMemory, demand
from aisim_v41.memory.host import HostMemory
from aisim_v41.memory.pool import KvPool, kv_pool
from aisim_v41.memory.relief import Relief
from aisim_v41.memory.terms import Kind, Place, Term

__all__ = [
    "CapacityReport",
    "HostMemory",
    "Kind",
    "KvPool",
    "Place",
    "Relief",
    "StepMemory",
    "Term",
    "capacity",
    "demand",
    "kv_pool",
]
