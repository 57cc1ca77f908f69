"""``sweep``: the parts of a space, made on the cores of one machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

from aisim_v41.errors import InvalidInputError
from aisim_v41.resources import SEARCH_PATH_VARIABLE
from aisim_v41.sweeps.dataset import SweepData, part_path, prepare
from aisim_v41.sweeps.parts import PART_POINTS, Cut, Work
from aisim_v41.sweeps.space import Space, read_space
from aisim_v41.writing import replace_file

if TYPE_CHECKING:
    import joblib

Progress = Callable[[int, int], None]
WAVE = 4
"""Parts a worker gets at once where a back end cannot hand results over one by one."""


def sweep(
    space: Space | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    backend: str | None = None,
    part_points: int = PART_POINTS,
    progress: Progress | None = None,
) -> SweepData:
    """Times of every point of a space, as a Parquet data set.

    Args:
        space: a mapping or a YAML or JSON file with the sections ``hardware``, ``requests``,
            ``model``, ``parallel``, ``policy``, ``method``, ``where`` and ``memory``
            (docs/sweeps.md).
        folder: of the data set; a sweep that was interrupted there goes on. Without one, rows lie
            in a temporary folder that goes with the answer.
        jobs: processes, or workers of a cluster; -1 for all cores. By default what
            ``joblib.parallel_config`` around the call says, or 1.
        backend: of joblib: "loky", "threading", "dask", "ray" and so on; by default that of
            ``joblib.parallel_config`` around the call.
        part_points: points of one file, rounded up to whole blocks of 8,192.
        progress: called with parts done and parts in all.

    Returns:
        The data set: ``frame()``, ``frames()``, ``query(sql)``, ``files``. Rows and their values
        do not depend on jobs, back end or part_points, to the last bit.

    Raises:
        InvalidInputError: the space, an argument, or a folder that holds something else.
        MissingProfileError, SchemaError: a model, GPU, preset or file of the space.

    Example:
        >>> found = sweep({"hardware": "gb300", "parallel": {"tp": 4}, "method": "sol",
        ...                "requests": {"new_tokens": [1024, 8192]}})
        >>> found.frame()["latency_ms"].round(3).tolist()
        [11.442, 33.016]
    """
    if type(part_points) is not int or part_points < 1:
        raise InvalidInputError(f"part_points = {part_points!r}: must be a whole number >= 1")
    if jobs is not None and (type(jobs) is not int or jobs == 0):
        raise InvalidInputError(f"jobs = {jobs!r}: must be a whole number, such as 2 or -1")
    if backend is not None and not isinstance(backend, str):
        raise InvalidInputError(f"backend = {backend!r:.80}: must be a name, such as 'loky'")
    if folder is not None and not _is_path(folder):
        raise InvalidInputError(f"folder = {folder!r:.80}: must be a path")
    cut = Cut(read_space(space), part_points)
    held = _Temporary() if folder is None else None
    place = held.folder if held else Path(folder or "")
    data = prepare(place, cut, held)
    missing = [part for part in range(cut.parts) if not part_path(place, part).exists()]
    done = cut.parts - len(missing)
    roots = os.environ.get(SEARCH_PATH_VARIABLE)
    for part, raw in _made(cut, missing, roots, jobs, backend):
        try:
            replace_file(part_path(place, part), raw)
        except OSError as error:
            raise InvalidInputError(f"{place}: cannot be written ({error.strerror})") from None
        done += 1
        if progress is not None:
            progress(done, cut.parts)
    return data


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike)) and str(given) != "" and "\0" not in str(given)


class _Temporary:
    """A folder that is removed with the last who holds this."""

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="aisim-v41-sweep-"))
        self.remove = finalize(self, rmtree, self.folder, ignore_errors=True)


def _made(
    cut: Cut, parts: list[int], roots: str | None, jobs: int | None, backend: str | None
) -> Iterator[tuple[int, bytes]]:
    """Parts as Parquet files, in any order, a few at a time in memory."""
    import joblib

    with _configured(jobs, backend):
        try:
            pool = joblib.Parallel(return_as="generator_unordered", pre_dispatch="2*n_jobs")
        except ValueError:  # a back end that has results only when it has them all
            yield from _in_waves(cut, parts, roots)
            return
        yield from pool(joblib.delayed(_make)(part, cut.work(part), roots) for part in parts)


def _in_waves(cut: Cut, parts: list[int], roots: str | None) -> Iterator[tuple[int, bytes]]:
    import joblib

    pool: joblib.Parallel[tuple[int, bytes]] = joblib.Parallel()
    wave = WAVE * max(1, joblib.effective_n_jobs(pool.n_jobs))
    for first in range(0, len(parts), wave):
        several = parts[first : first + wave]
        yield from pool(joblib.delayed(_make)(part, cut.work(part), roots) for part in several)


def _configured(jobs: int | None, backend: str | None) -> Any:
    """What joblib is asked for; nothing where the caller's own ``parallel_config`` counts.

    Raises:
        InvalidInputError: no such back end here.
    """
    import joblib

    asked = {"n_jobs": jobs, "backend": backend}
    known = {name: value for name, value in asked.items() if value is not None}
    if not known:
        return nullcontext()
    try:
        return joblib.parallel_config(**known)
    except (ValueError, ImportError, RuntimeError) as error:
        raise InvalidInputError(f"backend = {backend!r}, jobs = {jobs!r}: {error}") from None


def _make(part: int, work: Work, roots: str | None) -> tuple[int, bytes]:
    """A part, by whoever is asked."""
    with _search_path(roots):
        return part, work.parquet()


@contextmanager
def _search_path(roots: str | None) -> Iterator[None]:
    """The user's folders of data as the caller has them, also in a worker that began earlier."""
    own = os.environ.get(SEARCH_PATH_VARIABLE)
    if own == roots:
        yield
        return
    _set(roots)
    try:
        yield
    finally:
        _set(own)


def _set(roots: str | None) -> None:
    if roots is None:
        os.environ.pop(SEARCH_PATH_VARIABLE, None)
    else:
        os.environ[SEARCH_PATH_VARIABLE] = roots
