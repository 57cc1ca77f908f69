"""SGLang's ``bench_one_batch`` as a process: one batch after another, without a server.

Its JSON lines are kept as they are; `aisim_v41.io` reads them when they are published.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from collectors.errors import InputError
from collectors.fpm.points import DECODE, DECODE_STEPS, Point

DEFAULT = "python3 -m sglang.bench_one_batch"
TIMEOUT_S = 1800.0


def lines_of(command: str, point: Point, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """JSON lines of one batch.

    Args:
        command: how it is started, with the model and its arguments.
        point: a prefill without a prefix, or a decode.
        timeout_s: for the process.

    Raises:
        InputError: the point needs a cached prefix, or the process gives no line.
    """
    if point.kind != DECODE and point.prefix_tokens:
        raise InputError(f"{point.name}: bench_one_batch has no cached prefixes")
    length = point.prefix_tokens if point.kind == DECODE else point.new_tokens
    steps = DECODE_STEPS if point.kind == DECODE else 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.jsonl"
        sizes = {"--batch-size": point.requests, "--input-len": length, "--output-len": steps}
        asked = [word for name, size in sizes.items() for word in (name, str(size))]
        words = [*shlex.split(command), *asked, "--result-filename", str(file)]
        try:
            done = subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{words[0]}: cannot be run ({type(error).__name__})") from None
        if not file.exists():
            said = done.stderr.decode(errors="replace").strip().split("\n")[-1][:200]
            raise InputError(f"{words[0]}: exit code {done.returncode}, no result ({said})")
        found = []
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                found.append(message)
    return found
