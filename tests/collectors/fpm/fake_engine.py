"""A server that speaks as SGLang and vLLM do, with a known time of every forward.

A prefill takes `PREFILL_S` and `TOKEN_S` a computed token; a decode step `STEP_S` and `STREAM_S` a
stream. Prefixes that were sent are cached, to the token.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PREFILL_S, TOKEN_S, STEP_S, STREAM_S = 0.016, 2e-6, 0.004, 0.0005


class FakeEngine(ThreadingHTTPServer):
    """Serves on a free port until it is closed.

    Args:
        events: file that gets a message an iteration, as a listener would write it.
        mode: ``ok``, or how it fails: ``status``, ``cut``, ``garbage``, ``hang``, ``no_cache``.
        facts: what /get_server_info says beside the usual.
    """

    daemon_threads = True

    def __init__(self, events: Path | None = None, mode: str = "ok", **facts: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode, self.events = mode, events
        self.facts = {"version": "0.6.0", "tp_size": 4, "chunked_prefill_size": 8192, **facts}
        self.cached: list[list[int]] = []
        self.prefilling, self.ticked = threading.Lock(), threading.Condition()
        self.streams: dict[int, int] = {}
        self.counter, self.open = 0, True
        for target in (self.serve_forever, self._tick):
            threading.Thread(target=target, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.open = False
        self.shutdown()
        self.server_close()

    def hit(self, tokens: list[int]) -> int:
        """Tokens at the start that were sent before; at least one is left to compute."""
        best = 0
        for known in self.cached:
            same = 0
            while same < min(len(known), len(tokens)) and known[same] == tokens[same]:
                same += 1
            best = max(best, same)
        self.cached.append(list(tokens))
        return min(best, len(tokens) - 1)

    def tell(self, seconds: float, **scheduled: Any) -> None:
        """Write a message of Dynamo's schema."""
        if self.events is None:
            return
        self.counter += 1
        usual = {"num_prefill_requests": 0, "sum_prefill_tokens": 0, "var_prefill_length": 0.0,
                 "sum_prefill_kv_tokens": 0, "num_decode_requests": 0, "sum_decode_kv_tokens": 0,
                 "var_decode_kv_tokens": 0.0}  # fmt: skip
        message = {"version": 1, "worker_id": "w0", "dp_rank": 0, "counter_id": self.counter,
                   "wall_time": seconds, "scheduled_requests": {**usual, **scheduled},
                   "queued_requests": {}}  # fmt: skip
        with self.events.open("a") as stream:
            stream.write(json.dumps(message) + "\n")

    def _tick(self) -> None:
        while self.open:
            pasts = list(self.streams.values())
            seconds = STEP_S + STREAM_S * len(pasts)
            time.sleep(seconds if pasts else 0.001)
            if pasts:
                mean = sum(pasts) / len(pasts)
                spread = sum((past - mean) ** 2 for past in pasts) / len(pasts)
                self.tell(seconds, num_decode_requests=len(pasts), sum_decode_kv_tokens=sum(pasts),
                          var_decode_kv_tokens=spread)  # fmt: skip
                for name in list(self.streams):
                    self.streams[name] += 1
                with self.ticked:
                    self.ticked.notify_all()


class _Handler(BaseHTTPRequestHandler):
    server: FakeEngine
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        answers = {
            "/v1/models": {"data": [{"id": "deepseek-ai/DeepSeek-V4.1-Flash"}]},
            "/get_server_info": {**self.server.facts, "model_path": "/private/place",
                                 "server_args": {"page_size": 64}},
        }  # fmt: skip
        self._answer(answers.get(self.path))

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(size)
        body = json.loads(raw) if raw else {}
        if self.path == "/tokenize":
            self._answer({"tokens": [ord(letter) for letter in body["prompt"]]})
        elif self.path == "/flush_cache":
            self.server.cached.clear()
            self._answer({})
        elif self.path == "/v1/completions":
            self._complete(body)
        else:
            self._answer(None)

    def _answer(self, answer: Any) -> None:
        raw = json.dumps(answer).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _complete(self, body: dict[str, Any]) -> None:
        engine = self.server
        if engine.mode == "status":
            self.send_response(500)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"oops")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        tokens, wanted = body["prompt"], body["max_tokens"]
        with engine.prefilling:
            hit = engine.hit(tokens)
            seconds = PREFILL_S + TOKEN_S * (len(tokens) - hit)
            time.sleep(seconds)
            engine.tell(seconds, num_prefill_requests=1, sum_prefill_tokens=len(tokens) - hit,
                        sum_prefill_kv_tokens=hit)  # fmt: skip
        self._event({"choices": [{"text": "a"}]})
        if engine.mode == "cut":
            return
        if engine.mode == "garbage":
            self.wfile.write(b"data: {not json\n\n")
            return
        if engine.mode == "hang":
            time.sleep(3.0)
        name = id(self)
        engine.streams[name] = len(tokens)
        for _ in range(wanted - 1):
            with engine.ticked:
                engine.ticked.wait(1.0)
            self._event({"choices": [{"text": "b"}]})
        engine.streams.pop(name, None)
        details = {} if engine.mode == "no_cache" else {
            "prompt_tokens_details": {"cached_tokens": hit}}  # fmt: skip
        usage = {"prompt_tokens": len(tokens), "completion_tokens": wanted, **details}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, message: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()
