"""Sandboxes on other machines: the protocol of SandboxFusion, one request per test.

    POST {url}/run_code  {"code": "print(int(input()) * 2)", "language": "python", "stdin": "3\\n",
                          "run_timeout": 6.0, "compile_timeout": 10.0, "memory_limit_MB": 512}
    -> {"status": "Success", "message": "", "compile_result": null,
        "run_result": {"status": "Finished", "execution_time": 0.03, "return_code": 0,
                       "stdout": "6\\n", "stderr": ""}}

A request is one process and has no channel, so the tests' own code cannot run apart from the
candidate's: those tests are "weak" there.

Source: SandboxFusion, docs of ``/run_code``. It was tried against a stand-in of this protocol only.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from typing import Any, Self

import httpx
from pydantic import BaseModel, Field

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.session import CannotStart, CompileError, End
from pcl_reasoner.sandbox_program.source import source_of

SLACK_SECONDS = 30.0
"""Seconds that a request may take beyond the limits of compiler and program: the queue there."""
PAUSE_SECONDS = 1.0
"""Seconds before a request is repeated that the service could not carry out."""
TRIES = 3


class FusionSession:
    """A program whose tests run in a service; the same methods as those of ``Session``.

    Args:
        http: Client for the requests.
        url: The service's base URL.
        program: ``language`` and ``code``.
        limits: What its process may use.
    """

    def __init__(
        self, http: httpx.Client, url: str, program: dict[str, Any], limits: Limits
    ) -> None:
        self.http, self.url = http, url.rstrip("/")
        self.program, self.limits = program, limits
        self.alive = True
        self._start: dict[str, Any] = {}
        self._found: str | End = End(1)

    def run(self, start: dict[str, Any]) -> End:
        """Run the program on an input.

        Raises:
            CompileError: It does not compile.
            CannotStart: The service could not run it, three times.
        """
        body = {
            "code": self.program["code"],
            "language": self.program["language"],
            "stdin": start.get("stdin", ""),
            "files": {
                name: base64.b64encode(text.encode()).decode()
                for name, text in start.get("files", {}).items()
            },
        }
        if "argv" in start:
            body["code"] = f"import sys\nsys.argv = {start['argv']!r}\n{body['code']}"
        return self._post(body)

    def begin(self, start: dict[str, Any]) -> None:
        """Note what the next request runs; send the line that comes with it."""
        self._start = start
        for line in start.get("lines", []):
            self.say(line)

    def say(self, line: str) -> None:
        """Ask the candidate's functions, or run the tests' code with them."""
        word = secrets.token_hex(8)
        told = {"word": word, "code": self.program["code"], "request": json.loads(line)}
        if self._start["start"] == "shared":
            told["tests"] = self._start["code"]
        end = self._post(
            {"code": source_of("once"), "language": "python", "stdin": json.dumps(told) + "\n"}
        )
        replies = [text for text in end.stdout.split("\n") if text.startswith(f"{word} ")]
        self._found = replies[-1].partition(" ")[2] if replies and end.limit is None else end

    def next(self) -> str | End:
        """Return the reply, or how the process ended without one."""
        return self._found

    def stop(self) -> End | None:
        """Do nothing: a request has ended when it is answered."""
        return None

    def finish(self) -> End | None:
        """Do nothing: a request has ended when it is answered."""
        return None

    def close(self) -> None:
        """Do nothing: the service ends its processes."""

    def __enter__(self) -> Self:
        """Return the program."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def _post(self, body: dict[str, Any]) -> End:
        limits = self.limits
        body |= {
            "run_timeout": limits.seconds,
            "compile_timeout": limits.compile_seconds,
            "memory_limit_MB": limits.megabytes,
        }
        timeout = limits.seconds + limits.compile_seconds + SLACK_SECONDS
        for left in reversed(range(TRIES)):
            try:
                answer = self.http.post(f"{self.url}/run_code", json=body, timeout=timeout)
                return self._end(answer)
            except (httpx.HTTPError, _NoAnswer) as error:
                if not left:
                    raise CannotStart(
                        f"{self.url}/run_code: {error or type(error).__name__}, after {TRIES} "
                        "requests. Start the service, or correct placement.sandbox.urls."
                    ) from error
                time.sleep(PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def _end(self, answer: httpx.Response) -> End:
        """Read an answer; one that does not say how the program ended is none."""
        try:
            told = _Told.model_validate(answer.json())
        except (ValueError, RecursionError) as error:  # pydantic's error is a ValueError
            raise _NoAnswer(f"status {answer.status_code}: {answer.text[:200]}") from error
        if told.status == "SandboxError":
            raise _NoAnswer(str(told.message))
        run = told.run_result
        if run is None:
            compiled = told.compile_result or _Part()
            raise CompileError(compiled.stderr or "the compiler failed")
        return End(
            code=(run.return_code or 0) if run.status == "Finished" else 1,
            limit="time" if run.status == "TimeLimitExceeded" else None,
            stdout=run.stdout or "",
            stderr=run.stderr or "",
            wall=run.execution_time or 0.0,
        )


class _Part(BaseModel):
    """How the compiler or the program ended."""

    status: str | None = None
    return_code: int | None = None
    execution_time: float | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Told(BaseModel):
    """The answer of the service."""

    status: str
    message: str | None = None
    compile_result: _Part | None = Field(...)
    run_result: _Part | None = Field(...)


class _NoAnswer(Exception):
    """Raised when an answer does not say how the program ended."""
