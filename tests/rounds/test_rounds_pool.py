"""Which problems a round asks, and which problems are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rl_helpers import Row, pool_of, rl_config, write_clean
from sample_helpers import model_folder

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.dialogue import Dialogue
from pcl_reasoner.rounds.pool import Pool, check_apart, queries_of, read_held_out, read_pool
from pcl_reasoner.verifiers.kept_checks import KeptChecks

NAMES = [f"p{index}" for index in range(7)]
TESTS = {"tests": {"format": "functional", "entry": "f", "cases": [{"args": [3], "out": 6}]}}


def rounds(count: int, names: list[str] = NAMES, **changes: Any) -> list[list[str]]:
    config = rl_config(**{"queries": 3} | changes)
    return [queries_of(names, config, number) for number in range(count)]


def test_a_pass_asks_no_problem_twice() -> None:
    # 7 problems, 3 per round: two rounds per pass, and one problem is not asked in it.
    for first, second in zip(rounds(8)[::2], rounds(8)[1::2], strict=True):
        assert len({*first, *second}) == 6
        assert {*first, *second} < {*NAMES}
        assert (first, second) == (sorted(first), sorted(second))


def test_a_pass_over_all_problems_is_a_permutation() -> None:
    assert {name for one in rounds(2, NAMES[:6]) for name in one} == {*NAMES[:6]}
    assert rounds(3, NAMES[:3]) == [NAMES[:3]] * 3


def test_passes_differ_and_ask_every_problem() -> None:
    asked = rounds(80)
    pairs = [{*one, *two} for one, two in zip(asked[::2], asked[1::2], strict=True)]
    left_out = {(set(NAMES) - pair).pop() for pair in pairs}
    assert left_out == {*NAMES}
    # 35 sets of three are possible.
    assert len({tuple(one) for one in asked}) > 25


def test_queries_depend_on_the_seed_and_the_round_only() -> None:
    assert rounds(6) == rounds(6)
    assert rounds(6, seed=6) != rounds(6)
    # Neither n nor the number of rounds changes them.
    assert rounds(6, n=5, max_rounds=9) == rounds(6)


@pytest.fixture(scope="module")
def dialogue(tmp_path_factory: pytest.TempPathFactory) -> Dialogue:
    folder = model_folder(tmp_path_factory.mktemp("policy"))
    return Dialogue(folder, rl_config(max_model_len=LONG, row_tokens=LONG))


LONG = 64
ROWS = [
    Row("b", "7 + 1?"),
    Row("a", "Tom has 3 apples."),
    Row("c", "Write f.", "code", "", TESTS),
    Row("d", "Greet Ben.", "chat", ""),
]


def read(folder: Path, rows: list[Row], dialogue: Dialogue, **changes: Any) -> Pool:
    write_clean(folder, rows)
    sizes = {"max_model_len": LONG, "row_tokens": LONG}
    return read_pool(folder, KeptChecks(folder), dialogue, rl_config(**sizes | changes))


def test_the_pool_is_sorted_and_knows_what_grading_needs(
    tmp_path: Path, dialogue: Dialogue
) -> None:
    pool = read(tmp_path, ROWS, dialogue)
    questions = [pool.problems.question(name) for name in pool.names]
    assert pool.names == ["a", "b", "c", "d"]
    assert pool.kinds() == ["math", "math", "code", "chat"]
    assert [one.truth for one in questions] == ["8", "8", "", ""]
    assert questions[2].checks == TESTS
    assert pool.prompts["b"].messages == [{"role": "user", "content": "7 + 1?"}]
    text = "<|im_start|>user\n7 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert dialogue.decode(pool.prompts["b"].ids) == text


def test_other_kinds_are_left_out(tmp_path: Path, dialogue: Dialogue) -> None:
    assert read(tmp_path, ROWS, dialogue, kinds=["math"]).names == ["a", "b"]


def test_fewer_problems_than_a_round_asks_are_refused(tmp_path: Path, dialogue: Dialogue) -> None:
    with pytest.raises(StageError, match=r"2 problems \(2 math\), and a round asks rl.queries = 3"):
        read(tmp_path, ROWS, dialogue, kinds=["math"], queries=3)
    with pytest.raises(StageError, match=r"none of its 4 problems is of kind science, which rl"):
        read(tmp_path, ROWS, dialogue, kinds=["science"])


def test_a_kind_without_a_method_is_refused(tmp_path: Path, dialogue: Dialogue) -> None:
    with pytest.raises(StageError, match="1 problems are of kind code, and rl.grade.kinds says"):
        read(tmp_path, ROWS[:3], dialogue, grade={"kinds": {"math": "answer"}})


def test_a_held_out_kind_without_a_method_is_refused(tmp_path: Path, dialogue: Dialogue) -> None:
    held_out = write_clean(tmp_path / "held_out", [Row("m"), Row("t", kind="chat")])
    config = rl_config(grade={"kinds": {"math": "answer"}})
    with pytest.raises(
        StageError, match="held_out: 1 problems are of kind chat, and rl.grade.kinds"
    ):
        read_held_out(held_out, dialogue, config)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (
            {"math": "tests", "code": "tests"},
            "problem a has no checks.tests, and rl.grade.kinds.ma",
        ),
        ({"math": "answer", "code": "answer"}, "problem c has no answer, and rl.grade.kinds.code "),
    ],
)
def test_a_method_that_does_not_fit_its_kind_is_refused_before_sampling(
    tmp_path: Path, dialogue: Dialogue, kinds: dict[str, str], words: str
) -> None:
    with pytest.raises(StageError, match=words):
        read(tmp_path, ROWS[:3], dialogue, grade={"kinds": kinds})
    held_out = held_out_file(tmp_path)
    with pytest.raises(StageError, match="Correct rl.grade.kinds, or give the problem its"):
        read_held_out(held_out, dialogue, rl_config(grade={"kinds": kinds}))


def test_prompts_that_leave_no_token_are_refused(tmp_path: Path, dialogue: Dialogue) -> None:
    rows = [*ROWS, Row("long", "Tom has 3 apples." * 20)]
    with pytest.raises(StageError, match=r"1 problems have 64 or more tokens \(first: long\)"):
        read(tmp_path, rows, dialogue)


def held_out_file(folder: Path) -> Path:
    problems = [
        {"id": "h2", "problem": "9 - 1?", "answer": "8"},
        {"id": "h1", "problem": "Write g.", "answer": "", "kind": "code", "checks": TESTS},
        {"id": "h0", "problem": "7 - 1?", "answer": "6"},
    ]
    file = folder / "held_out.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in problems))
    return file


def test_held_out_problems_are_the_first_of_the_file(tmp_path: Path, dialogue: Dialogue) -> None:
    config = rl_config(probe={"problems": 2})
    held_out = read_held_out(held_out_file(tmp_path), dialogue, config)
    assert (held_out.names, held_out.kinds()) == (["h1", "h2"], ["code", "math"])
    assert held_out.problems.question("h1").checks == TESTS
    assert held_out.problems.question("h2").truth == "8"


def test_held_out_problems_that_are_trained_on_are_refused(tmp_path: Path) -> None:
    def pool(folder: str, *rows: Row) -> Pool:
        return pool_of(tmp_path / folder, rows, {one.name: [1] for one in rows})

    trained = pool("a", Row("a", "Tom has  3 apples.\n"), Row("b", "7 + 1?"))
    check_apart(trained, pool("apart", Row("h", "Tom has 4 apples."), Row("i", "9 - 1?")))
    for folder, both in (("id", Row("b", "9 - 1?")), ("text", Row("h", "Tom has 3  apples."))):
        held_out = pool(folder, both, Row("i", "9 - 2?"))
        with pytest.raises(StageError, match=f"1 held-out problems are also .*first: {both.name}"):
            check_apart(trained, held_out)
