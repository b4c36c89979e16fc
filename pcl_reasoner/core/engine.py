"""The data engine: runs one function over many parts, in this process or as tasks on Ray.

A part is any value that the function takes, e.g. the path of ``rows/part-00000.parquet``. A result
is what the function returns, e.g. ``{"read": 700, "kept": 698}``. Long outputs are files. The
function writes them with ``whole_file`` to a path that all workers share, because a retried task
runs twice.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pcl_reasoner.core.errors import StageError, require
from pcl_reasoner.core.schema import DataEngine, JoinedCluster
from pcl_reasoner.core.stage import Progress

Part = TypeVar("Part")
Result = TypeVar("Result")

AHEAD = 2
"""Tasks submitted per worker: one runs while the next one waits."""
RETRIES = 3
"""How often a task is retried after its worker died. A task's own error is never retried."""
OBJECT_STORE_BYTES = 100 << 20
"""Object store of a local cluster. Results are counts and paths, so little memory is enough."""
TEMPORARY = ".writing-"


def map_parts(
    function: Callable[[Part], Result],
    parts: Iterable[Part],
    engine: DataEngine,
    progress: Progress,
    unit: str,
) -> Iterator[Result]:
    """Yield the function's results in the order of the parts, whichever task finishes first.

    Args:
        function: A pure function that can be pickled.
        parts: Values that can be pickled. An iterator is read only as tasks are submitted.
        engine: Where the parts run. Ray without an address: a local cluster on this machine.
        progress: Updated after every result.
        unit: What the progress calls a part.

    Raises:
        StageError: Ray is not installed or not reached, or a task's workers died repeatedly.
    """
    total = len(parts) if isinstance(parts, Sized) else None
    if engine.engine == "local":
        yield from _counted(map(function, parts), total, progress, unit)
        return
    with connected(engine):
        results = _on_ray(function, parts, engine.workers)
        yield from _counted(results, total, progress, unit)


def _counted(
    results: Iterator[Result], total: int | None, progress: Progress, unit: str
) -> Iterator[Result]:
    for done, result in enumerate(results, 1):
        progress.update(done, total, unit)
        yield result


@contextmanager
def connected(engine: DataEngine) -> Iterator[None]:
    """Keep one connection to Ray for several ``map_parts`` calls; an existing one is reused.

    With the local engine it does nothing.

    Raises:
        StageError: Ray is not installed, or no cluster answers at the address.
    """
    if engine.engine == "local":
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # MindSpore can be imported after Ray only with protobuf's pure Python implementation.
    os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield
        return
    address = engine.address
    local = {
        "num_cpus": engine.workers,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
    }
    own = {"_node_ip_address": engine.own_address} if isinstance(engine, JoinedCluster) else {}
    try:
        quiet = {"log_to_driver": False, "logging_level": "warning"}
        ray.init(address=address or "local", **quiet, **(own if address else local))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StageError(
            f"placement.data.address {address}: no Ray cluster ({error}). Start one, or leave the "
            "address out for a cluster of this machine's processes."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _on_ray(
    function: Callable[[Part], Result], parts: Iterable[Part], workers: int
) -> Iterator[Result]:
    import ray

    task: Any = ray.remote(max_retries=RETRIES, retry_exceptions=False)(_call)
    shared = ray.put(function)
    pending: deque[Any] = deque()
    rest = iter(parts)
    # After an error, pending tasks are not cancelled: they end with the connection. In Ray 2.60,
    # cancel ends this process if a task finishes at the same moment (ray-project/ray#54738).
    while True:
        while len(pending) < AHEAD * workers:
            # A part is wrapped in a tuple, because None is a valid part.
            if (following := next(((part,) for part in rest), None)) is None:
                break
            pending.append(task.remote(shared, following[0]))
        if not pending:
            return
        yield _result(pending.popleft())


def _call(function: Callable[[Part], Result], part: Part) -> Result:
    return function(part)


def _result(reference: Any) -> Any:
    """Return a task's result, or raise the task's own error."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        raise StageError(
            f"Ray gave a task up after {RETRIES} retries: {error}. Look for workers that were "
            "killed, e.g. for memory, and give the launch file fewer placement.data.workers."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path``; it is renamed to ``path`` when it is complete.

    A task that runs twice replaces the file by an equal one. No reader sees a half-written file.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed tasks left, at any depth."""
    for leftover in folder.rglob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)
