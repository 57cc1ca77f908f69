"""A live engine over HTTP, as SGLang and vLLM speak: facts, tokens, streams, cache.

Nothing but the standard library; one connection a request, since streams of a batch run at once.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from collectors.errors import InputError, UnavailableError

MAX_ANSWER_BYTES = 1 << 26
FACTS = (
    "version", "tp_size", "dp_size", "ep_size", "pp_size", "chunked_prefill_size",
    "max_prefill_tokens", "max_num_batched_tokens", "max_running_requests", "max_num_seqs",
    "page_size", "block_size", "kv_cache_dtype", "quantization", "attention_backend",
    "moe_runner_backend", "disable_cuda_graph", "enforce_eager", "disable_radix_cache",
    "enable_prefix_caching", "speculative_algorithm", "disable_overlap_schedule", "dtype",
    "mem_fraction_static", "gpu_memory_utilization", "enable_cache_report",
)  # fmt: skip
"""What an engine says of itself that may change a time; nothing of paths, hosts or keys."""
CHUNK_FACTS = ("chunked_prefill_size", "max_num_batched_tokens", "max_prefill_tokens")


@dataclass
class Stream:
    """What came back of one request.

    Attributes:
        sent_s, arrivals_s: moments of the host's clock [s]; one arrival a token.
        prompt_tokens, cached_tokens, completion_tokens: as the engine counts; None: not told.
        error: why it failed; empty if it did not.
    """

    sent_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    error: str = ""


class Engine:
    """A server at an address such as ``http://127.0.0.1:30000``.

    Args:
        address: of the server, without a path.
        timeout_s: for each answer, and between two pieces of a stream.

    Raises:
        InputError: not such an address.
    """

    def __init__(self, address: str, timeout_s: float = 120.0) -> None:
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError as bad:
            raise InputError(f"--url {address!r:.80}: {bad}") from None
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
            raise InputError(f"--url {address!r:.80}: must be like http://127.0.0.1:30000")
        self._host, self._port, self._timeout_s = parts.hostname, port or 80, timeout_s
        self.model = ""

    def connect(self) -> dict[str, Any]:
        """Facts of the server; remembers the name of its model.

        Raises:
            UnavailableError: nothing answers, or it serves no model.
        """
        models = self._json("GET", "/v1/models")
        entries = models.get("data") if isinstance(models, dict) else None
        if not isinstance(entries, list) or not entries or "id" not in entries[0]:
            raise UnavailableError(f"{self._where}: /v1/models names no model")
        self.model = str(entries[0]["id"])
        said: dict[str, Any] = {"model": self.model.rstrip("/").rpartition("/")[2]}
        for path in ("/get_server_info", "/server_info", "/version"):
            try:
                answer = self._json("GET", path)
            except UnavailableError:
                continue
            if isinstance(answer, dict):
                said |= {n: answer[n] for n in FACTS if _is_plain(answer.get(n))}
                inner = answer.get("server_args")
                if isinstance(inner, dict):
                    said |= {
                        n: inner[n] for n in FACTS if n not in said and _is_plain(inner.get(n))
                    }
        return said

    def tokens_of(self, text: str) -> list[int]:
        """Token ids of a text.

        Raises:
            UnavailableError: the server does not tokenise.
        """
        answer = self._json("POST", "/tokenize", {"model": self.model, "prompt": text})
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list) or not all(type(one) is int for one in tokens):
            raise UnavailableError(f"{self._where}: /tokenize gives no tokens; use --tokens FILE")
        return tokens

    def forget(self) -> bool:
        """Empty the prefix cache; whether the server can."""
        for path in ("/flush_cache", "/reset_prefix_cache"):
            try:
                self._answer("POST", path, None)
            except UnavailableError:
                continue
            return True
        return False

    def complete(self, tokens: Sequence[int], new_tokens: int) -> Stream:
        """Send a prompt and follow its stream; every failure is told in the answer."""
        found = Stream()
        body = {
            "model": self.model, "prompt": list(tokens), "max_tokens": new_tokens,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            found.sent_s = time.perf_counter()
            connection.request("POST", "/v1/completions", json.dumps(body), _JSON)
            answer = connection.getresponse()
            if answer.status != 200:
                found.error = f"status {answer.status}: {answer.read(200).decode(errors='replace')}"
                return found
            for message in _events(answer):
                _take(message, found)
        except (OSError, http.client.HTTPException, ValueError) as error:
            found.error = f"{type(error).__name__}: {error}"[:200]
        finally:
            connection.close()
        if not found.error and not found.arrivals_s:
            found.error = "the stream held no token"
        return found

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        raw = self._answer(method, path, body)
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as bad:
            raise UnavailableError(f"{self._where}{path}: not JSON ({bad})") from None

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), _JSON)
            answer = connection.getresponse()
            raw = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{self._where}{path}: no answer ({error})") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise UnavailableError(f"{self._where}{path}: status {answer.status}")
        return raw

    @property
    def _where(self) -> str:
        return f"port {self._port}"


_JSON = {"Content-Type": "application/json"}


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Messages of a stream of server-sent events.

    Raises:
        ValueError: a message is not JSON, or the stream is cut.
    """
    ended = False
    while True:
        line = answer.readline(MAX_ANSWER_BYTES)
        if not line:
            break
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            ended = True
            break
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("a message that is no object")
        yield message
    if not ended:
        raise ValueError("the stream ended without [DONE]")


def _take(message: Mapping[str, Any], found: Stream) -> None:
    """What a message says: a token, or how many there were."""
    choices = message.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and (first.get("text") or first.get("token_ids")):
        found.arrivals_s.append(time.perf_counter())
    usage = message.get("usage")
    if isinstance(usage, dict):
        found.prompt_tokens = _count(usage.get("prompt_tokens"), found.prompt_tokens)
        found.completion_tokens = _count(usage.get("completion_tokens"), found.completion_tokens)
        details = usage.get("prompt_tokens_details")
        told = details.get("cached_tokens") if isinstance(details, dict) else None
        found.cached_tokens = _count(told, found.cached_tokens)


def _count(value: Any, otherwise: int | None) -> int | None:
    return value if type(value) is int and value >= 0 else otherwise


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 80 and "/" not in value
    return isinstance(value, (int, float, bool))
