"""What the judge's verdicts change, with a judge whose verdicts are written down."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.second_opinion.config import JudgeConfig
from pcl_reasoner.second_opinion.decisions import Judged, second_opinion
from pcl_reasoner.second_opinion.suspects import Suspect
from pcl_reasoner.second_opinion.verdict_cache import Opinion


class Written:
    """Says what is written down for a question; asks like the real one: until the first yes."""

    def __init__(self, verdicts: dict[str, bool | None], characters: int = 100) -> None:
        self.config = JudgeConfig(characters=characters)
        self.verdicts = verdicts
        self.asked: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def ask(self, texts: dict[int, list[tuple[str, str]]]) -> dict[int, list[Opinion]]:
        found: dict[int, list[Opinion]] = {}
        for key, pairs in texts.items():
            found[key] = []
            for pair in pairs:
                self.asked.append(pair)
                found[key].append(Opinion(self.verdicts[pair[1]], "why", 1))
                if found[key][-1].same:
                    break
        return found

    def is_cut(self, pair: tuple[str, str]) -> bool:
        return max(map(len, pair)) > self.config.characters

    def facts(self) -> dict[str, Any]:
        return {"served_model": "written"}

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def suspect(question: int, rule: str | None = None) -> Suspect:
    return Suspect(question, 0.6, 0, 0.1, -1.5, rule)


def decided(
    found: list[Suspect], judge: Written, text: str = "t", copy: bool = False
) -> tuple[Judged, Any]:
    questions = ["a", "b", "c", "d", None]
    judged = second_opinion([text], {0: found}, questions, judge, lambda *_: copy)  # type: ignore[arg-type]
    return judged, judged.changes.get(0, "the rules decide")


RULES = "the rules decide"


@pytest.mark.parametrize(
    ("verdicts", "found", "change", "asked"),
    [
        # No rule flags: the first yes does, and no further question is asked.
        ({"a": False, "b": True}, [(0, None), (1, None), (2, None)], (1, "judge"), "ab"),
        ({"a": False, "b": False, "c": False}, [(0, None), (1, None), (2, None)], RULES, "abc"),
        ({"a": None}, [(0, None)], RULES, "a"),
        # At most three.
        (
            {"a": False, "b": False, "c": False, "d": True},
            [(0, None), (1, None), (2, None), (3, None)],
            RULES,
            "abc",
        ),
        # A rule flags: a yes keeps the rule's name; a no clears.
        ({"a": True}, [(0, "embedding")], (0, "embedding"), "a"),
        ({"a": False}, [(0, "embedding")], None, "a"),
        ({"a": False, "b": False}, [(0, "ngrams"), (1, None)], None, "ab"),
        ({"a": False, "b": True}, [(0, "ngrams"), (1, None)], (1, "judge"), "ab"),
        # It is not cleared if a flagged question was not denied.
        ({"a": False, "b": None}, [(0, "ngrams"), (1, "embedding")], RULES, "ab"),
        ({"a": False}, [(0, "ngrams"), (4, "embedding")], RULES, "a"),
        (
            {"a": False, "b": False, "c": False},
            [(0, "ngrams"), (1, "ngrams"), (2, "ngrams"), (3, "ngrams")],
            RULES,
            "abc",
        ),
        # A question without text takes nobody's place.
        ({"a": False, "b": False, "c": True}, [(4, None), (0, None), (1, None), (2, None)],
         (2, "judge"), "abc"),
        ({}, [(4, "embedding")], RULES, ""),
    ],
)  # fmt: skip
def test_decisions(
    verdicts: dict[str, bool | None],
    found: list[tuple[int, str | None]],
    change: Any,
    asked: str,
) -> None:
    judge = Written(verdicts)
    judged, got = decided([suspect(*one) for one in found], judge)
    if isinstance(got, Suspect):
        got = (got.question, got.rule)
    assert got == change
    assert "".join(question for _, question in judge.asked) == asked
    assert judged.cleared == ({0: found[0][1]} if change is None else {})


def test_a_certain_copy_is_not_put_to_the_judge() -> None:
    judge = Written({})
    judged, got = decided([suspect(0, "ngrams")], judge, copy=True)
    assert (got, judge.asked, judged.info()["certain"]) == (RULES, [], 1)


def test_a_no_about_a_text_of_which_it_saw_a_part_does_not_clear() -> None:
    for text, change in (("t" * 10, None), ("t" * 11, RULES)):
        judged, got = decided([suspect(0, "ngrams")], Written({"a": False}, 10), text)
        assert (got, judged.info()["cut"]) == (change, len(text) - 10)
    judged, got = decided([suspect(0)], Written({"a": True}, 10), "t" * 11)
    assert got.rule == "judge"


def test_counts_and_advice() -> None:
    judge = Written({"a": None, "b": True})
    judged, _ = decided([suspect(4), suspect(0), suspect(1)], judge)
    info = judged.info()
    names = ("texts", "judged", "yes", "no", "unreadable", "flagged", "cleared", "without_text")
    assert [info[name] for name in names] == [1, 2, 1, 0, 1, 1, 0, 1]
    assert info["summary"].startswith("1 texts, 1 flagged, 0 cleared. 1 close pairs have a quest")
    (warning,) = judge.warnings
    assert "give the file with the questions as the benchmark" in warning
    assert "no readable verdict on 1 of 2 pairs" in warning
