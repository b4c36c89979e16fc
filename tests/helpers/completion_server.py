"""A real OpenAI-compatible HTTP server whose answers and failures a test scripts.

A response to a problem at seed s is ``<think>s</think><answer>\\boxed{8}</answer>``, so that a test
sees which seed each response was drawn with, and that n responses are n seeds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Failure = Callable[[BaseHTTPRequestHandler, dict[str, Any]], bool]


class CompletionServer(ThreadingHTTPServer):
    """Args: failures: problem text in the request -> how its first requests fail, in order."""

    daemon_threads = True

    def __init__(
        self,
        failures: dict[str, list[Failure]] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        **choices: Any,
    ) -> None:
        super().__init__((host, port), _Handler)
        self.failures = failures or {}
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.tokenize: Callable[[list[dict[str, str]]], list[int]] | None = None
        self.pages: dict[str, Callable[[], Any]] = {}
        """Further pages to get, ``/metrics`` and ``/version``: text, or a JSON value."""
        self.models: list[dict[str, Any]] = [{"id": "policy", "max_model_len": 200}]
        self.encode: Callable[[str], list[int]] | None = None
        self.key: str | None = None
        """What whoever asks under /v1 must show, as with vLLM."""
        self.guarded = False
        """True if every page but /health needs the key."""
        self.closed: tuple[str, ...] = ()
        """Pages that it refuses to everyone."""
        self.shown: set[str | None] = set()
        """What was shown, of all requests."""
        self.text = "<think>{seed}</think><answer>\\boxed{{8}}</answer>"
        self.answers = choices
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that a test drops are no news."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def get(self, handler: BaseHTTPRequestHandler) -> bool:
        """Answer a page that is got; False if it is one of those that every server has."""
        return False

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        """Answer a page that something is posted to; False if it is a chat completion."""
        return False

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for index in range(body["n"]):
            text = self.text.format(seed=body["seed"] + index)
            choice = {
                "index": index,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
            if self.encode is not None:
                choice["token_ids"] = [*self.encode(text), 2]
            choices.append({**choice, **self.answers})
        return {"choices": choices[::-1]}


class _Handler(BaseHTTPRequestHandler):
    server: CompletionServer

    def refused(self) -> bool:
        shown = self.headers["authorization"]
        self.server.shown.add(shown)
        if self.path in self.server.closed:
            send(self, 403, {"message": "Forbidden"})
            return True
        wanted = self.server.key
        guarded = self.server.guarded and self.path != "/health"
        open_page = not guarded and not self.path.startswith("/v1")
        if not wanted or open_page or shown == f"Bearer {wanted}":
            return False
        send(self, 401, {"error": "Unauthorized"})
        return True

    def do_GET(self) -> None:
        if self.refused() or self.server.get(self):
            return
        if self.path == "/v1/models":
            send(self, 200, {"data": self.server.models})
        elif self.path in self.server.pages:
            send(self, 200, self.server.pages[self.path]())
        else:
            send(self, 404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
        if self.refused() or self.server.post(self, body):
            return
        if self.path == "/tokenize":
            if self.server.tokenize is None:
                send(self, 404, {"detail": "Not Found"})
            else:
                send(self, 200, {"tokens": self.server.tokenize(body["messages"])})
            return
        # A request for a prompt's log-probs has token ids and no messages.
        problem = body["messages"][-1]["content"] if "messages" in body else ""
        with self.server.lock:
            self.server.asked.append(body)
            scripted = self.server.failures.get(problem) or []
            failure = scripted.pop(0) if scripted else None
        if failure is None or not failure(self, body):
            send(self, 200, self.server.completion(body))

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


def send(
    handler: BaseHTTPRequestHandler, status: int, value: Any, headers: dict[str, str] | None = None
) -> None:
    data = (value if isinstance(value, str) else json.dumps(value)).encode()
    handler.send_response(status)
    for name, text in {"content-length": str(len(data)), **(headers or {})}.items():
        handler.send_header(name, text)
    handler.end_headers()
    handler.wfile.write(data)


def status(code: int, headers: dict[str, str] | None = None) -> Failure:
    """Answer with a status."""

    def fail(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        send(handler, code, {"error": {"message": f"no {code}", "param": "input_tokens"}}, headers)
        return True

    return fail


VLLM_ERRORS: dict[int, dict[str, Any]] = {
    400: {
        "message": "This model's maximum context length is 200 tokens. However, your request has "
        "231 input tokens. Please reduce the length of the input messages.",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    },
    404: {
        "message": "The model `other` does not exist.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    },
    500: {
        "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    },
}
"""What vLLM 0.32 says."""


def vllm_error(code: int) -> Failure:
    """Answer with a status and vLLM's own body."""

    def fail(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        send(handler, code, {"error": VLLM_ERRORS[code]})
        return True

    return fail


def cut_off(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """Close the connection in the middle of an answer."""
    data = b'{"choices": [{"index": 0, "message": {"content": "<think>1'
    handler.send_response(200)
    handler.send_header("content-length", "4096")
    handler.end_headers()
    handler.wfile.write(data)
    handler.wfile.flush()
    handler.connection.close()
    return True


def wait(seconds: float) -> Failure:
    """Be so long about it; then answer."""

    def fail(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        time.sleep(seconds)
        return False

    return fail


def drop(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """Close the connection without an answer."""
    handler.connection.close()
    return True
