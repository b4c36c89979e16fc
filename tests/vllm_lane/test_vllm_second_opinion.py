"""The contamination check's judge on a real vLLM: a random tiny model, whose verdicts are noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from second_opinion_helpers import PART, QUESTIONS, ROWS, write_lines
from vllm_helpers import CONTEXT, context, served

from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.findings import Findings
from pcl_reasoner.contamination.reading import read_questions
from pcl_reasoner.second_opinion.judge import Judge
from pcl_reasoner.synthetic.base_model import write_model_folder


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    weights = tmp_path / "weights"
    write_model_folder(weights, ["yes no verdict"], vocab_size=300, hidden=64, layers=1, seed=1)
    yield from served(weights, "judge", tmp_path)


def test_noise_leaves_the_decisions_of_the_rules(url: str, tmp_path: Path) -> None:
    """Each pair is asked twice, kept and counted; what is too long is refused and counted."""
    prompt = tmp_path / "mine.txt"
    prompt.write_text("{question} {text}?")
    questions = read_questions({"mine": write_lines(tmp_path / "mine.jsonl", "problem", QUESTIONS)})
    rules = check(ROWS, questions, ContaminationConfig(embedding=False))
    where = context(tmp_path / "out", judge_urls=[url])

    def judged(rows: list[str], characters: int) -> Findings:
        told = {"prompt": str(prompt), "max_model_len": CONTEXT, "max_new_tokens": 16}
        settings = {"embedding": False, "judge": {**told, "characters": characters}}
        config = ContaminationConfig.model_validate(settings)
        assert config.judge is not None
        judge = Judge(config.judge, where, tmp_path / "out", tmp_path / "cache")
        return check(rows, questions, config, judge=judge)

    found = judged(ROWS, 100)
    assert [one.rule for one in found.matches] == [one.rule for one in rules.matches]
    told = found.facts()["judge"]
    assert (told["judged"], told["unreadable"], told["asked_again"]) == (2, 2, 2)
    assert told["servers"][0]["owned_by"] == "vllm"
    (file,) = (tmp_path / "cache").glob("*/verdicts.jsonl")
    before = file.read_bytes()
    assert judged(ROWS, 100).facts() == found.facts() and file.read_bytes() == before
    refused = judged([PART * 8], 4000).facts()["judge"]
    assert (refused["unreadable"], refused["flagged"]) == (1, 0)
    assert any("the judge refused 1 pairs" in one for one in where.warnings)
