"""Responses to problems of several kinds in one stage: each is graded in its own way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, judge_server, write_responses
from reward_model import expected_score, write
from sandbox_helpers import PYTHON, need

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.grade import stage
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.sandbox.opening import choose
from pcl_reasoner.verifiers import programs
from pcl_reasoner.verifiers.logs import TEST_LOG

CASES = [{"input": f"{n}\n", "output": f"{2 * n}\n"} for n in (1, 2, 3, 4)]
FORM = {"format": "stdin"}
CODE = {"tests": {**FORM, "cases": CASES}}
WORDS = {
    "instructions": [
        {"id": "punctuation:no_comma", "kwargs": {}},
        {"id": "change_case:english_lowercase", "kwargs": {}},
    ]
}
PROBLEMS: dict[str, tuple[str, str, Any]] = {
    "c": ("code", "", CODE),
    "i": ("instruction", "", WORDS),
    "m": ("math", "8", None),
    "t": ("chat", "", None),
}


def thought(text: str) -> str:
    return f"<think>so</think>{text}"


def block(code: str) -> str:
    return thought(f"Here:\n```python\n{code}\n```")


ROWS = [
    ("c", 0, block("print(2 * int(input()))"), "stop", 9),
    ("c", 1, block("n = int(input())\nprint(2 * n if n < 3 else 0)"), "stop", 9),
    ("c", 2, thought("I would double it."), "stop", 5),
    ("c", 3, "<think>so\n```python\nprint(2 * int(input()))\n```", "length", 9),
    ("c", 4, block("print('x')"), "stop", 9),
    ("c", 5, "", "error", 0),
    ("i", 0, thought("<answer>dog cat</answer>"), "stop", 4),
    ("i", 1, thought("dog, cat"), "stop", 4),
    ("i", 2, thought("Dog, Cat"), "stop", 4),
    ("m", 0, correct("8"), "stop", 4),
    ("t", 0, thought("Good day, Ben, and how are you?"), "stop", 9),
    ("t", 1, thought("1 + 1 is 2."), "stop", 6),
    ("t", 2, "<think>so", "length", 6),
]
VERDICTS = {
    ("c", 0): ("correct", 1.0, "tests", 1.0),
    ("c", 1): ("incorrect", 0.0, "tests", None),
    ("c", 2): ("no_code", 0.0, "tests", None),
    ("c", 3): ("unfinished", 0.0, "tests", None),
    ("c", 4): ("incorrect", 0.0, "tests", None),
    ("c", 5): ("error", 0.0, "tests", None),
    ("i", 0): ("correct", 1.0, "instructions", 1.0),
    ("i", 1): ("passed_some", 0.0, "instructions", 0.5),
    ("i", 2): ("incorrect", 0.0, "instructions", 0.0),
    ("m", 0): ("correct", 1.0, "rule", None),
}
CONFIG = GradeConfig(reward_model={"engine": "local"}, code_reward="all")


def write_problems(folder: Path, problems: dict[str, tuple[str, str, Any]] = PROBLEMS) -> None:
    folder.mkdir()
    rows = [
        {
            "problem_id": name,
            "problem": "Greet Ben." if kind == "chat" else f"problem {name}",
            "ground_truth": truth,
            "kind": kind,
            "checks": json.dumps(checks) if isinstance(checks, dict) else checks,
        }
        for name, (kind, truth, checks) in problems.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clean.parquet")


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    need("unshare")
    write_responses(tmp_path / "sample", ROWS)
    write_problems(tmp_path / "problems")
    model = write(tmp_path / "reward")
    return {
        "responses": tmp_path / "sample",
        "problems": tmp_path / "problems",
        "reward_model": model,
    }


def run(
    inputs: dict[str, Path],
    output: Path,
    config: GradeConfig = CONFIG,
    placement: Placement | None = None,
) -> tuple[Counts, dict[tuple[str, int], dict[str, Any]], StageContext]:
    output.mkdir(exist_ok=True)
    context = StageContext("grade", output / "quarantined.jsonl", placement or Placement())
    counts = stage.grade(config, inputs, output, context)
    rows = pq.read_table(output / "verdicts.parquet").to_pylist()
    return counts, {(row["problem_id"], row["sample_index"]): row for row in rows}, context


def test_every_kind_in_its_own_way(inputs: dict[str, Path], tmp_path: Path) -> None:
    counts, rows, _ = run(inputs, tmp_path / "out")
    assert len(rows) == len(ROWS)
    for key, (verdict, reward, grader, score) in VERDICTS.items():
        row = rows[key]
        found = (row["verdict"], row["reward"], row["graded_by"], row["score"])
        assert found == (verdict, reward, grader, score), key
    detail = {"passed": 1, "total": 4, "weak": 0, "case": 0, "reason": "wrong", "text": "x\n"}
    assert json.loads(rows["c", 4]["detail"]) == {**detail, "passed": 0}
    assert json.loads(rows["i", 1]["detail"]) == {"not_followed": ["punctuation:no_comma"]}
    for index, text in ((0, "Good day, Ben, and how are you?"), (1, "1 + 1 is 2.")):
        score = expected_score(inputs["reward_model"], "Greet Ben.", text)
        row = rows["t", index]
        assert (row["verdict"], row["graded_by"]) == ("scored", "reward_model")
        assert row["score"] == pytest.approx(score, abs=1e-4)
        assert row["reward"] == pytest.approx(1 / (1 + 2.718281828459045**-score), abs=1e-4)
    assert rows["t", 2]["verdict"] == "unfinished"
    assert counts.info["programs"] == {
        "tested": 3,
        "passed_all": 1,
        "weak_tests": 0,
        "failures": {"wrong": 2},
    }
    assert counts.info["kinds"]["code"] == {"responses": 6, "mean_reward": pytest.approx(1 / 6)}
    written = json.loads((tmp_path / "out" / "grading.json").read_text())
    assert written["sandbox"]["engine"] in ("bubblewrap", "unshare")
    assert written["sandbox"]["python_version"].startswith("3.")
    assert written["sandbox"]["memory_limited_by"] in ("cgroup v1", "cgroup v2", "polling")
    assert written["sandbox"]["python"] == PYTHON
    assert sorted(path.name for path in (tmp_path / "out").glob("*.partial.jsonl")) == []


def test_the_share_is_the_reward_where_the_recipe_says_so(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"code_reward": "share", "instruction_reward": "share"})
    _, rows, _ = run(inputs, tmp_path / "out", config)
    assert [rows["c", index]["reward"] for index in range(5)] == [1.0, 0.5, 0.0, 0.0, 0.0]
    assert [rows["i", index]["reward"] for index in range(3)] == [1.0, 0.5, 0.0]
    assert [rows["c", index]["score"] for index in range(5)] == [1.0, 0.5, None, None, 0.0]
    assert rows["c", 1]["verdict"] == "passed_some"


@pytest.mark.parametrize("cases", [CASES, CASES[::-1]])
def test_no_number_depends_on_the_order_of_the_tests(
    inputs: dict[str, Path], tmp_path: Path, cases: list[dict[str, str]]
) -> None:
    """The second response of problem c doubles 1 and 2, and not 3 and 4."""
    write_problems(tmp_path / "other", {"c": ("code", "", {"tests": {**FORM, "cases": cases}})})
    write_responses(tmp_path / "some", [ROWS[1]])
    other = {**inputs, "problems": tmp_path / "other", "responses": tmp_path / "some"}
    found = {}
    for rule in ("all", "share"):
        config = CONFIG.model_copy(update={"code_reward": rule})
        _, rows, _ = run(other, tmp_path / rule, config)
        found[rule] = tuple(rows["c", 1][name] for name in ("verdict", "reward", "score"))
    assert found == {"all": ("incorrect", 0.0, None), "share": ("passed_some", 0.5, 0.5)}


def test_a_response_that_the_judge_refuses_is_an_error_and_no_low_reward(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    """(9 + 9 + 9) / 30 is 0.9; the third response has no answer to rate."""

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        refused = "1 + 1 is 2." in body["messages"][0]["content"]
        return (400, "too long") if refused else (200, "\\boxed{9, 9, 9}")

    kinds = {**CONFIG.kinds, "chat": "rubric"}
    config = GradeConfig(kinds=kinds, judge_model="j", max_missing=0.5)
    with judge_server(answer) as (url, _):
        counts, rows, _ = run(inputs, tmp_path / "out", config, Placement(judge_urls=[url]))
    found = [(rows["t", index]["verdict"], rows["t", index]["reward"]) for index in range(3)]
    assert found == [("scored", pytest.approx(0.9)), ("error", 0.0), ("unfinished", 0.0)]
    ratings = counts.info["ratings"]
    assert ratings["missing"] == {"status 400": 1}
    described = json.loads((tmp_path / "out" / "grading.json").read_text())["rubric"]
    assert ratings["prompt_sha256"] == described["prompt_sha256"]
    assert list((tmp_path / "out").glob("*.partial.jsonl")) == []


def test_results_of_another_python_are_not_mixed_with_this_ones(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    """The log of a killed run was written before an upgrade; a wrong result shows its use."""
    output = tmp_path / "out"
    output.mkdir()
    log = output / TEST_LOG
    choice = choose(CONFIG.sandbox, Placement().sandbox)
    by = {"engine": choice.engine, "python": choice.python, "python_version": choice.version}
    result = {"passed": 0, "total": 4, "weak": 0, "case": 0, "reason": "wrong", "text": ""}
    line = {"problem_id": "c", "sample_index": 0, **result}

    def write(facts: dict[str, str]) -> None:
        first = {"answered_by": facts}
        log.write_text(f"{json.dumps(first)}\n{json.dumps(line)}\n")

    write({**by, "python_version": "3.8.0 on x86_64"})
    _, rows, context = run(inputs, output)
    assert rows["c", 0]["verdict"] == "correct"
    assert any("tests.partial.jsonl was left by a run with" in one for one in context.warnings)
    (output / "grading.json").unlink()
    write(by)
    _, rows, context = run(inputs, output)
    assert rows["c", 0]["verdict"] == "incorrect"
    assert context.warnings == []


HALF = "'half of a pair: \\ud800'"


def test_half_of_a_surrogate_pair_stops_no_stage(inputs: dict[str, Path], tmp_path: Path) -> None:
    """No file can have it, and a candidate chooses the text of its exceptions."""
    checks = {"format": "functional", "entry": "f", "cases": [{"args": [1], "out": 2}]}
    write_problems(tmp_path / "other", {"c": ("code", "", {"tests": checks}), "t": PROBLEMS["t"]})
    code = block(f"def f(x):\n    raise ValueError({HALF})")
    write_responses(tmp_path / "some", [("c", 0, code, "stop", 9), ROWS[10]])
    file = tmp_path / "reward.py"
    file.write_text(f"def reward(problem, response, ground_truth, checks):\n    return 1, {HALF}\n")
    other = {**inputs, "problems": tmp_path / "other", "responses": tmp_path / "some"}
    for sandboxed in (True, False):
        python = {"file": str(file), "sandboxed": sandboxed}
        config = GradeConfig(kinds={**CONFIG.kinds, "chat": "python"}, python=python)
        _, rows, _ = run(other, tmp_path / f"out{sandboxed}", config)
        assert json.loads(rows["c", 0]["detail"])["text"] == "ValueError: half of a pair: ?"
        assert json.loads(rows["t", 0]["detail"]) == {"why": "half of a pair: ?"}


def test_a_killed_stage_tests_no_program_twice(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(stage._Grading, "write", kill)
        run(inputs, tmp_path / "out")
    log = tmp_path / "out" / TEST_LOG
    kept = log.read_text().splitlines()
    assert len(kept) == 1 + 3
    log.write_text("\n".join(kept[:3]) + "\n" + kept[3][:20])
    asked: list[Any] = []
    really = programs._test

    def count(sandboxes: Any, untested: Any, *others: Any) -> None:
        listed = list(untested)
        asked.extend(listed)
        really(sandboxes, listed, *others)

    monkeypatch.setattr(programs, "_test", count)
    _, rows, _ = run(inputs, tmp_path / "out")
    assert len(asked) == 1
    assert rows["c", 0]["verdict"] == "correct"


def test_a_function_of_the_users_own(inputs: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text(
        "def reward(problem, response, ground_truth, checks):\n"
        "    last = response.split('</think>')[-1]\n"
        "    return min(len(last) / 20, 1.0), f'{problem}, {ground_truth}, {checks}'\n"
    )
    kinds = {**CONFIG.kinds, "chat": "python", "math": "python"}
    for sandboxed in (True, False):
        python = {"file": str(file), "function": "reward", "sandboxed": sandboxed}
        config = GradeConfig(kinds=kinds, python=python)
        _, rows, _ = run(inputs, tmp_path / f"out{sandboxed}", config)
        assert rows["t", 1]["reward"] == pytest.approx(11 / 20)
        assert (rows["t", 1]["verdict"], rows["t", 1]["graded_by"]) == ("scored", "python")
        assert json.loads(rows["m", 0]["detail"]) == {"why": "problem m, 8, {}"}
        hashed = config.named_files()
        assert hashed == {"python.file": file}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1.5", r"got 1.5, expected a number in \[0, 1\]"),
        ("return None", "got None, expected a number"),
        ("return float('nan')", "got nan, expected a number"),
        ("return 1 / 0", "response t/[01]: .*ZeroDivisionError: division by zero"),
        ("import os\n    return len(os.listdir('/home'))", "FileNotFoundError"),
    ],
)
def test_a_function_that_gives_no_reward(
    inputs: dict[str, Path], tmp_path: Path, body: str, message: str
) -> None:
    file = tmp_path / "reward.py"
    file.write_text(f"def reward(problem, response, ground_truth, checks):\n    {body}\n")
    config = GradeConfig(kinds={**CONFIG.kinds, "chat": "python"}, python={"file": str(file)})
    with pytest.raises(StageError, match=message):
        run(inputs, tmp_path / "out", config)


def test_a_response_that_never_came_is_not_counted_as_rewarded(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "reward.py"
    file.write_text("def reward(problem, response, ground_truth, checks):\n    return 1\n")
    config = GradeConfig(kinds={**CONFIG.kinds, "chat": "python"}, python={"file": str(file)})
    rows = [("t", 0, thought("Hello!"), "stop", 4), ("t", 1, "", "error", 0)]
    write_responses(tmp_path / "some", [*rows, ("t", 2, "", "timeout", 0)])
    other = {**inputs, "responses": tmp_path / "some"}
    counts, found, _ = run(other, tmp_path / "out", config)
    assert [row["verdict"] for row in found.values()] == ["scored", "error", "timeout"]
    assert counts.info["python"]["called"] == 1


@pytest.mark.parametrize(
    ("problems", "kinds", "message"),
    [
        (
            {"c": ("code", "", None)},
            None,
            "problem c has the kind code and has no tests. Convert its source with a format that",
        ),
        (
            {"c": ("code", "", {"tests": {"format": "x", "cases": [1]}})},
            None,
            "problem c has the kind code and has unreadable tests: format: ",
        ),
        ({"c": ("kode", "", CODE)}, None, "has the kind 'kode', expected one of math, .*code"),
        ({"c": ("code", "", "{")}, None, "problem c: its checks are no JSON object"),
        ({"i": ("instruction", "", None)}, None, "problem i, checks.instructions"),
        (
            {"i": ("instruction", "", {"instructions": [{"id": "a:b", "kwargs": {}}]})},
            None,
            "'a:b' is unknown",
        ),
        ({"t": ("chat", "", None)}, {"math": "answer"}, "kind 'chat', and grade.kinds says"),
    ],
)
def test_a_problem_that_lacks_what_its_kind_needs(
    inputs: dict[str, Path], tmp_path: Path, problems: Any, kinds: Any, message: str
) -> None:
    (only,) = problems
    write_problems(tmp_path / "other", problems)
    rows = [row for row in ROWS if row[0] == only][:2]
    write_responses(tmp_path / "some", rows)
    config = CONFIG.model_copy(update={"kinds": kinds}) if kinds else CONFIG
    other = {**inputs, "problems": tmp_path / "other", "responses": tmp_path / "some"}
    with pytest.raises(StageError, match=message):
        run(other, tmp_path / "out", config)


def test_weak_tests_are_counted_said_and_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    looks = "import inspect, solution\ndef test():\n    assert inspect.isfunction(solution.f)\n"
    checks = {"tests": {"format": "pytest", "cases": [looks]}}
    write_problems(tmp_path / "other", {"c": ("code", "", checks)})
    write_responses(tmp_path / "some", [("c", 0, block("def f(): pass"), "stop", 4)])
    other = {**inputs, "problems": tmp_path / "other", "responses": tmp_path / "some"}
    _, rows, context = run(other, tmp_path / "out")
    assert rows["c", 0]["verdict"] == "correct"
    assert any("1 tests passed in the candidate's interpreter" in one for one in context.warnings)
    config = GradeConfig(sandbox={"weak": "refuse"})
    _, rows, _ = run(other, tmp_path / "out2", config)
    assert (rows["c", 0]["verdict"], rows["c", 0]["reward"]) == ("incorrect", 0.0)


def test_a_weak_test_that_fails_is_not_subtracted_from_those_that_pass(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    apart = "from solution import f\ndef test():\n    assert f() == 1\n"
    looks = "import inspect, solution\ndef test():\n    assert inspect.isclass(solution.f)\n"
    checks = {"tests": {"format": "pytest", "cases": [apart, looks]}}
    write_problems(tmp_path / "other", {"c": ("code", "", checks)})
    write_responses(tmp_path / "some", [("c", 0, block("def f(): return 1"), "stop", 4)])
    other = {**inputs, "problems": tmp_path / "other", "responses": tmp_path / "some"}
    config = GradeConfig(sandbox={"weak": "refuse"}, code_reward="share")
    _, rows, _ = run(other, tmp_path / "out", config)
    # Of two tests one passed, apart from the program, and one failed.
    assert (rows["c", 0]["verdict"], rows["c", 0]["reward"]) == ("passed_some", 0.5)
