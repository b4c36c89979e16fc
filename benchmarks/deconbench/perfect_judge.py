"""This project's check with a judge that is always right: an upper bound of a second opinion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deconbench.cases import Case
from pcl_reasoner.contamination import check as check_module
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question
from pcl_reasoner.second_opinion.config import JudgeConfig
from pcl_reasoner.second_opinion.verdict_cache import Opinion


class PerfectJudge:
    """Stands in for ``second_opinion.judge.Judge``: it knows which text is which question.

    Args:
        copies: The pairs (text, question) to say yes to.

    ``asked`` counts the pairs.
    """

    def __init__(self, copies: set[tuple[str, str]]) -> None:
        self.config = JudgeConfig()
        self.copies = copies
        self.asked = 0

    def ask(self, texts: Mapping[int, Sequence[tuple[str, str]]]) -> dict[int, list[Opinion]]:
        """Answer until the first yes of each text."""
        found: dict[int, list[Opinion]] = {}
        for key, pairs in texts.items():
            found[key] = []
            for pair in pairs:
                self.asked += 1
                found[key].append(Opinion(pair in self.copies, ""))
                if found[key][-1].same:
                    break
        return found

    def is_cut(self, pair: tuple[str, str]) -> bool:
        """False: it reads every text as a whole."""
        return False

    def facts(self) -> dict[str, Any]:
        """Its name."""
        return {"served_model": "perfect"}

    def warn(self, message: str) -> None:
        """Say nothing."""


def judged(made: Sequence[Case], questions: Sequence[Question], cache: Path) -> list[bool]:
    """Flag the texts of cases; print how many pairs the judge was asked about.

    Args:
        made: The cases.
        questions: The benchmark.
        cache: Folder of the embedding cache.
    """
    problem = {question.id: question.text for question in questions}
    judge: Any = PerfectJudge({(case.text, problem[case.source]) for case in made if case.copy})
    config = ContaminationConfig(judge=judge.config)
    texts = [case.text for case in made]
    found = check_module.check(texts, questions, config, cache=cache, judge=judge)
    print(f"the perfect judge was asked about {judge.asked} pairs")
    return [found.matches[text].rule is not None for text in found.text_of_row]
