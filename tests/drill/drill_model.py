"""A server of the policy and of the judge, whose answers depend on the request only."""

from __future__ import annotations

import random
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from completion_server import CompletionServer, Failure

SHARE = 0.2
"""Share of the requests that are answered oddly."""


class Model(CompletionServer):
    """The server; as a context manager it gives its URL and is stopped.

    Args:
        odd: The odd answer; None: every answer is good.
        rng: Chooses the requests that get it.
        share: Share of the requests that get it.
    """

    def __init__(
        self, odd: Failure | None = None, rng: random.Random | None = None, share: float = SHARE
    ) -> None:
        self.odd, self.rng, self.share = odd, rng or random.Random(0), share
        self.odd_ones = 0
        self.choosing = threading.Lock()
        super().__init__()
        self.models = [{"id": name, "max_model_len": 2048} for name in ("policy", "judge")]

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *error: object) -> None:
        self.stop()

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        """Give the odd answer to some requests."""
        if self.odd is None or not handler.path.endswith("/chat/completions"):
            return False
        with self.choosing:
            chosen = self.rng.random() < self.share
            self.odd_ones += chosen
        return chosen and self.odd(handler, body)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """The judge finds every response correct; the policy says its seed."""
        is_judge = body["model"] == "judge"
        text = "\\boxed{{1}}" if is_judge else "<think>{seed}</think>\\boxed{{8}}"
        choices = [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": text.format(seed=body.get("seed", 0) + index),
                },
                "finish_reason": "stop",
            }
            for index in range(body.get("n", 1))
        ]
        return {"choices": choices}
