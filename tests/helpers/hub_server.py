"""A hub with one data set, as huggingface_hub asks it: what there is, and file by file."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """A server of one repository.

    Args:
        repository: ``owner/name``.
        revision: Its only one.
        files: Path in it -> content.
        sha256: Path -> what the hub says of a large file.
    """

    daemon_threads = True

    def __init__(
        self,
        repository: str,
        revision: str,
        files: dict[str, bytes],
        sha256: dict[str, str] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repository, self.revision, self.files = repository, revision, files
        self.sha256 = sha256 or {}
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        hub = self.server
        hub.asked.append(f"{self.command} {self.path}")
        files = f"/datasets/{hub.repository}/resolve/{COMMIT}/"
        if self.path.split("?")[0] == f"/api/datasets/{hub.repository}/revision/{hub.revision}":
            siblings = [self._sibling(name, content) for name, content in hub.files.items()]
            told = {"id": hub.repository, "sha": COMMIT, "siblings": siblings, "tags": []}
            self._send(200, json.dumps({**told, "private": False}).encode(), body)
        elif self.path.startswith(files) and self.path.removeprefix(files) in hub.files:
            self._send(200, hub.files[self.path.removeprefix(files)], body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RevisionNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        sha256 = self.server.sha256.get(name)
        lfs = {"size": len(content), "sha256": sha256, "pointerSize": 130}
        return {"rfilename": name, "size": len(content), **({"lfs": lfs} if sha256 else {})}

    def _send(self, status: int, data: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Nothing is printed."""
