"""The sandboxes of one stage: as many at a time as there are processors.

    with Sandboxes("bubblewrap", 2, "/usr/bin/python3", Limits()) as sandboxes:
        sandboxes.test("def f(x):\\n    return 2 * x", tests)     ->  Result(passed=2, total=2)

Each response gets new sandboxes, and all its tests run in them. When this process ends, in whatever
way, the kernel ends them: each dies with the thread that started it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self

import httpx

from pcl_reasoner.sandbox.cgroups import Groups
from pcl_reasoner.sandbox.engines import Engine, allow_open_files, command, processes_allowed
from pcl_reasoner.sandbox.fusion import FusionSession
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.memory import MemoryWatch
from pcl_reasoner.sandbox.run import Failure, Make, Result, call_function, run_tests
from pcl_reasoner.sandbox.session import NOT_STARTED, CannotStart, Session
from pcl_reasoner.sandbox.test_cases import TestCases

FILES = 4
"""Open files per sandbox: its pipes, and the filter while it starts."""
ROLES = 3
"""Sandboxes of one response at a time: the candidate's, the tests', the checker's."""
TRIES = 3
"""How often a sandbox is started before it is an error."""
PAUSE_SECONDS = 0.2
"""Seconds between two tries: the machine may be out of processes or memory for a moment."""
ENGINES: tuple[Engine, ...] = ("bubblewrap", "unshare")
"""The engines that keep a candidate in, in the order in which they are tried."""
PROBE = "import sys\nprint('%d.%d' % sys.version_info[:2])"
"""A program that says which Python runs it."""


class Sandboxes:
    """Sandboxes for one stage.

    Args:
        engine: How they are started; ``http``: by services.
        workers: How many responses are tested at a time.
        python: The interpreter in them.
        limits: What a test may use.
        packages: Whether the interpreter's own packages can be imported.
        urls: With ``http``: the services' base URLs, which are used in turn.
        groups: Makes control groups; None: memory is looked at.
    """

    def __init__(
        self,
        engine: Engine | Literal["http"],
        workers: int,
        python: str,
        limits: Limits,
        packages: bool = False,
        urls: Sequence[str] = (),
        groups: Groups | None = None,
    ) -> None:
        self.engine = engine
        self.workers = workers
        self.python = python
        processes = processes_allowed(engine, limits, workers * ROLES)
        self.limits = replace(limits, processes=processes)
        self.packages = packages
        self.urls = urls
        self.groups = groups
        allow_open_files(workers * ROLES * FILES)
        self._http = httpx.Client(trust_env=False) if urls else None
        self._slots: queue.Queue[int] = queue.Queue()
        for slot in range(workers):
            self._slots.put(slot)
        self._next = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")

    def __enter__(self) -> Self:
        """Return the sandboxes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._http is not None:
            self._http.close()
        if self.groups is not None:
            self.groups.close()

    def submit(self, code: str, tests: TestCases, stop: bool = True) -> Future[Result]:
        """Test a program when there is room."""
        return self._pool.submit(self.test, code, tests, stop)

    def test(self, code: str, tests: TestCases, stop: bool = True) -> Result:
        """Test a program.

        If a test ran out of time while others had the processors, its program is tested again,
        alone.

        Raises:
            CannotStart: A sandbox did not start, three times.
        """
        with self._slot() as slot:
            found = self._test(code, tests, stop, slot)
        if found.contended:
            with self._all_slots() as slot:
                found = self._test(code, tests, stop, slot)
        return found

    def call(self, code: str, name: str, args: list[Any]) -> tuple[Any, Failure | None]:
        """Call a function of some code; return its value, or why there is none.

        Raises:
            CannotStart: A sandbox did not start, three times.
        """
        with self._slot() as slot:
            return call_function(code, name, args, self.limits, self._make(slot))

    def _test(self, code: str, tests: TestCases, stop: bool, slot: int) -> Result:
        apart = self._http is None
        return run_tests(code, tests, self.limits, self._make(slot), stop, apart)

    def _make(self, slot: int) -> Make:
        """Return the function that starts the sandboxes of one response."""
        watch = MemoryWatch()

        def make(
            kind: str, program: dict[str, Any], limits: Limits, role: int
        ) -> Session | FusionSession:
            if self._http is not None:
                url = self.urls[slot % len(self.urls)]
                return FusionSession(self._http, url, program, limits)
            return self._start(kind, program, limits, slot * ROLES + role, watch)

        return make

    def _start(
        self, kind: str, program: dict[str, Any], limits: Limits, slot: int, watch: MemoryWatch
    ) -> Session:
        """Start a sandbox; three failures are an error.

        Raises:
            CannotStart: It did not start.
            CompileError: The program does not compile.
        """
        assert self.engine != "http"
        for left in reversed(range(TRIES)):
            try:
                started = command(self.engine, kind, self.python, limits, slot, self.packages)
                return Session(started, program, limits, watch, self.groups)
            except CannotStart:
                if not left:
                    raise
                time.sleep(PAUSE_SECONDS)
        raise AssertionError("unreachable")

    @contextmanager
    def _slot(self) -> Iterator[int]:
        with self._next:
            slot = self._slots.get()
        try:
            yield slot
        finally:
            self._slots.put(slot)

    @contextmanager
    def _all_slots(self) -> Iterator[int]:
        # Meanwhile nobody else takes a slot: two threads that each hold a part of them would wait
        # for each other.
        with self._next:
            slots = [self._slots.get() for _ in range(self.workers)]
            try:
                yield slots[0]
            finally:
                for slot in slots:
                    self._slots.put(slot)


def problem_of(engine: Engine, python: str, packages: bool = False) -> str | None:
    """Return why an engine does not work on this machine, or None: it runs a program in it."""
    limits = Limits()
    try:
        started = command(engine, "program", python, limits, 0, packages)
        with Session(started, {"language": "python", "code": PROBE}, limits) as session:
            end = session.run({"start": "program", "stdin": ""})
    except CannotStart as error:
        return str(error).removeprefix(NOT_STARTED)
    if end.code or end.limit or not end.stdout.startswith("3."):
        return f"it does not run {python}: {end.limit or end.stderr.strip()[-300:] or end.stdout}"
    return None
