"""Makes every page of a vLLM server but /health require the server's API key.

    vllm serve MODEL --runner pooling --middleware pclr_guard.Guard
    POST /classify without "Authorization: Bearer KEY" -> 401

vLLM itself protects only the pages under /v1, /v2, /inference and /cohere (read in 0.32.0), so
anyone who reaches the port could use /classify, or replace the weights by /collective_rpc. This
file runs in vLLM's environment, which has no pcl_reasoner, so it imports only the standard library.
Its folder is in the server's PYTHONPATH.
"""

import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/health",)
"""Pages without a key: whether the server runs."""
_BODY = b'{"error": "Unauthorized"}'


class Guard:
    """ASGI middleware; without VLLM_API_KEY in the environment, it lets every request pass.

    Args:
        app: The application that answers the requests that pass.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        key = os.environ.get("VLLM_API_KEY")
        self._digest = _digest(f"Bearer {key}".encode()) if key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that does not have the key with status 401; pass on all others."""
        if scope["type"] not in ("http", "websocket") or self._may_pass(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _BODY})

    def _may_pass(self, scope: Scope) -> bool:
        if self._digest is None or scope["path"] in OPEN:
            return True
        shown = dict(scope["headers"]).get(b"authorization", b"")
        return secrets.compare_digest(_digest(shown), self._digest)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
