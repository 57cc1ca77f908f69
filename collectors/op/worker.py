"""The process that runs cases, one a rank: it may crash or hang, and the run goes on.

Requests come as JSON lines on the standard input, replies go as JSON lines to a descriptor of their
own, since kernels and compilers print.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from hashlib import sha256
from typing import IO, Any

import torch

from collectors.case import Case
from collectors.errors import InputError, UnavailableError
from collectors.machine import identity
from collectors.op.engines.found import implementations
from collectors.op.kind import Implementation, Kind
from collectors.op.kinds.registry import kind_of
from collectors.op.prepared import Prepared
from collectors.op.results import FAILED, INVALID, OK, OOM, UNSUPPORTED, Result
from collectors.timing.answer import difference
from collectors.timing.measure import measure
from collectors.timing.ranks import Ranks
from collectors.timing.record import TimingOptions

SEED_DIGITS = 8


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the input ends."""
    _end_with_the_run()
    device_name, reply_to = arguments if arguments is not None else sys.argv[1:]
    replies = os.fdopen(int(reply_to), "w", encoding="utf-8")
    ranks = Ranks.of_environment(device_name)
    _say(replies, {"ready": True, "machine": identity(ranks.device)})
    for line in sys.stdin:
        request = json.loads(line)
        _say(replies, run_case(request, ranks).to_dict())
    ranks.close()
    return 0


def _end_with_the_run() -> None:
    """Have the kernel kill this process when the run dies, also while a case hangs (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


_PR_SET_PDEATHSIG = 1
"""linux/prctl.h."""


def run_case(request: dict[str, Any], ranks: Ranks) -> Result:
    """Set a case up, check its answer, time it; every error becomes a status."""
    case = Case.from_text(request["case"])
    seconds: dict[str, float] = {}
    try:
        kind = kind_of(case)
        case = kind.complete(case)
        options = TimingOptions.from_dict(request["timing"])
        return _timed(kind, case, options, ranks, seconds, request.get("engine", ""))
    except UnavailableError as error:
        return _failure(case, UNSUPPORTED, error, seconds)
    except (torch.OutOfMemoryError, MemoryError) as error:
        _forget(ranks.device)
        return _failure(case, OOM, error, seconds)
    except (NotImplementedError, InputError) as error:
        return _failure(case, UNSUPPORTED, error, seconds)
    except Exception as error:  # whatever a kernel raises must not end the run
        status = OOM if "out of memory" in str(error).lower() else FAILED
        _forget(ranks.device)
        return _failure(case, status, error, seconds)


def _timed(
    kind: Kind,
    case: Case,
    options: TimingOptions,
    ranks: Ranks,
    seconds: dict[str, float],
    engine: str,
) -> Result:
    began = time.perf_counter()
    chosen, prepared = _set_up(kind, case, ranks.device, engine)
    generator = torch.Generator(device=ranks.device).manual_seed(_seed(case, ranks.rank))
    first = () if prepared.samples is not None else prepared.make(generator)
    seconds["build"] = _since(began)
    named = {
        "engine": chosen.engine,
        "kernel_source": prepared.kernel_source or chosen.kernel_source,
        "engine_version": prepared.engine_version,
        "outcome": dict(prepared.outcome),
    }
    apart = None
    if prepared.samples is None:
        began = time.perf_counter()
        answer = difference(prepared, first)
        seconds["check"] = _since(began)
        if ranks.any(bool(answer.wrong)):
            return Result(case, INVALID, **named, seconds=seconds,
                          error=answer.wrong or "the answer of another rank is wrong")  # fmt: skip
        apart = answer.difference
    began = time.perf_counter()
    timing = measure(
        prepared, ranks.device, options, input_bytes=kind.input_bytes(case), generator=generator,
        first=first, slowest=ranks.slowest, ranks=ranks.size,
    )  # fmt: skip
    seconds["time"] = _since(began)
    return Result(case, OK, **named, timing=timing.to_dict(), difference=apart, seconds=seconds)


def _set_up(
    kind: Kind, case: Case, device: torch.device, engine: str
) -> tuple[Implementation, Prepared]:
    """The first implementation that can run a case here: of the engine asked for, or of any.

    Raises:
        UnavailableError: there is none; says why for each.
    """
    reasons = []
    for one in implementations(kind):
        if engine and one.engine != engine:
            continue
        if not one.can_run(case):
            reasons.append(f"{one.engine} {one.kernel_source}: not for {dict(case.options)}")
            continue
        try:
            return one, one.load()(case, device)
        except UnavailableError as error:
            reasons.append(f"{one.engine} {one.kernel_source}: {error}")
    raise UnavailableError("; ".join(reasons) or f"no kernel of {engine or 'any engine'}")


def _failure(case: Case, status: str, error: BaseException, seconds: dict[str, float]) -> Result:
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Result(case, status, seconds=seconds, error=said)


def _forget(device: torch.device) -> None:
    """Give memory back to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _seed(case: Case, rank: int) -> int:
    """The same inputs whenever a case is run; others on every rank."""
    return int(sha256(f"{case.text} {rank}".encode()).hexdigest()[:SEED_DIGITS], 16)


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)


def _say(stream: IO[str], message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
