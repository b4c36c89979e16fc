"""Are two expressions mathematically equal? math-verify, in a process that can be killed.

math-verify times itself out with signals, which only work in a main thread and cannot stop a
computation inside a C library. So it runs without its own time-outs in one worker process, and
what takes too long costs the worker its life, not the run.
"""

from __future__ import annotations

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
"""For one comparison."""
_START_SECONDS = 180.0
"""For the worker's imports; seconds on an idle machine, but machines are not always idle."""
_MEMORY_BYTES = 4 << 30
"""Address space of the worker: a tower of powers must not take the machine's memory."""

_REMEMBERED = 256
"""Pairs whose comparison is remembered: a problem's responses often have the same answer."""

Comparison = Literal["correct", "incorrect", "timeout", "error"]


def equivalent(answer: str, ground_truth: str, seconds: float = TIME_OUT_SECONDS) -> Comparison:
    """Compare two LaTeX or plain expressions.

    Args:
        answer: The response's answer, without its box.
        ground_truth: The correct answer.
        seconds: After this long the answer is a ``timeout``.

    Returns:
        ``correct``, ``incorrect``, ``timeout``, or ``error`` when the worker died (out of memory).
    """
    pair = (answer, ground_truth)
    with _lock:
        if pair in _decided:
            return _decided[pair]
        found = _worker.compare(answer, ground_truth, seconds)
        if found in ("correct", "incorrect"):  # another try may have the time that this one had not
            if len(_decided) >= _REMEMBERED:
                _decided.clear()
            _decided[pair] = found
        return found


class _Worker:
    """The worker process: started at the first comparison, and again after one that killed it."""

    def __init__(self) -> None:
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None

    def compare(self, answer: str, ground_truth: str, seconds: float) -> Comparison:
        """Ask the worker, and end it if it does not answer."""
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
        # Spawned, not forked: the caller may hold threads, and a fork would copy their locks.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
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
        """End the worker, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.pipe is not None:
            self.pipe.close()
        self.process = self.pipe = None


def serve(pipe: Connection) -> None:
    """The worker's loop: pairs of expressions in, True or False out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # It warns that someone else must watch the time; that is the other side of this pipe.
    logging.disable(logging.WARNING)
    from math_verify import parse, verify

    @functools.lru_cache(maxsize=64)
    def parsed(text: str) -> Any:
        # In a box, as a response has it: math-verify then reads the whole of it as mathematics.
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
