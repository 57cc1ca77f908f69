"""A process that answers as a worker does, without torch: what it does is in the case.

``python fakes.py cpu FD`` serves; ``act=`` says what happens: ok, crash, hang, garbage, error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from collectors.case import Case
from collectors.op.results import Result
from collectors.plan_file import PlanFile, PlannedCase

COMMAND = (sys.executable, str(Path(__file__)))
MACHINE = {
    "gpu": "h200", "device": {"name": "fake", "count": 1}, "driver": "1", "cuda": "13.0",
    "packages": {"torch": "2.13.0"}, "python": "3.11", "platform": "linux", "image": "sha256:0",
}  # fmt: skip


def timing(us: float, **changed: Any) -> dict[str, Any]:
    return {
        "timer": "graph", "execution": "graph", "cache_state": "cold", "median_us": us,
        "p10_us": us * 0.99, "p90_us": us * 1.01, "min_us": us * 0.98, "samples": 30,
        "calls_per_sample": 1, "copies": 1, "flushed": False, "resolution_us": 0.01,
        "empty_us": 0.5, "spread": 0.02, "reran": False, "noisy": False, "ranks": 1,
        "device": {}, **changed,
    }  # fmt: skip


def planned(text: str, minutes: float = 0.001) -> PlannedCase:
    return PlannedCase(Case.from_text(text), minutes, 1e6, 0.001, 0.0, "line")


def plan_of(*texts: str, **header: Any) -> PlanFile:
    return PlanFile({"model": "deepseek-v4.1-flash", "gpu": "h200", **header},
                    [planned(text) for text in texts])  # fmt: skip


def main() -> None:
    replies = os.fdopen(int(sys.argv[2]), "w")
    if os.environ.get("FAKE_START") == "dies":
        sys.exit(3)
    print(json.dumps({"ready": True, "machine": MACHINE}), file=replies, flush=True)
    for line in sys.stdin:
        case = Case.from_text(json.loads(line)["case"])
        act = case.options.get("act", "ok")
        sys.stdout.write("a kernel prints this\n")
        if act == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "exit":
            sys.exit(7)
        if act == "hang":
            time.sleep(3600)
        if act == "slow":
            time.sleep(0.2)
        if act in ("oom", "unsupported", "failed", "invalid"):
            result = Result(case, act, error="as asked")
        else:
            us = float(case.sizes.get("rows", 1)) + 10.0
            result = Result(case, "ok", engine="sglang", kernel_source="fake",
                            engine_version="1.0", timing=timing(us), difference=0.0)  # fmt: skip
        text = json.dumps(result.to_dict())
        replies.write(text[:20])
        replies.flush()  # an answer may come in parts
        print(text[20:], file=replies, flush=True)


if __name__ == "__main__":
    main()
