"""The whole of V1.5's path in one command; about 60 s on two cores, all of it the run itself."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import pytest
from end_to_end_helpers import (
    Whole,
    assert_no_process_left,
    command,
    environment,
    folder_of,
    manifests,
    payload,
)

pytestmark = pytest.mark.slow

WALK = [
    "v1_sft/synthetic",
    "v1_sft/convert",
    "v1_sft/contamination",
    "v1_sft/tokenize",
    "v1_sft/pack",
    "v1_sft/train",
    "v1_sft/export",
    "v15_opg/convert",
    "v15_opg/difficulty",
    "v15_opg/lengths",
    "v15_opg/unique",
    "v15_opg/contamination",
    "v15_opg/sample",
    "v15_opg/grade",
    "v15_opg/select",
    "v15_opg/tokenize",
    "v15_opg/pack",
    "v15_opg/train",
    "v15_opg/export",
    "v15_opg/evaluate_before",
    "v15_opg/prove",
    "v15_opg/evaluate_after",
    "v15_opg/report",
]
"""Every stage, each after those it reads."""

HEAVY = {"mindspore", "mindformers", "torch", "transformers", "numpy", "pyarrow", "duckdb"}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_one_command_runs_every_stage_to_the_report(whole: Whole) -> None:
    answer = whole.answer
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("LAPTOP: ")
    stages = [line.split("] ")[1].split(":")[0] for line in lines if line.startswith("[")]
    # A stage that takes long on a busy machine has lines of progress, too.
    assert list(dict.fromkeys(stages)) == WALK
    assert sorted(manifests(whole.runs)) == sorted(WALK)
    (report,) = [line.removeprefix("report: ") for line in lines if line.startswith("report: ")]
    assert Path(report) == folder_of(whole.runs, "v15_opg/report") / "report.html"
    assert "</html>" in Path(report).read_text()
    assert_no_process_left(str(whole.runs))
    assert not list(whole.runs.glob("*/*.partial"))
    assert payload(whole.runs)


def test_every_planted_case_is_caught_and_counted_by_its_reason(whole: Whole) -> None:
    made = folder_of(whole.runs, "v1_sft/synthetic") / "planted.json"
    planted = json.loads(made.read_text())
    rl, sft = planted["nemotron"], planted["conversations"]
    counts = {title: item["counts"] for title, item in manifests(whole.runs).items()}
    dropped = {title: item["dropped"] for title, item in counts.items()}
    # Two of each: cut metadata and metadata without an answer, one message, a blank problem.
    assert dropped["v15_opg/convert"] == {
        "malformed_metadata": 4,
        "malformed_messages": 2,
        "malformed_problem": 2,
    }
    assert sum(dropped["v15_opg/convert"].values()) == rl["malformed_rows"]
    assert sum(dropped["v1_sft/convert"].values()) == sft["malformed_rows"]
    assert dropped["v1_sft/contamination"] == {"contaminated": sft["copied_rows"]}
    assert dropped["v15_opg/difficulty"] == {
        "all_correct": rl["solved_16_times_rows"] + rl["solved_32_times_rows"]
    }
    benchmark = sum(rl[f"{kind}_problems"] for kind in ("copied", "wrapped", "paraphrased"))
    assert dropped["v15_opg/contamination"] == {"contaminated": benchmark}
    assert set(dropped["v15_opg/unique"]) == {"blank_ground_truth", "repeated_problem"}
    assert dropped["v15_opg/unique"]["blank_ground_truth"] == rl["blank_ground_truth_rows"]
    for title, item in counts.items():
        assert item["read"] == item["kept"] + sum(item["dropped"].values()), title
        for reason, count in item["dropped"].items():
            assert f"{reason} {count}" in whole.answer.stdout, title


def test_short_and_repeated_rows_are_those_that_one_finds_by_hand(whole: Whole) -> None:
    from tokenizers import Tokenizer

    policy = folder_of(whole.runs, "v1_sft/export")
    tokenizer = Tokenizer.from_file(str(policy / "tokenizer.json"))
    lengths: dict[str, list[int]] = {}
    for row in rows_of(folder_of(whole.runs, "v15_opg/difficulty") / "partial"):
        lengths.setdefault(row["problem_id"], []).append(len(tokenizer.encode(row["cot"]).ids))
    made = manifests(whole.runs)
    limit = made["v15_opg/lengths"]["identity"]["config"]["min_mean_tokens"]
    short = sum(len(found) for found in lengths.values() if mean(found) < limit)
    assert short > 0
    assert made["v15_opg/lengths"]["counts"]["dropped"] == {"short_mean_cot": short}
    long = rows_of(folder_of(whole.runs, "v15_opg/lengths") / "rows")
    good = [row["problem_id"] for row in long if (row["ground_truth"] or "").strip()]
    counts = made["v15_opg/unique"]["counts"]
    assert counts["kept"] == len(set(good))
    assert counts["dropped"]["repeated_problem"] == len(good) - len(set(good)) > 0


@pytest.mark.parametrize("recipe", ["v1_sft", "v15_opg"])
def test_no_token_of_a_planted_question_is_trained_on(whole: Whole, recipe: str) -> None:
    from tokenizers import Tokenizer

    from pcl_reasoner.pack.arrow_folder import read_arrow_folder

    policy = folder_of(whole.runs, "v1_sft/synthetic")
    (file,) = policy.rglob("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    packed = read_arrow_folder(folder_of(whole.runs, f"{recipe}/pack"))["input_ids"].to_pylist()
    trained = [tokenizer.decode(row, skip_special_tokens=False) for row in packed]
    check = folder_of(whole.runs, f"{recipe}/contamination")
    hits = [json.loads(line)["problem"] for line in (check / "hits.jsonl").open()]
    clean = [row["problem"] for row in rows_of(check)]
    # What stays is found there (but for rows that are left out later), and nothing that went.
    assert sum(any(text in row for row in trained) for text in clean[:20]) > 10
    assert len(hits) > 1
    assert [text for text in hits if any(text in row for row in trained)] == []


def test_the_second_run_has_nothing_to_do_and_loads_nothing_heavy(whole: Whole) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = [sys.executable, "-X", "importtime", "-m", "pcl_reasoner.cli"]
    answer = subprocess.run(
        command("run", whole.recipe, "--runs", whole.runs, program=program),
        env=environment(),
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.returncode == 0
    assert "nothing to do: every stage is done" in answer.stdout
    imported = {
        line.split("|")[-1].strip().split(".")[0]
        for line in answer.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "pcl_reasoner" in imported
    assert not imported & HEAVY
    # Processor time, which other work on the machine does not change much.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_the_page_shows_the_numbers_of_this_run(
    whole: Whole, browser: ModuleType, read_page: Callable[[str], Any]
) -> None:
    page = folder_of(whole.runs, "v15_opg/report") / "report.html"
    html = browser.chromium(browser.find_chromium(), ["--dump-dom"], page.as_uri())
    shown = read_page(html).texts

    def number(mark: str) -> float:
        return float(shown[mark].replace("\u202f", "").replace("\u2212", "-").split()[0])

    made = manifests(whole.runs)
    for title, manifest in made.items():
        if title == "v15_opg/report":
            continue
        counts, mark = manifest["counts"], f"funnel.{title.removeprefix('v15_opg/')}"
        assert number(f"{mark}.read") == counts["read"]
        assert number(f"{mark}.kept") == counts["kept"]
        for reason, count in counts["dropped"].items():
            assert number(f"{mark}.dropped.{reason}") == count
        assert shown[f"fingerprints.{title}"] == manifest["fingerprint"][:12]
    for name in ("evaluate_before", "evaluate_after"):
        file = folder_of(whole.runs, f"v15_opg/{name}") / "scores.json"
        score = json.loads(file.read_text())["benchmarks"]["benchmark"]
        for figure in ("avg_at_n", "pass_at_n", "maj_at_n"):
            mark = f"scores.v15_opg/{name}.benchmark.{figure}"
            assert number(mark) == round(100 * score[figure], 1)
    for title in ("v1_sft/train", "v15_opg/train"):
        assert number(f"training.{title}.steps") == 6
