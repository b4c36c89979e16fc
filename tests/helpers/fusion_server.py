"""A service that speaks SandboxFusion's protocol and runs what it gets in a bare process."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox_helpers import PYTHON


class FusionServer:
    """``POST /run_code``; ``failing`` answers go first."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.failing: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                data = (
                    outer.failing.pop(0) if outer.failing else json.dumps(outer.run(body)).encode()
                )
                self.send_response(200)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def run(self, body: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, data in body.get("files", {}).items():
                (folder / file).write_bytes(base64.b64decode(data))
            words = [PYTHON, "-I", "-S", "main.py"]
            (folder / "main.py").write_text(body["code"])
            if body["language"] == "cpp":
                (folder / "main.cpp").write_text(body["code"])
                built = subprocess.run(
                    ["g++", "-o", "main", "main.cpp"], cwd=folder, capture_output=True, text=True
                )
                if built.returncode:
                    return self.answer("Failed", compiled={"stderr": built.stderr})
                words = ["./main"]
            return self.finish(words, folder, body)

    def finish(self, words: list[str], folder: Path, body: dict[str, Any]) -> dict[str, Any]:
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                input=body["stdin"],
                capture_output=True,
                text=True,
                timeout=body["run_timeout"],
            )
        except subprocess.TimeoutExpired:
            return self.answer("Failed", {"status": "TimeLimitExceeded", "execution_time": 1.0})
        run = {"status": "Finished", "return_code": done.returncode, "execution_time": 0.1}
        run |= {"stdout": done.stdout, "stderr": done.stderr}
        return self.answer("Success" if done.returncode == 0 else "Failed", run)

    @staticmethod
    def answer(status: str, run: Any = None, compiled: Any = None) -> dict[str, Any]:
        return {"status": status, "message": "", "compile_result": compiled, "run_result": run}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
