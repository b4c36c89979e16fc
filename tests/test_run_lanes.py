"""``run_lanes.py --all`` repeats what failed or what has changed, and nothing else."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def run_lanes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module; the folder tests/ is no package."""
    spec = importlib.util.spec_from_file_location(
        "run_lanes", Path(__file__).parent / "run_lanes.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_lanes", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_what_passed_for_the_same_files_is_not_run_again(
    run_lanes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    codes, tree = {"a": 0, "b": 1}, ["first"]

    def run(command: list[str]) -> object:
        ran.append(command[0])
        return run_lanes.Outcome(codes[command[0]], 2.0, "", [])

    monkeypatch.setattr(run_lanes, "run", run)
    monkeypatch.setattr(run_lanes, "PASSED", tmp_path / "build" / "passed.json")
    monkeypatch.setattr(run_lanes, "tree_hash", lambda: tree[0])

    def run_all() -> list[str]:
        ran.clear()
        for name in codes:
            run_lanes.run_once(name, [name])
        return list(ran)

    assert run_all() == ["a", "b"]
    assert run_all() == ["b"]
    codes["b"] = 0
    assert run_all() == ["b"]
    assert run_all() == []
    tree[0] = "second"
    assert run_all() == ["a", "b"]


def test_every_test_of_a_lane_has_a_limit_of_time(run_lanes: ModuleType) -> None:
    commands = [command for command, _ in run_lanes.LANES.values() if command[0] == "pytest"]
    limits = [
        [word for word in command if word.startswith("--timeout=")]
        for command in [*commands, run_lanes.LONG_COMMAND]
    ]
    assert limits == [["--timeout=900"]] * 3 + [["--timeout=3600"]]
