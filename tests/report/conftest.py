"""A small finished run, written by hand: every kind of file that the report reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from pcl_reasoner.core import artifact
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.report.stage import ReportConfig, report

EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"

RECIPE: dict[str, Any] = {
    "name": "v15_opg",
    "title": "PCL-Reasoner V1.5: offline RL from V1",
    "profile": "laptop",
    "launch": "This machine's CPU, one process",
    "verified": "Run end to end on a two-core CPU; no NPU was used.",
    "seed": 0,
    "choices": {"schedule": "script", "drop_groups": "all_incorrect"},
    "expect": {
        "evaluate_after": {
            "heldout": {"avg_at_8": {"value": 90.0, "source": "an earlier run"}},
            "pass_at_8": {"at_least": 0.99},
        },
        "gain": [0.2, 0.5],
    },
    "published": {
        "funnel": [
            {"stage": "convert", "label": "rows of the math split", "count": 2044407},
            {"stage": "difficulty", "label": "rows partly correct", "count": 855015},
            {"stage": "lengths", "label": "rows, about", "count": 34000},
            {"stage": "unique", "label": "problems", "count": 6068},
            {"stage": "sample", "label": "responses", "count": 48512},
            {"stage": "grade", "label": "correct", "count": 22990},
            {"stage": "grade", "label": "incorrect", "count": 25522},
            {"stage": "select", "label": "mixed", "count": 30215, "figure": "mixed_rows"},
            {"stage": "select", "label": "in all", "count": 27174, "figure": "kept"},
            {"stage": "select", "label": "not counted here", "count": 9, "figure": "absent"},
            {"stage": "cap", "label": "under 48K tokens", "count": 27174},
        ]
    },
}


class FakeRun:
    """Folders of finished stages; tests change one and render."""

    evil = EVIL
    recipe = RECIPE

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inputs: dict[str, Path] = {}

    def stage(self, key: str, kind: str, counts: dict[str, Any], **more: Any) -> Path:
        """Write a stage's manifest and give its folder."""
        folder = self.root / key
        folder.mkdir(parents=True, exist_ok=True)
        recipe, name = key.split("/")
        manifest = {
            "stage": kind,
            "name": name,
            "recipe": recipe,
            "counts": {"unit": "rows", "dropped": {}, "info": {}, **counts},
            "warnings": [],
            "seconds": 12.3,
            "began_at": "2025-11-20T12:00:00+0000",
            "host": "ws1",
            "git_commit": "0123456789ab",
            "versions": {"pclr-ms": "0.1.0", "mindspore": "2.7.2"},
            "fingerprint": f"{abs(len(key)) % 10}" * 64,
            "choices": {},
            "identity": {"config": {}},
            **more,
        }
        self.inputs[key] = folder
        self.json(key, artifact.MANIFEST, {**manifest, "files": {}})
        return folder

    def json(self, key: str, name: str, value: Any) -> None:
        if name == artifact.MANIFEST:
            value.pop(artifact.CHECKSUM, None)
            value = artifact.seal(value)
        (self.inputs[key] / name).write_text(json.dumps(value), encoding="utf-8")

    def jsonl(self, key: str, name: str, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.inputs[key] / name).write_text(text, encoding="utf-8")

    def parquet(self, key: str, name: str, rows: list[dict[str, Any]]) -> None:
        path = self.inputs[key] / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), path, compression="zstd")

    def train(self, correct_p: tuple[float, float], correct: int, incorrect: int) -> None:
        """Write another course of the training."""
        self.jsonl("v15_opg/train", "metrics.jsonl", metrics(70, correct_p, correct, incorrect))

    def report(self, output: Path, recipe: dict[str, Any] = RECIPE, **config: Any) -> Counts:
        """Run the stage under test."""
        output.mkdir()
        self.context = StageContext("report", output / "quarantined.jsonl", recipe=recipe)
        return report(ReportConfig(**config), self.inputs, output, self.context)


def metrics(steps: int, correct_p: tuple[float, float], correct: int, incorrect: int) -> list[Any]:
    """Steps whose p of correct answers moves evenly from the first value to the second."""
    rows = []
    for index in range(steps):
        share = index / (steps - 1)
        p = correct_p[0] + (correct_p[1] - correct_p[0]) * share
        rows.append(
            {
                "step": index + 1,
                "loss": 0.5 - 0.2 * share + 0.02 * math.sin(index * 1.7),
                "learning_rate": 1e-4 * (1 - share),
                "grad_norm": 0.8 + 0.3 * math.cos(index),
                "overflow": 0,
                "correct_count": correct,
                "incorrect_count": incorrect,
                "correct_p": p,
                "incorrect_p": 0.7 - 0.3 * share,
                "correct_m": math.log(p),
                "incorrect_m": math.log(0.7 - 0.3 * share),
                "tokens": 1800,
            }
        )
    return rows


def _curation(run: FakeRun) -> None:
    run.stage(
        "v15_opg/convert",
        "convert",
        {"read": 12345, "kept": 12340, "dropped": {"malformed_json": 5}},
    )
    run.stage(
        "v15_opg/difficulty",
        "difficulty",
        {"read": 12340, "kept": 8000, "dropped": {"all_correct": 4340}},
    )
    run.stage(
        "v15_opg/lengths",
        "lengths",
        {
            "read": 8000,
            "kept": 5000,
            "dropped": {"short_mean_cot": 3000},
            "info": {"tokens": {"library": "fastokens", "texts": 6200, "checked": 7}},
        },
    )
    edges = [4 * i for i in range(21)]
    counts = [round(400 * math.exp(-(((i - 8) / 4) ** 2))) for i in range(20)]
    table = {"edges": edges, "counts": counts}
    rows = {**table, "not_tokenised": 1800}
    run.json(
        "v15_opg/lengths", "histogram.json", {"threshold": 24, "rows": rows, "problems": table}
    )
    run.stage(
        "v15_opg/unique",
        "unique",
        {"unit": "rows", "read": 5000, "kept": 502, "dropped": {"seen": 4498}},
    )
    run.stage(
        "v15_opg/contamination",
        "contamination",
        {"unit": "problems", "read": 502, "kept": 500, "dropped": {"contaminated": 2}},
        identity={"config": {"threshold": 0.9, "seed": 0}},
    )
    hits = [
        {
            "rule": "embedding+ngrams",
            "cosine": 0.953,
            "ngrams": 1.0,
            "problem": "Ben",
            "benchmark_problem": EVIL,
        },
        {
            "rule": "ngrams",
            "cosine": 0.61,
            "ngrams": 0.5,
            "problem": "Ada",
            "benchmark_problem": "Ida",
        },
    ]
    run.jsonl("v15_opg/contamination", "hits.jsonl", hits)
    sweep = {"0.90": {"embedding": 1, "with_ngrams": 2}, "0.70": {"embedding": 7, "with_ngrams": 9}}
    run.json("v15_opg/contamination", "sweep.json", sweep)


def _responses(run: FakeRun) -> None:
    ids = [f"{i:016x}" for i in range(20)]
    keys = [{"problem_id": p, "sample_index": s} for p in ids for s in range(4)]
    problems = [
        {"problem_id": p, "problem": f"Ben has {i} books.\n{EVIL}", "ground_truth": str(i)}
        for i, p in enumerate(ids)
    ]
    run.parquet("v15_opg/contamination", "clean.parquet", problems)
    run.stage("v15_opg/sample", "sample", {"unit": "responses", "read": 80, "kept": 80})
    texts = [{**k, "response": f"<think>{EVIL}</think>\\boxed{{7}}", "n_tokens": 41} for k in keys]
    run.parquet("v15_opg/sample", "responses/00000.parquet", texts)
    run.stage("v15_opg/grade", "grade", {"unit": "responses", "read": 80, "kept": 80})
    correct = [k["sample_index"] != 3 for k in keys]
    verdicts = [
        {
            **k,
            "verdict": "correct" if r else "no_box",
            "reward": float(r),
            "answer": "7" if r else "",
        }
        for k, r in zip(keys, correct, strict=True)
    ]
    run.parquet("v15_opg/grade", "verdicts.parquet", verdicts)
    run.stage(
        "v15_opg/select",
        "select",
        {
            "unit": "responses",
            "read": 80,
            "kept": 76,
            "dropped": {"all_correct": 4},
            "info": {"mixed_rows": 79},
        },
    )
    run.parquet("v15_opg/select", "responses.parquet", keys[4:])


def _training(run: FakeRun) -> None:
    run.stage(
        "v15_opg/pack",
        "pack",
        {"unit": "segments", "read": 1950, "kept": 1944, "dropped": {"too_long": 6}},
    )
    accounting = {
        "fill": 0.9731, "rows": 510, "segments": 1944, "tokens": 254106, "seq_length": 512,
        "trained_tokens": 101642, "dropped": {"over_length": 6},
        "segments_per_row": {"3": 96, "4": 414}, "steps_per_epoch": {"4": 128, "32": 16},
    }  # fmt: skip
    run.json("v15_opg/pack", "accounting.json", accounting)
    run.stage(
        "v15_opg/train",
        "train",
        {"unit": "rows", "read": 510, "kept": 510},
        identity={"config": {"loss": "opg"}},
    )
    run.jsonl("v15_opg/train", "metrics.jsonl", metrics(70, (0.80, 0.92), 10, 6))


def _scores(run: FakeRun) -> None:
    before = {
        "problems": 200, "n": 8, "avg_at_n": 0.544, "standard_error": 0.015,
        "sampling_error": 0.009,
        "interval": [0.514, 0.573], "pass_at_n": 0.96, "maj_at_n": 0.71, "mean_length": 38.25,
        "unfinished": 0.02,
    }  # fmt: skip
    after = {
        "problems": 200, "n": 8, "avg_at_n": 0.903, "standard_error": 0.014,
        "sampling_error": 0.008,
        "interval": [0.876, 0.928], "pass_at_n": 0.98, "maj_at_n": 0.95, "mean_length": 41.5,
        "unfinished": 0.0,
    }  # fmt: skip
    for name, score in (("evaluate_before", before), ("evaluate_after", after)):
        run.stage(f"v15_opg/{name}", "evaluate", {"unit": "responses", "read": 1600, "kept": 1600})
        run.json(f"v15_opg/{name}", "scores.json", {"benchmarks": {"heldout": score}})


@pytest.fixture
def new_run(tmp_path: Path) -> FakeRun:
    """A run without stages."""
    return FakeRun(tmp_path / "new_runs")


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    """A whole run of V1.5 with the V1 stages that it takes from."""
    made = FakeRun(tmp_path / "runs")
    made.stage("v1_sft/synthetic", "synthetic", {"unit": "problems", "read": 7900, "kept": 7900})
    made.stage(
        "v1_sft/train",
        "train",
        {"unit": "rows", "read": 1030, "kept": 1030},
        identity={"config": {"loss": "sft"}},
    )
    sft = metrics(515, (0.5, 0.5), 0, 0)
    made.jsonl(
        "v1_sft/train",
        "metrics.jsonl",
        [
            {**row, "correct_p": None, "incorrect_p": None, "correct_m": None, "incorrect_m": None}
            for row in sft
        ],
    )
    _curation(made)
    _responses(made)
    _training(made)
    _scores(made)
    return made
