"""Result files of others: forms, what is incorrect with them, and grading again by one command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.evaluate.rescore import rescore
from pcl_reasoner.evaluate.results import benchmark_of, read_results
from pcl_reasoner.evaluate.scores import paired_difference, sampling_error, within_budget
from pcl_reasoner.evaluate.summary import Sample, summary
from pcl_reasoner.evaluate.verdict import RESOLUTION, separable, verdict, verdicts

T, F = True, False
ONE = "cfe29f43bcc2"
"""The first twelve digits of the SHA-256 of 1+1?"""


def said(number: int) -> str:
    return f"<think>so</think>It is \\boxed{{{number}}}."


def write(path: Path, *records: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_a_line_a_sample_and_a_line_a_question_are_one(tmp_path: Path) -> None:
    each = [
        {"prompt": "1+1?", "answer": "2", "gen": [said(number)], "accuracy": accuracy}
        for number, accuracy in ((2, 1.0), (3, 0.0), (2, 0.0))
    ]
    together = {
        "prompt": "1+1?",
        "answer": 2,
        "gen": [said(2), said(3), said(2)],
        "accuracy": [1.0, 0.0, 0.0],
    }
    lines = read_results(write(tmp_path / "a.jsonl", *each), "b")[0]["b"][ONE][1]
    assert lines == read_results(write(tmp_path / "b.jsonl", together), "b")[0]["b"][ONE][1]
    assert [one.correct for one in lines] == [True, False, True]
    assert [one.disputed for one in lines] == [False, False, True]
    assert [one.answer for one in lines] == ["2", "3", "2"]


def test_a_failed_sample_is_incorrect_and_an_unclosed_think_earns_nothing(tmp_path: Path) -> None:
    # Defect 11, and samples that LLMEval writes as null or "".
    responses = [None, "", "<think>it is \\boxed{2}", said(2)]
    file = write(tmp_path / "a.jsonl", {"prompt": "1+1?", "answer": "2", "gen": responses})
    samples = read_results(file, "b")[0]["b"][ONE][1]
    assert [one.outcome for one in samples] == ["error", "error", "unfinished", "correct"]
    assert [one.recorded for one in samples] == [None] * 4


def test_what_cannot_be_read_is_counted_with_line_and_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", {"prompt": "1+1?", "answer": "2", "gen": said(2)})
    with file.open("ab") as handle:
        handle.write(b'{"prompt": "cut off\n\n[1]\n\xff\xfe\n{"prompt": "p", "gen": ["x"]}\n')
        handle.write(b'{"prompt": "p", "answer": "1"}\n')
    found, refused = read_results(file, "b")
    assert len(found["b"]) == 1
    assert [line for line, _, _ in refused] == [2, 4, 5, 6, 7]
    assert refused[3][1].startswith("no answer in answer or")
    assert refused[4][1].startswith("no response in gen or")
    empty = write(tmp_path / "empty.jsonl", [1])
    with pytest.raises(InputError, match="no result in it \\(1 lines refused, the first: not an"):
        read_results(empty, "b")


def test_what_tests_graded_counts_as_it_was_recorded_and_is_not_disputed(tmp_path: Path) -> None:
    """The lines that the stage evaluate writes of LiveCodeBench and IFEval."""
    ends = ["<think>so</think>x", "<think>so</think>\\boxed{1}", "<think>so", ""]
    code = {"id": "a", "benchmark": "lcb", "prompt": "Write f.", "answer": "", "kind": "code"}
    scored = {"gen": ends, "accuracy": [1.0, 0.0, 0.0, 0.0]}
    reasons = ["stop", "stop", "length", "timeout"]
    told = {**code, "id": "b", "kind": "instruction", "gen": ["x"], "accuracy": 1.0}
    unscored = {**code, "id": "c", "gen": ends, "accuracy": [1.0]}
    lines = [{**code, **scored, "finish_reason": reasons}, told, unscored]
    (found,) = rescore(write(tmp_path / "generations.jsonl", *lines), "model", None, len)
    samples = {name: group for name, (_, group) in found.graded.items()}
    outcomes = ["correct", "incorrect", "unfinished", "timeout"]
    assert [one.outcome for one in samples["a"]] == outcomes
    assert [one.outcome for one in samples["b"]] == ["correct"]
    assert [one.tokens for one in samples["a"]] == [18, 26, 9, 0]
    # (1/4 + 1/1) / 2
    assert found.figures["avg_at_n"] == found.figures["recorded"] == 0.625
    assert found.figures["disputed"] == 0
    reason = "kind code: what grades it is not in the file, and no score per response (accuracy, "
    assert [(line, why[: len(reason)]) for line, why, _ in found.refused] == [(3, reason)]


def test_a_line_whose_kind_has_no_answer_and_no_score_is_refused(tmp_path: Path) -> None:
    sums = {"prompt": "1+1?", "answer": "2", "gen": said(2), "benchmark": "b"}
    code = {"prompt": "Write f.", "answer": "", "gen": ["x"], "kind": "code"}
    lines = [
        {**sums, "kind": "science"},
        {**code, "benchmark": "c"},
        {**sums, "prompt": "2?", "kind": "algebra"},  # a field of somebody else's
    ]
    found, refused = read_results(write(tmp_path / "a.jsonl", *lines))
    assert [one.kind for one, _ in found["b"].values()] == ["science", "math"]
    assert [line for line, _, _ in refused] == [2] and list(found) == ["b"]
    # A line of a benchmark that was not asked for is not refused.
    assert read_results(tmp_path / "a.jsonl", "b")[1] == []


def test_one_question_with_two_answers_is_an_error(tmp_path: Path) -> None:
    lines = [{"prompt": "1+1?", "answer": answer, "gen": said(2)} for answer in ("2", "3")]
    with pytest.raises(InputError, match="line 2: the answer '3', and '2' earlier"):
        read_results(write(tmp_path / "a.jsonl", *lines), "b")


def test_sampling_error_is_of_the_samples_alone() -> None:
    # p = 3/4 of 4: 0.1875 / 3 = 0.0625; p = 1/2 of 2: 0.25 / 1; sqrt(0.3125) / 2 = 0.2795085.
    assert sampling_error([[T, T, T, F], [T, F]]) == pytest.approx(0.2795085, abs=1e-7)
    assert sampling_error([[T, T], [F, F]]) == 0
    assert sampling_error([[T], [F, F]]) is None


def test_a_budget_cuts_what_is_longer() -> None:
    correct, lengths = [[T, T, F], [T, F, F]], [[10, 20, 5], [30, 1, 1]]
    assert within_budget(correct, lengths, 30) == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert within_budget(correct, lengths, 20) == pytest.approx((2 / 3 + 0) / 2)
    assert within_budget(correct, lengths, 19) == pytest.approx((1 / 3 + 0) / 2)


def test_a_paired_difference_has_one_cluster_a_problem() -> None:
    # Means 1, 0.5, 0 against 1, 1, 0.5: differences 0, 0.5, 0.5; centre 1/3, variance 1/12,
    # sqrt(1/36) = 1/6. Over samples: 0.25 in one problem of each, sqrt(0.25)/3 each.
    first, second = [[T, T], [T, F], [F, F]], [[T, T], [T, T], [T, F]]
    difference, clustered, sampling = paired_difference(first, second)
    assert difference == pytest.approx(1 / 3)
    assert clustered == pytest.approx(1 / 6)
    assert sampling == pytest.approx(math.sqrt(2) * 0.5 / 3)


def test_a_summary_has_both_intervals_pass_at_k_and_budgets() -> None:
    drawn: list[list[tuple[str, str | None, int]]] = [
        [
            ("correct", "8", 10_000),
            ("correct", "8", 20_000),
            ("correct", "8", 40_000),
            ("incorrect", "9", 9),
        ],
        [
            ("correct", "8", 20_000),
            ("incorrect", "9", 9),
            ("incorrect", "9", 9),
            ("unfinished", None, 9),
        ],
    ]
    samples = [[Sample(*one[:2], None, one[2], "", "stop") for one in group] for group in drawn]
    found = summary(samples)
    assert found["avg_at_n"] == 0.5
    # sqrt(0.0625 + 0.0625) / 2 = 0.1767767: 0.5 ± 0.3464823
    assert found["sampling_interval"] == pytest.approx([0.1535177, 0.8464823], abs=1e-6)
    assert found["standard_error"] == pytest.approx(0.25)
    assert found["pass_at"] == {"1": 0.5, "2": 0.75, "4": 1.0}
    # 16K: one of four and none; 32K: two and one; 64K holds all.
    assert found["by_budget"] == {"16384": 0.125, "32768": 0.375, "65536": 0.5}
    assert found["unfinished"] == 1 / 8
    assert found["finish_reasons"] == {"stop": 8} and found["maj_at_n"] == 0.5
    unknown = summary([[replace(one, tokens=None) for one in group] for group in samples])
    assert unknown["mean_length"] is None and unknown["by_budget"] == {}


@pytest.mark.parametrize(
    ("score", "error", "n", "word"),
    [
        # half width = 1.96 · sqrt(100²·error² · (1 + n/32)) + 0.05
        (0.909, 0.005, 32, "consistent"),  # 1.96 · 0.5 · 1.4142 + 0.05 = 1.436
        (0.9234, 0.005, 32, "better"),  # +1.44
        (0.8946, 0.005, 32, "worse"),  # −1.44
        (0.9233, 0.005, 32, "consistent"),  # +1.43
        (0.909, 0.02, 4, "too few to tell"),  # 1.96 · 2 · 1.0607 + 0.05 = 4.208
    ],
)
def test_a_verdict(score: float, error: float, n: int, word: str) -> None:
    assert verdict("PCL-Reasoner-V1.5", 90.9, score, error, n).word == word


def test_the_n_that_would_tell() -> None:
    # A sample's variance is 2² · 4 = 16 points²; (2.45 / 1.96)² = 1.5625 of which 16/32 is the
    # published score's: 16 / 1.0625 = 15.06, so 16 samples.
    found = verdict("m", 90.9, 0.909, 0.02, 4)
    assert found.samples == 16
    again = verdict("m", 90.9, 0.909, math.sqrt(16 / 16) / 100, 16)
    assert again.word == "consistent" and again.half_width <= RESOLUTION
    # 100 points²: 100/32 alone is more than 1.5625, and no n helps.
    assert verdict("m", 90.9, 0.909, 0.05, 4).samples is None


def test_only_aime_has_published_scores() -> None:
    assert {one.model for one in verdicts("aime24", 0.9, 0.01, 32)} >= {"PCL-Reasoner-V1.5"}
    assert verdicts("embedded", 0.9, 0.01, 32) == [] == verdicts("aime24", 0.9, None, 1)
    # 1.96 · 5 · sqrt(2) = 13.9
    assert "30 problems seldom separate two models" in separable(30, 0.05)
    assert "below 14 points" in separable(30, 0.05)


def test_files_are_graded_again_and_compared_by_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(prompt: str, answer: int, given: list[int], recorded: list[float]) -> dict[str, Any]:
        gen = [said(number) for number in given]
        return {"prompt": prompt, "answer": str(answer), "gen": gen, "accuracy": recorded}

    old = write(
        tmp_path / "old" / "aime24_bz2.jsonl",
        line("one <b>?", 1, [1, 2], [1.0, 0.0]),
        line("two?", 2, [1, 2], [0.0, 0.0]),
    )
    new = write(
        tmp_path / "new" / "aime24_bz2.jsonl",
        line("two?", 2, [2, 2], [1.0, 1.0]),
        line("one <b>?", 1, [1, 1], [1.0, 1.0]),
    )
    output = tmp_path / "out"
    assert main(["rescore", str(old), f"v2={new}", "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "50.0" in shown and "100.0" in shown and "25.0" in shown
    scores = json.loads((output / "scores.json").read_text())
    first, second = scores["scores"]
    assert (first["model"], first["avg_at_n"], first["recorded"], first["disputed"]) == (
        "old",
        0.5,
        0.25,
        1,
    )
    assert (second["model"], second["avg_at_n"]) == ("v2", 1.0)
    (pair,) = scores["comparisons"]
    # Differences 0.5 and 0.5: sure on other problems as far as two can tell; over samples
    # 0.5 ± 1.96 · sqrt(0.25 + 0.25) / 2 = 0.5 ± 0.69.
    assert (pair["difference"], pair["clustered_error"]) == (0.5, 0)
    assert (pair["outcome"], pair["outcome_elsewhere"]) == ("no difference shown", "better")
    (disputed,) = [json.loads(one) for one in (output / "disputed.jsonl").read_text().splitlines()]
    assert (disputed["answer"], disputed["sample"], disputed["outcome"]) == ("2", 1, "correct")
    assert len((output / "graded.jsonl").read_text().splitlines()) == 8
    page = (output / "results.html").read_text()
    assert "one &lt;b&gt;?" in page and "<script" not in page
    assert page.count('<i class="correct') == 6
    assert page.count(" disputed") == 1


def test_a_runs_own_file_is_graded_again_for_every_benchmark_that_its_lines_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(benchmark: str, number: int) -> dict[str, Any]:
        record = {"id": "q", "benchmark": benchmark, "prompt": "1+1?", "answer": "2"}
        return {**record, "gen": [said(number)], "accuracy": [float(number == 2)]}

    records = [line("aime24", 2), line("mine", 3), {**line("", 2), "benchmark": None}]
    file = write(tmp_path / "evaluate-0612ce5b" / "generations.jsonl", *records)
    output = tmp_path / "out"
    assert main(["rescore", str(file), "--output", str(output)]) == 0
    scores = json.loads((output / "scores.json").read_text())["scores"]
    found = [(one["model"], one["benchmark"], one["avg_at_n"], one["recorded"]) for one in scores]
    model = "evaluate-0612ce5b"
    expected = [(model, "aime24", 1.0, 1.0), (model, "mine", 0.0, 0.0)]
    # A line that names no benchmark has the file's.
    assert found == [*expected, (model, "generations", 1.0, 1.0)]
    assert list(read_results(file, "mine")[0]) == ["mine"]
    capsys.readouterr()
    named = write(tmp_path / "named.jsonl", *records[:2])
    assert main(["rescore", str(named), "--benchmark", "aime25", "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert "no result of benchmark aime25 in it; its lines name aime24, mine. Leave out" in error


def test_bad_words_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(tmp_path / "none.jsonl")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert benchmark_of(Path("x/AIME-2025_bz64.jsonl")) == "aime25"
    assert benchmark_of(Path("x/minerva.jsonl")) == "minerva"
