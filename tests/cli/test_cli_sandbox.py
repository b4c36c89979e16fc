"""What a run needs of the sandbox before it starts, and doctor's row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from sandbox_helpers import need

from pcl_reasoner.cli.sandbox import doctor_row
from pcl_reasoner.core.files import PACKAGE
from pcl_reasoner.formats.reading import FORMATS
from pcl_reasoner.preflight.sandboxes import CODE_FORMATS, missing_sandbox
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.sandbox import opening
from pcl_reasoner.sandbox.self_check import SelfCheck

ROOT = Path(PACKAGE).parent
STAGES = {
    "convert": {"format": "kodcode", "inputs": {"source": "data"}},
    "unique": {"measured": False, "inputs": {"rows": "convert"}},
    "sample": {"n": 1, "inputs": {"problems": "unique"}},
    "grade": {"inputs": {"problems": "unique"}},
    "rl": {
        "plateau": None,
        "learning_rate": 1e-4,
        "max_new_tokens": 64,
        "max_model_len": 512,
        "row_tokens": 512,
        "rows": 1,
        "inputs": {"problems": "unique", "policy": "policy"},
    },
    "evaluate": {"n": 1, "inputs": {"model": "policy"}},
}
MATH = {"id": "1", "problem": "Add 1 and 2.", "answer": "3"}
TESTS = {"format": "stdin", "cases": [{"input": "3", "output": "6"}]}
CODE = {"id": "1", "problem": "Double.", "kind": "code", "checks": {"tests": TESTS}}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe on a machine without namespaces; its folder is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "problem_of", lambda engine, python, packages: "not possible")
    (tmp_path / "data.parquet").write_bytes(b"")
    (tmp_path / "weights").mkdir()
    return tmp_path / "recipe.yaml"


def missing(
    file: Path,
    question: Mapping[str, object] = MATH,
    placement: dict[str, object] | None = None,
    until: str | None = None,
    **changes: dict[str, object],
) -> list[str]:
    """The titles of the stages for which a sandbox is missing."""
    Path("benchmark.jsonl").write_text(json.dumps(question) + "\n")
    sources = {
        "data": {"path": "data.parquet"},
        "policy": {"path": "weights", "kind": "model"},
        "benchmark": {"path": "benchmark.jsonl"},
    }
    stages = {name: {**stage, **changes.get(name, {})} for name, stage in STAGES.items()}
    content = {"name": "coded", "title": "Code", "seed": 0, "sources": sources, "stages": stages}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    launch = yaml.safe_load((ROOT / "launch" / "laptop.yaml").read_text())
    launch["placement"] = {**(launch.get("placement") or {}), "sandbox": placement or {}}
    Path("launch.yaml").write_text(yaml.safe_dump(launch))
    found = load_recipe(str(file), "launch.yaml", until=until)
    told = missing_sandbox(make_plan(found, Path("runs"), until))
    assert all(": no sandbox can be had on this machine, so " in one for one in told)
    return [title for one in told for title in one.partition(": ")[0].split(", ")]


def test_stages_that_certainly_run_programs_need_a_sandbox(recipe: Path) -> None:
    assert missing(recipe) == ["coded/grade", "coded/rl"]
    assert missing(recipe, until="sample") == []
    # Another kind of problems, or code that is graded otherwise.
    assert missing(recipe, convert={"kind": "math"}) == []
    assert missing(recipe, convert={"format": "am_rl"}) == []
    assert missing(recipe, convert={"format": "am_rl", "kind": "code"}) == [
        "coded/grade",
        "coded/rl",
    ]
    assert missing(recipe, grade={"kinds": {"code": "answer"}}) == ["coded/rl"]
    assert missing(recipe, rl={"kinds": ["math"]}) == ["coded/grade"]
    assert missing(recipe, rl={"grade": {"kinds": {"code": "answer"}}}) == ["coded/grade"]
    assert missing(recipe, CODE) == ["coded/grade", "coded/rl", "coded/evaluate"]
    assert missing(recipe, CODE, convert={"format": "ifeval"}) == ["coded/evaluate"]


def test_a_function_of_the_users_own_needs_one_unless_it_runs_in_the_stage(recipe: Path) -> None:
    Path("reward.py").write_text("def reward(*_):\n    return 1.0\n")
    own = {"file": "reward.py", "function": "reward"}
    math = {"kind": "math"}
    grade = {"kinds": {"math": "python"}, "python": own}
    assert missing(recipe, convert=math, grade=grade) == ["coded/grade"]
    grade = {"kinds": {"math": "python"}, "python": {**own, "sandboxed": False}}
    assert missing(recipe, convert=math, grade=grade) == []


def test_services_need_nothing_of_this_machine(recipe: Path) -> None:
    placement = {"engine": "http", "urls": ["http://nowhere.invalid"]}
    assert missing(recipe, CODE, placement) == []


def test_rlimits_as_unsafe_needs_no_namespaces(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem(engine: str, python: str, packages: bool) -> str | None:
        return None if engine == "rlimits" else "not possible"

    monkeypatch.setattr(opening, "problem_of", problem)
    assert missing(recipe, CODE, {"engine": "rlimits", "unsafe": True}) == []
    assert missing(recipe, CODE) == ["coded/grade", "coded/rl", "coded/evaluate"]


def test_the_formats_of_code_are_named() -> None:
    # Their readers give every row the kind "code".
    for name, one in FORMATS.items():
        text = Path(sys.modules[one.read.__module__].__file__ or "").read_text()
        only = '"code", ' in text and name != "am_rl"
        assert (name in CODE_FORMATS) == only, name


def without_namespaces(*words: str) -> subprocess.CompletedProcess[str]:
    """``pclr-ms`` where no process can make a namespace."""
    helper = ROOT / "tests" / "helpers" / "without_namespaces.py"
    code = "import sys; from pcl_reasoner.cli.main import main; sys.exit(main())"
    command = [sys.executable, str(helper), sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_run_without_namespaces_ends_before_its_first_stage(tmp_path: Path) -> None:
    done = without_namespaces(
        "run", str(ROOT / "recipes" / "am_thinking_v1.yaml"), "--runs", str(tmp_path)
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    stages = ("check_tests", "grade_rates", "rl_1", "rl_2")
    names = ", ".join(f"am_thinking_v1/{stage}" for stage in stages)
    assert line.startswith(f"error: {names}") and "no sandbox can be had on this mach" in line
    assert not any(one.is_dir() for one in tmp_path.iterdir())


def test_doctors_row(monkeypatch: pytest.MonkeyPatch) -> None:
    need("unshare")
    row = doctor_row()
    assert (row.ok, row.needed, row.advice) == (True, False, "")
    assert row.found.partition(", ")[2].startswith("9 of 9 attacks held, memory limited by ")
    check = "pcl_reasoner.sandbox.self_check.check_sandbox"
    monkeypatch.setattr(check, lambda *_: SelfCheck(True, 9, ("the password file",)))
    row = doctor_row()
    assert not row.ok
    assert "8 of 9 attacks held" in row.found
    assert row.advice.startswith("Not held: the password file. ")
    monkeypatch.setattr(opening, "problem_of", lambda engine, python, packages: "not possible")
    row = doctor_row()
    assert (row.ok, row.found) == (True, "not found")
    assert row.advice.startswith("no sandbox can be had on this machine, so ")
