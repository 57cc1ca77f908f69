"""What one GPU, its links and its host can do at most, in SI units.

A `Hardware` holds ceilings only: dense peaks, bus and link rates, sizes, and two host times. How
much of a ceiling a kernel reaches is evidence and lives in `profiles/`; an achieved rate that a
hardware file quotes stays among its `figures` and is never multiplied into anything here.
The files and their provenance are described in `hardware/README.md`; what is taken as true of them
in docs/assumptions.md, "Hardware".
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from aisim_v41 import resources
from aisim_v41.arithmetic import WIDER, Arithmetic
from aisim_v41.errors import (
    InvalidInputError,
    MissingProfileError,
    UnsupportedPlanError,
    nearest,
)

FOLDER = "hardware"
SUFFIX = ".yaml"
_FILE_SUFFIXES = (".yaml", ".yml", ".json")
_WHOLE = ("hbm_bytes", "l2_bytes", "link_domain_gpus", "host_memory_bytes")
_MAY_BE_NONE = (
    "link_bytes_per_s",
    "nic_bytes_per_s",
    "host_link_bytes_per_s",
    "host_memory_bytes",
    "disk_bytes_per_s",
    "disk_reads_per_s",
)
_MAY_BE_ZERO = ("eager_launch_s", "graph_node_gap_s")
_NOT_NUMBERS = ("name", "architecture", "peak_flop_per_s", "in_network_reduction", "figures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a hardware file, as the file prints it.

    Args:
        path: section and key, such as ``memory.hbm_bandwidth_tb_per_s``; the key ends in the unit.
        value: as printed, in that unit. None says that the part does not exist.
        kind: ``datasheet``, ``measured``, ``derived`` or ``estimate``.
        source: document, package or run that it was read from.
        date: year, or year and month, of that source.
        note: how it was found, what other sources say; always there for derived and estimate.
    """

    path: str
    value: float | bool | str | None
    kind: str
    source: str
    date: str
    note: str | None = None


class Peaks(Mapping[Arithmetic, float]):
    """Dense peak of each arithmetic class [FLOP/s]: a mapping that can be hashed, not changed."""

    __slots__ = ("_rates",)

    def __init__(self, rates: Mapping[Arithmetic, float]) -> None:
        """Copy ``rates``; later changes to it are not seen."""
        self._rates = dict(rates)

    def __getitem__(self, arithmetic: Arithmetic) -> float:
        return self._rates[arithmetic]

    def __iter__(self) -> Iterator[Arithmetic]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)

    def __hash__(self) -> int:
        return hash(frozenset(self._rates.items()))

    def __repr__(self) -> str:
        return f"Peaks({self._rates!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU with its links and its share of a host: ceilings in SI units.

    ``dataclasses.replace`` makes a what-if; ``figures`` then still quote the original file.

    Args:
        name: as in the file, such as ``gb300``.
        architecture: compiler target, such as ``sm103`` or ``gfx950``.
        peak_flop_per_s: dense peak of each class that the chip has [FLOP/s].
        hbm_bandwidth_bytes_per_s: peak of the GPU's memory, whatever its type [bytes/s].
        hbm_bytes: memory that a program can see, not what is sold [bytes].
        l2_bytes: last cache that all multiprocessors share [bytes].
        link_bytes_per_s: GPU to GPU in one scale-up domain, one direction, all links of a GPU
            together; None where there is no such link [bytes/s].
        link_domain_gpus: GPUs that those links reach, this one counted.
        in_network_reduction: the switches add (NVLink SHARP, ``multimem``).
        nic_bytes_per_s: share of a GPU in the scale-out network, one direction; None: not known or
            the builder's choice [bytes/s].
        host_link_bytes_per_s: CPU memory to GPU, one direction per GPU [bytes/s].
        host_memory_bytes: share of a GPU in its host's memory: the memory of a host divided by the
            GPUs that share it; None: not known, or not apart from the GPU's memory [bytes].
        eager_launch_s: one further bare kernel launch without a graph [s].
        graph_node_gap_s: between two kernels of a CUDA graph [s].
        disk_bytes_per_s: share of a GPU in its host's disks, reading [bytes/s]; None: not known.
        disk_reads_per_s: random reads of a page that this share serves [1/s]; None: as many as fit
            its rate.
        figures: every figure of the file, with its provenance.
    """

    name: str
    architecture: str
    peak_flop_per_s: Mapping[Arithmetic, float]
    hbm_bandwidth_bytes_per_s: float
    hbm_bytes: int
    l2_bytes: int
    link_bytes_per_s: float | None
    link_domain_gpus: int
    in_network_reduction: bool
    nic_bytes_per_s: float | None
    host_link_bytes_per_s: float | None
    host_memory_bytes: int | None
    eager_launch_s: float
    graph_node_gap_s: float
    disk_bytes_per_s: float | None = None
    disk_reads_per_s: float | None = None
    figures: tuple[Figure, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak_flop_per_s", _peaks(self.peak_flop_per_s))
        for item in fields(self):
            if item.name not in _NOT_NUMBERS:
                _check_number(item.name, getattr(self, item.name))
        if self.link_bytes_per_s is None and self.link_domain_gpus != 1:
            raise InvalidInputError(
                f"Hardware.link_domain_gpus is {self.link_domain_gpus}, but link_bytes_per_s is "
                "None: without a link the domain is 1 GPU"
            )

    def peak(self, arithmetic: Arithmetic | str) -> tuple[float, Arithmetic]:
        """Dense peak for a class [FLOP/s], and the class whose units do the work.

        A chip without units for the class runs it on wider ones, in the order of
        `aisim_v41.arithmetic.WIDER`.

        Raises:
            InvalidInputError: no such class.
            UnsupportedPlanError: neither the class nor a wider one exists on the chip.

        >>> load_hardware("h200").peak("mxfp4_mxfp8")
        (1978900000000000.0, <Arithmetic.FP8: 'fp8'>)
        """
        try:
            used = Arithmetic(arithmetic)
        except ValueError:
            raise InvalidInputError(
                f"no arithmetic class {arithmetic!r}; known: {', '.join(Arithmetic)}"
            ) from None
        while used not in self.peak_flop_per_s:
            if used not in WIDER:
                has = ", ".join(self.peak_flop_per_s) or "none"
                raise UnsupportedPlanError(
                    f"{self.name} has no units for {Arithmetic(arithmetic)} products nor for any "
                    f"wider class (it has {has}). Choose another arithmetic or another GPU."
                )
            used = WIDER[used]
        return self.peak_flop_per_s[used], used

    def figure(self, path: str) -> Figure:
        """The figure at ``path``, such as ``memory.hbm_bandwidth_achieved_tb_per_s``.

        Raises:
            MissingProfileError: the file has no such figure.
        """
        for figure in self.figures:
            if figure.path == path:
                return figure
        known = [figure.path for figure in self.figures]
        raise MissingProfileError(f"{self.name} has no figure {path!r}; {nearest(path, known)}")


def load_hardware(name_or_path: str | os.PathLike[str]) -> Hardware:
    """A packaged GPU by name (``"gb300"``), or one from a file.

    Args:
        name_or_path: a packaged name, searched in ``AISIM_V41_PATH`` first; or a file: a path
            object, or text that holds a path separator or ends in .yaml, .yml or .json.

    Raises:
        InvalidInputError: neither text nor a path.
        MissingProfileError: no such name (the nearest are listed) or no such file.
        SchemaError: the file is not a hardware file, or a figure cannot be right; the message
            names file, field, value and remedy.
    """
    path = _path(name_or_path)
    try:
        status = path.stat()
    except (OSError, ValueError):
        return _read(path)  # which says in a typed error what is wrong with it
    return _read_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=128)
def _read_once(path: Path, _modified_ns: int, _size: int) -> Hardware:
    return _read(path)


def _read(path: Path) -> Hardware:
    from aisim_v41.hardware_file import read_hardware  # pydantic is imported with the first file

    return read_hardware(path)


def _path(name_or_path: str | os.PathLike[str]) -> Path:
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise InvalidInputError(
            f"load_hardware takes a name or a path, found {type(name_or_path).__name__}; "
            f"{nearest('', resources.names(FOLDER, SUFFIX))}"
        )
    text = os.fspath(name_or_path)
    if not isinstance(text, str):
        raise InvalidInputError(f"load_hardware takes a path of text, found bytes: {text!r}")
    separators = [mark for mark in (os.sep, os.altsep) if mark]
    if (
        not isinstance(name_or_path, str)
        or any(mark in text for mark in separators)
        or text.lower().endswith(_FILE_SUFFIXES)
    ):
        return Path(text)
    try:
        return resources.find(FOLDER, text, SUFFIX)
    except OSError:  # longer than the file system takes
        raise MissingProfileError(
            f"no {FOLDER} entry named {text[:40]!r}...; "
            f"{nearest(text[:40], resources.names(FOLDER, SUFFIX))}"
        ) from None


def _peaks(rates: Mapping[Arithmetic, float]) -> Peaks:
    if not isinstance(rates, Mapping):
        raise InvalidInputError(
            f"Hardware.peak_flop_per_s must map arithmetic classes to FLOP/s, found {rates!r}"
        )
    for arithmetic, rate in rates.items():
        if arithmetic not in set(Arithmetic):
            raise InvalidInputError(
                f"Hardware.peak_flop_per_s: no arithmetic class {arithmetic!r}; "
                f"known: {', '.join(Arithmetic)}"
            )
        _check_number(f"peak_flop_per_s[{arithmetic}]", rate)
    return Peaks({Arithmetic(arithmetic): rate for arithmetic, rate in rates.items()})


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _check_number(name: str, value: Any) -> None:
    if value is None and name in _MAY_BE_NONE:
        return
    wanted = Integral if name in _WHOLE else Real
    if (
        isinstance(value, bool)
        or not isinstance(value, wanted)
        or not _is_finite(value)
        or value < 0
        or (value == 0 and name not in _MAY_BE_ZERO)
    ):
        kind = "a whole number" if name in _WHOLE else "a finite number"
        lowest = "0 or more" if name in _MAY_BE_ZERO else "more than 0"
        raise InvalidInputError(f"Hardware.{name} must be {kind}, {lowest}; found {value!r}")
