"""Results come in order from either engine; a killed worker is retried, an error is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.artifact import TEMPORARY_FILES, atomic_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.data_engine.tasks import connected, map_parts, sweep

LOCAL = DataEngine()
RAY = DataEngine(engine="ray", workers=2)
ENGINES = [LOCAL, pytest.param(RAY, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's processes import this module, as they import the installed package."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


class Seen(NoProgress):
    def __init__(self) -> None:
        self.calls: list[tuple[float, float | None, str]] = []

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        self.calls.append((done, total, unit))


def square_later(part: int) -> tuple[int, int]:
    """The first parts take longest."""
    time.sleep(0.05 * (5 - part))
    return part * part, os.getpid()


def refuse_third(folder: Path, part: int) -> int:
    with (folder / f"{part}").open("a") as handle:
        handle.write("run\n")
    if part == 2:
        raise StageError("part 2: wrong")
    return part


def refuse_beside_a_long_one(folder: Path, part: int) -> int:
    """Part 1 would take ten minutes; part 0 fails once part 1 has begun."""
    begun = folder / "begun"
    if part == 0:
        until(begun.exists)
        raise StageError("part 0: wrong")
    with atomic_file(begun) as path:
        path.write_text(str(os.getpid()))
    time.sleep(600)
    return part


def until(holds: Callable[[], bool]) -> None:
    """Wait for it, up to a minute."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def write_and_die_once(folder: Path, part: int) -> int:
    """Leave half a file and be killed, the first time that part 1 runs."""
    with atomic_file(folder / f"part-{part}") as path:
        path.write_bytes(b"%d" % part)
        died = folder / "died"
        if part == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(b"whole %d" % part)
    return part


def run(function: Callable[[int], Any], placement: DataEngine) -> list[Any]:
    return list(map_parts(function, range(5), placement, NoProgress(), "parts"))


@pytest.mark.parametrize("placement", ENGINES, ids=["local", "ray"])
def test_results_in_order(placement: DataEngine) -> None:
    seen = Seen()
    found = list(map_parts(square_later, range(5), placement, seen, "parts"))
    assert [result for result, _ in found] == [0, 1, 4, 9, 16]
    assert seen.calls == [(done, 5, "parts") for done in range(1, 6)]
    assert (os.getpid() in {process for _, process in found}) == (placement is LOCAL)


@pytest.mark.parametrize("placement", ENGINES, ids=["local", "ray"])
def test_an_error_arrives_as_it_is_and_is_not_retried(
    tmp_path: Path, placement: DataEngine
) -> None:
    with pytest.raises(StageError, match=r"^part 2: wrong$") as caught:
        run(partial(refuse_third, tmp_path), placement)
    assert type(caught.value) is StageError
    assert (tmp_path / "2").read_text() == "run\n"


@pytest.mark.slow
def test_no_task_outlives_an_error(tmp_path: Path) -> None:
    """Tasks end with the connection; ray.cancel would now and then end this process, too."""
    with pytest.raises(StageError, match=r"^part 0: wrong$"):
        run(partial(refuse_beside_a_long_one, tmp_path), RAY)
    process = int((tmp_path / "begun").read_text())
    until(lambda: not Path(f"/proc/{process}").exists())


@pytest.mark.slow
def test_a_killed_worker_is_retried(tmp_path: Path) -> None:
    with connected(RAY):
        assert run(partial(write_and_die_once, tmp_path), RAY) == [0, 1, 2, 3, 4]
    assert (tmp_path / "died").exists()
    assert len(list(tmp_path.glob(TEMPORARY_FILES))) == 1
    sweep(tmp_path)
    assert not list(tmp_path.glob(TEMPORARY_FILES))
    written = [(tmp_path / f"part-{part}").read_bytes() for part in range(5)]
    assert written == [b"whole %d" % part for part in range(5)]


@pytest.mark.slow
def test_the_cluster_goes_with_the_work() -> None:
    import ray

    with pytest.raises(ZeroDivisionError), connected(RAY):
        assert ray.is_initialized()
        raise ZeroDivisionError
    assert not ray.is_initialized()


@pytest.mark.slow
def test_training_can_follow_in_the_same_process() -> None:
    """MindSpore's protobuf files are refused by the implementation that Ray would load."""
    code = """
from test_data_engine_tasks import RAY, connected
with connected(RAY):
    import mindspore
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "a") as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").write_text("old")
    with atomic_file(tmp_path / "a") as path:
        path.write_text("new")
        assert (tmp_path / "a").read_text() == "old"
    assert [file.read_text() for file in tmp_path.iterdir()] == ["new"]
