"""A keeper's task comes by standard input: no command line shows a secret."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

ECHO = ["bash", "-c", "echo value=${SECRET-none}"]


def keep(said: bytes, held: bool = True, limit: float = 60.0) -> tuple[int, bytes]:
    """Exit code and output of a keeper; the pipe is held open to the end, or closed at once."""
    code = f"from pcl_reasoner.supervise import keeper; keeper.TASK_SECONDS = {limit}; "
    with subprocess.Popen(
        [sys.executable, "-c", code + "raise SystemExit(keeper.main())"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(said)
        process.stdin.flush()
        if not held:
            process.stdin.close()
        return process.wait(30), process.stdout.read()


def task(**fields: Any) -> bytes:
    return json.dumps({"run": "test", **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        ({"SECRET": "s3 cret"}, b"value=s3 cret\n"),
        ({"SECRET": ""}, b"value=\n"),
        ({}, b"value=none\n"),
    ],
)
def test_the_task_holds_the_environment(environment: dict[str, str], printed: bytes) -> None:
    assert keep(task(command=ECHO, environment=environment) + b"...") == (0, printed)


@pytest.mark.parametrize(("line", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_commands(line: str, code: int) -> None:
    assert keep(task(command=["bash", "-c", line])) == (code, b"")


@pytest.mark.parametrize("said", [b"", task(command=ECHO)[:20]])
def test_nothing_is_started_when_the_starter_is_gone_before(said: bytes) -> None:
    assert keep(said, held=False) == (1, b"")


def test_nothing_is_started_when_the_link_is_cut_before() -> None:
    """The pipe stays open, and nothing more comes."""
    assert keep(task(command=ECHO)[:20], limit=0.3) == (1, b"")
