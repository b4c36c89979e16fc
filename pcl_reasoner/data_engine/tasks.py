"""The data engine: runs one function over many parts, in this process or as tasks on Ray.

A part is any value that the function takes, e.g. the path of ``rows/part-00000.parquet``. A result
is what the function returns, e.g. ``{"read": 700, "kept": 698}``. Long outputs are files. The
function writes them with ``atomic_file`` to a path that all workers share, because a retried task
runs twice.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pcl_reasoner.core.artifact import TEMPORARY_FILES
from pcl_reasoner.core.errors import StageError, require
from pcl_reasoner.core.schema import DataEngine, JoinedCluster
from pcl_reasoner.core.stage import Progress

Part = TypeVar("Part")
Result = TypeVar("Result")

AHEAD = 2
"""Tasks submitted per worker: one runs while the next one waits."""
RETRIES = 3
"""Retries of a task whose worker died. A task that raises an error is never retried."""
OBJECT_STORE_BYTES = 100 << 20
"""Object store of a local cluster. Results are counts and paths, so little memory is enough."""


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
        parts: Values that can be pickled. An iterator is read step by step, as tasks are submitted.
        engine: Where the parts run. Ray without an address: a local cluster on this machine.
        progress: Updated after every result.
        unit: Name of the parts in the progress, e.g. ``pieces``.

    Raises:
        StageError: Ray is not installed or unreachable, or a task's workers died repeatedly.
    """
    total = len(parts) if isinstance(parts, Sized) else None
    is_local = engine.engine == "local"
    with connected(engine):
        results = map(function, parts) if is_local else _on_ray(function, parts, engine.workers)
        for done, result in enumerate(results, 1):
            progress.update(done, total, unit)
            yield result


@contextmanager
def connected(engine: DataEngine) -> Iterator[None]:
    """Keep one connection to Ray open for several ``map_parts`` calls; reuse an existing one.

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
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        options |= {"num_cpus": engine.workers, "object_store_memory": OBJECT_STORE_BYTES}
        options["include_dashboard"] = False
    elif isinstance(engine, JoinedCluster):
        options["_node_ip_address"] = engine.own_address
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StageError(
            f"placement.data.address {address}: no Ray cluster answers ({error}). Start one, or "
            "leave out the address to use a cluster of processes on this machine."
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
    # After an error, pending tasks are not cancelled: they end with the connection. In Ray 2.60,
    # cancel ends this process if a task finishes at the same moment (ray-project/ray#54738).
    for part in parts:
        pending.append(task.remote(shared, part))
        if len(pending) == AHEAD * workers:
            yield _result(pending.popleft())
    yield from map(_result, pending)


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
            f"Ray gave up a task after {RETRIES} retries: {error}. Look for workers that were "
            "killed, e.g. for lack of memory, and lower placement.data.workers in the launch file."
        ) from error


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed tasks left, at any depth."""
    for leftover in folder.rglob(TEMPORARY_FILES):
        leftover.unlink(missing_ok=True)
