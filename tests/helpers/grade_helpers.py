"""Responses, problems and a judge's server for the tests of this room."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Answer = Callable[[dict[str, Any], int], tuple[int, Any]]

RESPONSES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("response", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("n_tokens", pa.int32()),
        ("seed", pa.int64()),
        ("seconds", pa.float32()),
        ("server", pa.string()),
    ]
)


def correct(answer: str) -> str:
    return f"<think>so</think><answer>\\boxed{{{answer}}}</answer>"


def write_responses(folder: Path, rows: list[tuple[str, int, str, str, int]]) -> Path:
    """Rows of (problem_id, sample_index, response, finish_reason, n_tokens), in two files."""
    (folder / "responses").mkdir(parents=True)
    records = [
        {
            "problem_id": problem,
            "sample_index": index,
            "response": response,
            "token_ids": list(range(length)),
            "finish_reason": reason,
            "n_tokens": length,
            "seed": 1,
            "seconds": 0.5,
            "server": "local",
        }
        for problem, index, response, reason, length in rows
    ]
    half = len(records) // 2
    for number, part in enumerate((records[:half], records[half:])):
        table = pa.Table.from_pylist(part, schema=RESPONSES)
        pq.write_table(table, folder / "responses" / f"part-{number:05d}.parquet")
    return folder


def write_problems(folder: Path, truths: dict[str, str | None]) -> Path:
    folder.mkdir(parents=True)
    columns = {
        "problem_id": list(truths),
        "problem": [f"Problem {name}" for name in truths],
        "ground_truth": pa.array(list(truths.values()), pa.string()),
    }
    pq.write_table(pa.table(columns), folder / "clean.parquet")
    return folder


@contextmanager
def judge_server(
    answer: Answer, *models: str, root: str | None = None
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A real HTTP server: ``answer(body, number) -> (status, content or whole reply)``.

    Args:
        answer: What it says.
        models: Those that it offers; none: it does not say.
        root: The folder that it says they are from.

    Yields:
        Its URL and the list of the requests' bodies.
    """
    bodies: list[dict[str, Any]] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                bodies.append({**body, "path": self.path})
                number = len(bodies)
            status, content = answer(body, number)
            reply: Any = content
            if isinstance(content, str | None):
                reply = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            data = json.dumps({"data": [{"id": name, "root": root} for name in models]}).encode()
            self.send_response(200 if models and self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
