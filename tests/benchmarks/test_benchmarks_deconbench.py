"""DeconBench: its answers are right, its classes are complete, and it counts right."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deconbench import __main__ as main_module
from deconbench.__main__ import control, table
from deconbench.cases import NEIGHBOURS, SWAPPED, WRITTEN, Case, cases, problems, swapped
from deconbench.checkers import grams, minhash, one_in_common, two_stages, weighted

from pcl_reasoner.contamination.fingerprints import Question

PROBLEMS = problems()


@pytest.mark.parametrize("topic", ["nt", "co", "al", "ge", "pr"])
def test_every_program_prints_the_answer(topic: str, tmp_path: Path) -> None:
    chosen = [one for one in PROBLEMS if one["id"].startswith(topic)]
    assert len(chosen) == 12
    for one in chosen:
        (tmp_path / "program.py").write_text(one["program"])
        command = [sys.executable, str(tmp_path / "program.py")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert ended.stdout.strip() == one["answer"], one["id"]


def test_every_class_has_sixty_texts_or_more_and_no_text_comes_twice() -> None:
    made = cases(PROBLEMS)
    counts = Counter(case.kind for case in made)
    assert min(counts.values()) == 60 and counts[NEIGHBOURS] == 300
    written = [case.text for case in made if case.kind in (*WRITTEN, NEIGHBOURS)]
    asked = [one["problem"] for one in PROBLEMS]
    assert len({*written, *asked}) == len(written) + len(asked)
    assert Counter(case.half for case in made if case.kind == "solution") == {
        "tune": 30,
        "report": 30,
    }
    assert {case.half for case in made if case.source == "al-03"} == {"tune"}


def test_n_grams_in_common() -> None:
    question = Question("b", "1", "one two three four five")
    assert grams("One, two; THREE!", 2) == {("one", "two"), ("two", "three")}
    texts = ["x two three four y", "two three, or four", "one"]
    assert one_in_common(texts, [question], 3) == [True, False, False]
    # Two questions of two pairs; a pair of both counts ln 2, one of a single question ln 3.
    both = [Question("b", "1", "a b c"), Question("b", "2", "a b d")]
    assert weighted(["b c", "a b", "x"], both, size=2, share=0.6) == [True, False, False]
    assert weighted(["a b"], both, size=2, share=0.38) == [True]


def test_minhash_finds_nearly_equal_texts() -> None:
    pytest.importorskip("datasketch", reason="a peer of benchmarks: requirements/benchmarks.txt")
    words = [f"w{number}" for number in range(100)]
    question = Question("b", "1", " ".join(words))
    # 96 n-grams; of the first other text 91 of 96 are the same, of the second 6 of 186.
    texts = [" ".join(words[:95]), " ".join(words[:10] + [f"v{n}" for n in range(90)])]
    assert minhash(texts, [question]) == [True, False]


def test_a_judge_sees_only_the_nearest_texts() -> None:
    question = Question("b", "1", "How many apples does Tom have?")
    near, far = "Tom has some apples. How many are there?", "Prove that the group is abelian."
    assert two_stages([near, far], [question], {near, far}, nearest=1) == [True, False]
    assert two_stages([near, far], [question], {far}, nearest=2) == [False, True]


def test_the_table_counts_copies_among_what_is_flagged() -> None:
    made = [
        Case("al-01", "solution", "a", True),
        Case("al-02", "solution", "b", True),
        Case("al-01", NEIGHBOURS, "c", False),
        Case("al-01", "other numbers", "d", False),
    ]
    lines = table(made, {"ours": [True, False, True, True]})
    cells = {line[:26].strip(): line[26:].split() for line in lines}
    assert cells["solution"][:2] == ["2", "1"]
    assert cells[NEIGHBOURS][:2] == ["1", "1"]
    assert cells["precision"] == ["50.0%"]  # the class with other numbers is not counted


SMALL = [
    {"id": "al-01", "restated": "a b c", "neighbours": ["a b x", "y z"]},
    {"id": "al-02", "restated": "d e f", "neighbours": ["g h", "d e f a b"]},
]


def test_the_control_asks_for_a_neighbour_and_checks_the_originals_paraphrase() -> None:
    turns = swapped(SMALL)
    assert [[question.text for question in asked] for _, asked in turns] == [
        ["a b x", "g h"],
        ["y z", "d e f a b"],
    ]
    assert {tuple(case.text for case in made) for made, _ in turns} == {("a b c", "d e f")}
    assert {case.copy for made, _ in turns for case in made} == {False}
    assert sum(len(made) for made, _ in swapped(PROBLEMS)) == 300
    uneven = [SMALL[0], SMALL[1] | {"neighbours": ["g h"]}]
    with pytest.raises(ValueError, match="zip"):
        swapped(uneven)


def test_the_control_counts_each_neighbour_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # "style" takes every paraphrase for a copy. Of 2-grams, "a b" is in two of the neighbours, so
    # the first text is flagged in both turns; "d e" is in the last neighbour, so the other once.
    two = functools.partial(one_in_common, size=2)
    checkers = {"2-grams": two, "style": lambda texts, _: [True] * len(texts)}
    monkeypatch.setattr(main_module, "CHECKERS", checkers)
    found = control(SMALL, ["2-grams", "style"])
    # Wilson by hand, z = 1.96: 3 of 4 gives (1.2302 -/+ 0.6408) / 1.9604, 4 of 4 from 1 / 1.9604.
    cells = "4   3 [ 30%,  95%]   4 [ 51%, 100%]"
    assert found[:26].strip() == SWAPPED and found[26:].split() == cells.split()
