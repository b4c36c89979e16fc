"""Compares two expressions with math-verify, in a worker process that can be killed.

math-verify limits its own time with signals, which work only in a main thread and cannot stop a
computation inside a C library. Therefore it runs without its own time limits in one worker process.
A comparison that takes too long is ended by killing the worker; the run continues.
"""

import atexit
import functools
import logging
import multiprocessing
import resource
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from pcl_reasoner.core.errors import StageError

TIME_OUT_SECONDS = 10.0
"""Time limit of one comparison."""
_START_SECONDS = 180.0
"""Time limit of the worker's imports. They take a few seconds, but longer on a busy machine."""
_MEMORY_BYTES = 4 << 30
"""Limit on the worker's address space: an answer such as 9^9^9^9 must not use up all memory."""

_REMEMBERED = 256
"""Limit on cached comparisons. Responses to one problem often have equal answers."""

Comparison = Literal["correct", "incorrect", "timeout", "error"]


def equivalent(answer: str, ground_truth: str, seconds: float = TIME_OUT_SECONDS) -> Comparison:
    """Compare two LaTeX or plain expressions.

    Args:
        answer: The response's answer, without its box.
        ground_truth: The correct answer.
        seconds: Time limit, after which the result is ``timeout``.

    Returns:
        ``correct``, ``incorrect``, ``timeout``, or ``error`` when the worker died (out of memory).
    """
    pair = (answer, ground_truth)
    with _lock:
        if pair in _decided:
            return _decided[pair]
        found = _worker.compare(answer, ground_truth, seconds)
        if found in ("correct", "incorrect"):  # others are not cached: a retry may succeed
            if len(_decided) >= _REMEMBERED:
                _decided.clear()
            _decided[pair] = found
        return found


class _Worker:
    """The worker process. It is started by the first comparison, and again after it has ended."""

    def __init__(self) -> None:
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None

    def compare(self, answer: str, ground_truth: str, seconds: float) -> Comparison:
        """Send a pair to the worker; kill the worker if it does not answer in time."""
        pipe = self.pipe or self._start()
        try:
            pipe.send((answer, ground_truth))
            if pipe.poll(seconds):
                return "correct" if pipe.recv() else "incorrect"
        except (EOFError, OSError):
            self.stop()
            return "error"
        self.stop()
        return "timeout"

    def _start(self) -> Connection:
        # Spawned, not forked: the caller may have threads, and a fork would copy their locks.
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_end = context.Pipe()
        self.process = context.Process(target=serve, args=(worker_end,), daemon=True)
        self.process.start()
        worker_end.close()
        try:
            ready = self.pipe.poll(_START_SECONDS) and self.pipe.recv()
        except (EOFError, OSError):
            ready = False
        if ready:
            return self.pipe
        self.stop()
        raise StageError(
            "the process that compares answers did not start. Is math-verify installed? "
            "Try: python -c 'import math_verify'"
        )

    def stop(self) -> None:
        """Kill the worker, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.pipe is not None:
            self.pipe.close()
        self.process = self.pipe = None


def serve(pipe: Connection) -> None:
    """Receive pairs of expressions and send whether they are equal, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # math-verify warns that its time is not limited; the parent process limits it.
    logging.disable(logging.WARNING)
    from math_verify import parse, verify

    @functools.lru_cache(maxsize=64)
    def parsed(text: str) -> Any:
        # Boxed, as in a response: math-verify then reads the complete text as mathematics.
        return parse(f"\\boxed{{{text}}}", parsing_timeout=None)

    pipe.send(True)
    while True:
        try:
            answer, ground_truth = pipe.recv()
        except EOFError:
            return
        found, expected = parsed(answer), parsed(ground_truth)
        pipe.send(bool(verify(expected, found, timeout_seconds=None)))


_lock = threading.Lock()
_decided: dict[tuple[str, str], Comparison] = {}
_worker = _Worker()
atexit.register(_worker.stop)
