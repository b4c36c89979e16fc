"""The drill itself: its disturbances disturb, its comparisons see, and no trial ends badly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def drill(*words: str) -> str:
    """Run the drill; a bad trial is shown with its seed and is a failure."""
    command = [sys.executable, str(HERE), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    words = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", made, HERE / "shim.c", "-ldl"]
    subprocess.run(words, check=True)
    return made


WRITE = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "a").write_text("one")       # 1 and 2: it is created, and written
os.rename(folder / "a", folder / "b")  # 3
print((folder / "b").read_text(), int(time.time()) < 1_000_000_000)
"""


def disturbed(shim: Path, folder: Path, how: str, at: int, **more: str) -> tuple[int, str, int]:
    """Exit code, output, and the number of operations."""
    inside, state = folder / "inside", folder / "state"
    inside.mkdir()
    state.write_bytes(bytes(16))
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "DRILL_BELOW": str(inside),
        "DRILL_STATE": str(state),
        "DRILL_HOW": how,
        "DRILL_AT": str(at),
        **more,
    }
    words = [sys.executable, "-S", "-c", WRITE, str(inside)]
    answer = subprocess.run(words, env=environment, capture_output=True, text=True)
    operations = int.from_bytes(state.read_bytes()[:8], "little")
    return answer.returncode, answer.stdout + answer.stderr, operations


def test_operations_are_counted(shim: Path, tmp_path: Path) -> None:
    assert disturbed(shim, tmp_path, "KILL", 0) == (0, "one False\n", 3)


def test_a_write_finds_the_disk_full(shim: Path, tmp_path: Path) -> None:
    code, text, _ = disturbed(shim, tmp_path, "ENOSPC", 2, DRILL_LASTS="1")
    assert code == 1 and "No space left on device" in text
    assert (tmp_path / "inside/a").read_text() == ""


def test_a_rename_fails(shim: Path, tmp_path: Path) -> None:
    code, text, _ = disturbed(shim, tmp_path, "EIO", 3)
    assert code == 1 and "Input/output error" in text
    assert (tmp_path / "inside/a").read_text() == "one"


@pytest.mark.parametrize(("how", "left"), [("KILL", ["a"]), ("KILL_AFTER", ["b"])])
def test_a_kill_before_and_after_a_rename(
    shim: Path, tmp_path: Path, how: str, left: list[str]
) -> None:
    assert disturbed(shim, tmp_path, how, 3)[0] == -9
    assert [one.name for one in (tmp_path / "inside").iterdir()] == left


def test_a_read_fails(shim: Path, tmp_path: Path) -> None:
    code, text, _ = disturbed(shim, tmp_path, "READ", 1)
    assert code == 1 and "Input/output error" in text


def test_the_clock_jumps_at_an_operation(shim: Path, tmp_path: Path) -> None:
    seconds = {"DRILL_SECONDS": str(-(10**9))}
    assert disturbed(shim, tmp_path, "CLOCK", 3, **seconds)[1] == "one True\n"


@pytest.mark.slow
def test_ten_trials_of_each_kind(tmp_path: Path) -> None:
    """Of stages that take no time; the same ones, so that no push is refused by chance."""
    out = drill("10", "--quick", "--fixed", "--log", str(tmp_path / "log.jsonl"))
    assert " bad" not in out.splitlines()[-1]


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_a_hundred_trials_of_each_kind() -> None:
    """Of all stages; its log is kept, so that it continues after an interruption."""
    out = drill("100")
    assert " bad" not in out.splitlines()[-1]
