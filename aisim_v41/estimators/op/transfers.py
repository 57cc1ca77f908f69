"""What OP takes a transfer of Engram rows to need: the hardware file's own figures as laws.

No table times such transfers. Where a file quotes what its link achieved, OP takes that rate,
otherwise the peak; disks are taken at what the file says they serve (docs/assumptions.md,
"Engram").
"""

from __future__ import annotations

from aisim_v41.estimators.engram_sources import host_rate
from aisim_v41.evidence.calibration import CalibratedLaw
from aisim_v41.evidence.laws import LawKind
from aisim_v41.hardware import Hardware

QUOTED_ERROR = 0.5
"""90 % error of a rate that a hardware file quotes: it was of long copies, and rows are 264 B."""
PEAK_ERROR = 0.75
"""90 % error of a peak rate: a transfer may take four times what it says."""


def transfer_law(hardware: Hardware, resource: str) -> CalibratedLaw:
    """How far a transfer stays below the peak of its resource.

    Args:
        hardware: from `load_hardware`.
        resource: "host_link" or "disk".

    Raises:
        UnsupportedPlanError: the file has no link to the host.
    """
    share, quoted, source = 1.0, resource == "disk", "disk figures of the hardware file"
    if resource == "host_link":
        likely, peak = host_rate(hardware, likely=True), host_rate(hardware, likely=False)
        share = likely.bytes_per_s / peak.bytes_per_s
        quoted = "achieved" in likely.limit
        source = f"hardware file: {likely.limit}, {likely.gb_per_s:g} GB/s"
    error = QUOTED_ERROR if quoted else PEAK_ERROR
    return CalibratedLaw(
        kind=LawKind.GATHER, key=f"transfer.{resource}",
        parameters={"launch_s": 0.0, "memory_share": share},
        error_median=error, error_p90=error, penalty=0.0, bias=0.0, rows_fitted=0, hull={},
        origin="default" if quoted else "theoretical", sources=(source,),
        note="rows of 264 B at the rate of long copies; what a read takes to begin is not in it",
    )  # fmt: skip
