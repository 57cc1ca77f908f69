"""Processes that run cases, seen from the run: started, asked, watched, killed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from collectors.errors import UnavailableError

START_S = 300.0
"""How long processes may take to come up: imports, drivers, joining each other [s]."""
_ROOT = Path(__file__).resolve().parents[2]


class WorkerDiedError(Exception):
    """A process ended, or did not answer in time.

    Attributes:
        timed_out: it did not answer in time.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Workers:
    """As many processes as a case has ranks; they answer as one.

    Args:
        ranks: processes.
        device: ``cpu`` or ``cuda``.
        command: of one process, in front of its arguments; tests give their own.

    Attributes:
        machine: what rank 0 says it runs on.
    """

    def __init__(self, ranks: int, device: str, command: Sequence[str] = ()) -> None:
        self.ranks, self.device = ranks, device
        self._command = list(command) or [sys.executable, "-m", "collectors.op.worker"]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._replies: list[int] = []
        self._pending: dict[int, bytes] = {}
        self.machine: dict[str, Any] = {}

    def start(self) -> None:
        """Start every process and wait until all are ready.

        Raises:
            UnavailableError: one does not come up.
        """
        port = _free_port()
        for rank in range(self.ranks):
            read, write = os.pipe()
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            self._processes.append(
                subprocess.Popen(
                    [*self._command, self.device, str(write)], stdin=subprocess.PIPE,
                    stdout=sys.stderr.fileno(), env=environment, pass_fds=[write],
                    start_new_session=True,  # a signal to the run is the run's to handle
                )
            )  # fmt: skip
            os.close(write)
            self._replies.append(read)
        try:
            ready = self._answers(START_S)
        except WorkerDiedError as died:
            self.kill()
            raise UnavailableError(f"no process for {self.device} comes up: {died}") from None
        self.machine = dict(ready[0]["machine"])

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer of rank 0 to a request that every rank gets.

        Raises:
            WorkerDiedError: a process ended, or one did not answer in time; all are killed.
        """
        line = json.dumps(request).encode() + b"\n"
        try:
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
            return self._answers(timeout_s)[0]
        except BrokenPipeError:
            said = self._ends()
            self.kill()
            raise WorkerDiedError(said) from None
        except WorkerDiedError:
            self.kill()
            raise

    def interrupt(self) -> None:
        """End every process now; who waits for an answer hears of it as of a crash."""
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End every process, whatever it does."""
        self.interrupt()
        for process in self._processes:
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for reply in self._replies:
            os.close(reply)
        self._processes, self._replies, self._pending = [], [], {}

    def _answers(self, timeout_s: float) -> list[dict[str, Any]]:
        """One answer of every rank."""
        until = time.monotonic() + timeout_s
        found: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for reply in self._replies:
                selector.register(reply, selectors.EVENT_READ)
            while len(found) < self.ranks:
                left = until - time.monotonic()
                events = selector.select(max(left, 0.0))
                if not events and left <= 0:
                    raise WorkerDiedError(f"no answer within {timeout_s:.0f} s", timed_out=True)
                for key, _ in events:
                    answer = self._read(key.fd)
                    if answer is not None:
                        found[key.fd] = answer
        return [found[reply] for reply in self._replies]

    def _read(self, reply: int) -> dict[str, Any] | None:
        """The next line of a rank, once it is whole."""
        raw = os.read(reply, 1 << 16)
        if not raw:
            raise WorkerDiedError(self._ends())
        whole, newline, rest = (self._pending.get(reply, b"") + raw).partition(b"\n")
        self._pending[reply] = rest if newline else whole
        return json.loads(whole) if newline else None

    def _ends(self) -> str:
        """How processes ended."""
        said = []
        for rank, process in enumerate(self._processes):
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=5.0)
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                said.append(f"rank {rank} ended with {name}" if self.ranks > 1 else
                            f"the process ended with {name}")  # fmt: skip
        return "; ".join(said) or "a process closed its answers"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
