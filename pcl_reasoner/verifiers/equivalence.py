"""Compares expressions with math-verify, in worker processes that can be killed.

    ("9^{9^{9^9}}", "7")  10 s of processor time, then its worker is killed: timeout
    ("\\\\frac12", "0.5")    2 ms: correct

math-verify limits its own time with signals, which work only in a main thread and cannot stop a
computation inside a C library. Therefore it runs without its own limits, in as many workers as
there are cores. The kernel ends a worker that uses too much processor time, so a verdict does not
depend on how busy the machine is.
"""

import atexit
import functools
import hashlib
import logging
import math
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from pcl_reasoner.core.errors import StageError

TIME_OUT_SECONDS = 10.0
"""Limit of one comparison, in seconds of processor time."""
_WAIT = 10.0
"""A comparison may take this many times its processor time before it is given up."""
_START_SECONDS = 180.0
"""Time limit of the worker's imports. They take a few seconds, but longer on a busy machine."""
_MEMORY_BYTES = 4 << 30
"""Limit on a worker's address space: an answer such as 9^9^9^9 must not use up all memory."""
_RAMP_SECONDS = 1.0
"""If work is left after this time, as many workers again are started: a start takes seconds."""

_REMEMBERED = 1 << 16
"""Limit on remembered comparisons. Responses to one problem often have equal answers."""

Comparison = Literal["correct", "incorrect", "timeout", "error"]
Pair = tuple[str, str]
"""A response's answer, without its box, and the correct answer."""
Report = Callable[[int, int], None]
"""Called with the number of comparisons that are done, and of all."""


def equivalent(answer: str, ground_truth: str, seconds: float | None = None) -> Comparison:
    """Compare two LaTeX or plain expressions.

    Args:
        answer: The response's answer, without its box.
        ground_truth: The correct answer.
        seconds: Limit of processor time, after which the result is ``timeout``; None: the usual.

    Returns:
        ``correct``, ``incorrect``, ``timeout``, or ``error`` when the worker died (out of memory).
    """
    with _lock:
        key = _key((answer, ground_truth))
        if key not in _decided:
            _pool.compare([(answer, ground_truth)], seconds or TIME_OUT_SECONDS)
        return _decided[key]


def compare_all(
    pairs: Iterable[Pair],
    seconds: float | None = None,
    report: Report = lambda done, total: None,
) -> None:
    """Compare many pairs on all cores, so that `equivalent` knows them.

    Args:
        pairs: What will be asked.
        seconds: As in `equivalent`.
        report: Called after each comparison.
    """
    with _lock:
        todo = {_key(pair): pair for pair in pairs}
        if len(_decided) + len(todo) > _REMEMBERED:
            _decided.clear()
        new = [pair for key, pair in todo.items() if key not in _decided]
        _pool.compare(new, seconds or TIME_OUT_SECONDS, report)


def _key(pair: Pair) -> bytes:
    """What is remembered of a pair: an answer may have thousands of characters."""
    return hashlib.blake2b("\0".join(pair).encode("utf-8", "surrogatepass")).digest()


def most_workers() -> int:
    """As many workers as this process may use cores, and as have memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // _MEMORY_BYTES))


class _Pool:
    """Workers that share a list of pairs."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []

    def compare(
        self, pairs: list[Pair], seconds: float, report: Report = lambda done, total: None
    ) -> None:
        """Compare pairs and remember the results.

        A worker that died, or had to wait for long, may have lacked what other workers used: its
        pair is compared once more, alone.
        """
        todo, again = deque(pairs), deque[Pair]()
        if len(pairs) == 1:
            self._work(self._worker(0), todo, again, seconds)
        elif pairs:
            self._share(todo, again, seconds, lambda left: report(len(pairs) - left, len(pairs)))
        while again:
            pair = again.popleft()
            _decided[_key(pair)] = self._worker(0).compare(*pair, seconds)[0]

    def _worker(self, number: int) -> "_Worker":
        while len(self.workers) <= number:
            self.workers.append(_Worker())
        return self.workers[number]

    def _share(
        self, todo: deque[Pair], again: deque[Pair], seconds: float, report: Callable[[int], None]
    ) -> None:
        """Let a growing number of workers take pairs until none is left."""
        threads: list[threading.Thread] = []
        errors: list[BaseException] = []

        def run(worker: _Worker) -> None:
            try:
                self._work(worker, todo, again, seconds)
            except BaseException as error:
                errors.append(error)
                todo.clear()

        began, total = time.monotonic(), most_workers()
        while todo or any(thread.is_alive() for thread in threads):
            wanted = min(total, 1 << int((time.monotonic() - began) / _RAMP_SECONDS), len(todo))
            for number in range(len(threads), wanted):
                threads.append(threading.Thread(target=run, args=(self._worker(number),)))
                threads[-1].start()
            time.sleep(0.002)
            report(len(todo))
        if errors:
            raise errors[0]

    def _work(
        self, worker: "_Worker", todo: deque[Pair], again: deque[Pair], seconds: float
    ) -> None:
        while todo:
            try:
                pair = todo.popleft()
            except IndexError:  # another worker took the last one
                return
            found, is_certain = worker.compare(*pair, seconds)
            if is_certain:
                _decided[_key(pair)] = found
            else:
                again.append(pair)

    def stop(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.stop()


class _Worker:
    """A worker process. It is started by its first comparison, and again after it has ended."""

    def __init__(self) -> None:
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None

    def compare(self, answer: str, ground_truth: str, seconds: float) -> tuple[Comparison, bool]:
        """Send a pair to the worker.

        Returns:
            The result, and whether it depends on the pair only, not on other processes.
        """
        pipe = self.pipe or self._start()
        try:
            pipe.send((answer, ground_truth, seconds))
            if pipe.poll(seconds * _WAIT):
                return ("correct" if pipe.recv() else "incorrect"), True
        except (EOFError, OSError):
            used_up = self._exit_code() == -signal.SIGXCPU
            self.stop()
            return ("timeout" if used_up else "error"), used_up
        self.stop()
        return "timeout", False

    def _exit_code(self) -> int | None:
        assert self.process is not None
        self.process.join(1)
        return self.process.exitcode

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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # math-verify warns that its time is not limited; the kernel limits it.
    logging.disable(logging.WARNING)
    from math_verify import parse, verify

    @functools.lru_cache(maxsize=64)
    def parsed(text: str) -> Any:
        # Boxed, as in a response: math-verify then reads the complete text as mathematics.
        return parse(f"\\boxed{{{text}}}", parsing_timeout=None)

    pipe.send(True)
    while True:
        try:
            answer, ground_truth, seconds = pipe.recv()
        except EOFError:
            return
        _limit_processor_time(seconds)
        found, expected = parsed(answer), parsed(ground_truth)
        pipe.send(bool(verify(expected, found, timeout_seconds=None)))


def _limit_processor_time(seconds: float) -> None:
    """Let the kernel end this process (SIGXCPU) after some more seconds, at most one too late."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), most))


_lock = threading.Lock()
_decided: dict[bytes, Comparison] = {}
_pool = _Pool()
atexit.register(_pool.stop)
