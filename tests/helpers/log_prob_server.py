"""A real HTTP server that answers /v1/completions with the log-probs of a prompt's tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Entries = list[dict[str, dict[str, Any]] | None]
"""Like vLLM's ``prompt_logprobs``: null for the first token, then {token id: {logprob, …}}."""


def log_prob(token: int, place: int) -> float:
    """The log-prob of a token: −0.1, −0.2 … −0.7, and 0.25 less at odd places."""
    return -(token % 7 + 1) / 10 - 0.25 * (place % 2)


def entries_of(prompt: list[int]) -> Entries:
    """What a server that is well answers."""
    found: Entries = [None]
    for place, token in enumerate(prompt[1:], 1):
        found.append({str(token): {"logprob": log_prob(token, place), "rank": 1}})
    return found


def answer_with(entries: Any) -> dict[str, Any]:
    return {
        "object": "text_completion",
        "choices": [{"index": 0, "text": "x", "prompt_logprobs": entries, "logprobs": None}],
    }


class LogProbServer(ThreadingHTTPServer):
    """Answers well, unless ``reply`` says otherwise.

    ``reply(body, number) -> (status, JSON value or text)``, None to answer well; ``number`` counts
    requests from 1.
    """

    daemon_threads = True

    def __init__(self, reply: Callable[[dict[str, Any], int], Any] = lambda *_: None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.lock = reply, threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.seconds = 0.0
        """How long an answer takes."""
        self.models = [{"id": "policy", "max_model_len": 200}]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def prompts(self) -> list[list[int]]:
        return [body["prompt"] for body in self.asked]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections of a killed process are no news."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: LogProbServer

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.send(200, {"data": self.server.models})
        else:
            self.send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/completions":
            self.send(404, {"detail": "Not Found"})
            return
        with self.server.lock:
            self.server.asked.append(body)
            number = len(self.server.asked)
        time.sleep(self.server.seconds)
        self.send(
            *(self.server.reply(body, number) or (200, answer_with(entries_of(body["prompt"]))))
        )

    def send(self, status: int, value: Any) -> None:
        data = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""
