"""Which engine is used, and what is said where none can be had."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError
from sandbox_helpers import PYTHON, as_user

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.sandbox import opening
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.opening import Choice, choose, opened
from pcl_reasoner.sandbox.test_cases import read_test_cases

CALLS = read_test_cases(
    {"format": "functional", "entry": "f", "cases": [{"args": [3], "out": 6}] * 2}
)


def test_the_first_engine_that_works_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_groups", lambda: None)
    monkeypatch.setattr(opening, "problem_of", lambda engine, python, packages: None)
    choice = choose(SandboxConfig(), SandboxPlacement())
    assert (choice.engine, choice.python, choice.memory) == ("bubblewrap", PYTHON, "polling")
    assert choice.version.split()[0] == choice.version.split(" on ")[0]
    broken = {"bubblewrap": "it is not installed", "unshare": None}
    monkeypatch.setattr(opening, "problem_of", lambda engine, *_, **__: broken[engine])
    assert choose(SandboxConfig(), SandboxPlacement()).engine == "unshare"
    with pytest.raises(StageError, match=r"\(bubblewrap: it is not installed\): install bubble"):
        choose(SandboxConfig(), SandboxPlacement(engine="bubblewrap"))


def test_services_are_not_asked_beforehand() -> None:
    placement = SandboxPlacement(engine="http", urls=["http://nowhere.invalid"])
    assert choose(SandboxConfig(), placement) == Choice("http", "", "of the service")
    assert choose(SandboxConfig(), placement).memory == "service"


CHOOSE = """
import without_namespaces
without_namespaces.forbid_namespaces()
from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.sandbox.opening import SandboxConfig, choose
try:
    choose(SandboxConfig(), SandboxPlacement())
except Exception as error:
    print(error)
"""


def test_a_machine_without_namespaces_says_so_in_one_sentence() -> None:
    helpers = Path(__file__).parents[1] / "helpers"
    code = f"import sys\nsys.path.insert(0, {str(helpers)!r})\n{CHOOSE}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = told.stdout.splitlines()
    assert line.startswith("no sandbox can be had on this machine, so no program can be tested (")
    assert "unshare: unshare: Operation not permitted): install bubblewrap and allow user" in line
    assert ". " not in line
    assert line.endswith("{sandbox: {engine: http, urls: [http://host:8080]}}.")


def test_rlimits_is_refused_unless_it_is_asked_for_as_unsafe() -> None:
    with pytest.raises(ValidationError, match="Install bubblewrap, or set unsafe: true to accept"):
        SandboxPlacement(engine="rlimits")
    assert SandboxPlacement(engine="rlimits", unsafe=True).engine == "rlimits"
    # It is never taken by itself.
    assert "rlimits" not in opening.ENGINES


def run_without_namespaces() -> list[str | None]:
    """The reasons of programs' failures; a temporary file of the same user is still there."""
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        found = run_programs()
        assert Path(file.name).exists()
    return found


def run_programs() -> list[str | None]:
    placement = SandboxPlacement(engine="rlimits", unsafe=True)
    choice = choose(SandboxConfig(seconds=1), placement)
    programs = ["return 2 * x", "return x", "return 1 // 0", "while True: pass"]
    cpp = read_test_cases(
        {"format": "stdin", "language": "cpp", "cases": [{"input": "3", "output": "6"}]}
    )
    with opened(SandboxConfig(seconds=1), placement, choice) as sandboxes:
        asked = [sandboxes.submit(f"def f(x):\n    {body}", CALLS) for body in programs]
        main = '#include <cstdio>\nint main() { int a; scanf("%d", &a); printf("%d", 2 * a); }'
        asked.append(sandboxes.submit(main, cpp))
        found = [one.result().failure for one in asked]
    return [failure and failure.reason for failure in found]


@pytest.mark.parametrize("user", ["this user", "ordinary user"])
def test_rlimits_tells_right_from_wrong_and_leaves_files_of_others_alone(user: str) -> None:
    action = run_without_namespaces
    found = action() if user == "this user" else as_user(action)
    assert found == [None, "wrong", "exception", "time", None]
