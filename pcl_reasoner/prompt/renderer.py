"""Starts render_program.py once per process, and has it render chat templates within limits.

    render("{{ messages[0].content }}", {"messages": [{"content": "1 + 1?"}]})   -> "1 + 1?"
    render("{{ 1 / 0 }}", {})       -> TemplateFailure: ZeroDivisionError: division by zero

Limits per rendering: SECONDS of processor time, MEMORY_BYTES of the process, OUTPUT_CHARACTERS of
text. A process that exceeds them is ended, and the next rendering starts another one.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 10.0
"""Processor time of one rendering; published templates take less than a millisecond."""
MEMORY_BYTES = 1 << 30
"""Address space of the process that renders."""
OUTPUT_CHARACTERS = 1 << 25
"""Longest rendered text."""
_PROGRAM = Path(__file__).with_name("render_program.py")


class TemplateFailure(Exception):
    """A template could not be compiled or rendered; the message says why."""


class _Renderer:
    """One process that renders, for one caller at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, line: bytes) -> bytes:
        """Return the process's answer to a request.

        Raises:
            TemplateFailure: The request exceeded a limit, so that the process ended.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            answer = b""
            try:
                process.stdin.write(line + b"\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                pass
            except BaseException:
                # After Ctrl-C, the answer to this request must not answer the next one.
                process.kill()
                self.close()
                raise
            if answer.endswith(b"\n"):
                return answer
            raise TemplateFailure(_why(self.close()))

    def close(self) -> int:
        """End the process; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            return process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            limits = [str(SECONDS), str(MEMORY_BYTES), str(OUTPUT_CHARACTERS)]
            # -P: a jinja2.py in the working directory must not be imported.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM), *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process


_renderer = _Renderer()


def render(source: str, variables: Mapping[str, Any] | None) -> str:
    """Render a chat template.

    Args:
        source: The jinja text.
        variables: Name -> value, as JSON; None: only compile.

    Raises:
        TemplateFailure: It cannot be compiled or rendered within the limits.
    """
    # ASCII, so that a lone surrogate of a problem's text passes unchanged.
    request = json.dumps({"source": source, "variables": variables})
    answer: dict[str, str] = json.loads(_renderer.ask(request.encode("ascii")))
    if "error" in answer:
        raise TemplateFailure(answer["error"])
    return answer["text"]


def _why(code: int) -> str:
    if code == -signal.SIGPROF:
        return f"it took more than {SECONDS:g} seconds"
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that renders it ended with {ended}, probably for too much memory"


def _after_fork() -> None:
    # The process belongs to the parent, and a thread of the parent may hold the lock.
    global _renderer
    _renderer = _Renderer()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _renderer.close())
