"""Stage ``report``: shows all earlier stages on one HTML page, with its numbers as JSON.

    v15_opg/report-1a2b3c4d/
        report.html        one page, nothing loaded from elsewhere
        summary.json       the same numbers, {"funnel": [{"key": "v15_opg/pack", "kept": 510, …}]}

Equal inputs give a ``summary.json`` with equal bytes. ``report.html`` is the only artifact that may
differ between runs with equal results: it shows the durations, hosts and commits in the stages'
manifests. Nothing else on the page depends on these.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from pcl_reasoner.core.artifact import read_manifest, write_json
from pcl_reasoner.core.json_lines import json_lines, parsed
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.page_parts.records import CHANGED, StageRecord, read_rows
from pcl_reasoner.rl_report.digest import trained
from pcl_reasoner.rl_report.examples import RlFolders
from pcl_reasoner.rl_report.reading import read_rl

_FILES = (
    *("histogram.json", "histograms.json", "accounting.json", "scores.json", "sweep.json"),
    "grading.json",
    *("metrics.jsonl", "probe.jsonl", "hits.jsonl", "plateau.json", "seconds.jsonl"),
)


class ReportConfig(StageConfig):
    """Settings of the stage ``report``."""

    page: ClassVar[str | None] = "report.html"

    problems_shown: int = Field(6, ge=0, le=100)
    """Number of problems of each kind, drawn at random, that are shown with their responses and
    verdicts; also the number of responses of each kind that are shown of on-policy training."""
    seed: int = 0
    """Seed for drawing the shown problems."""


def report(
    config: ReportConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Write the page about a run.

    Args:
        config: How many problems are shown, and which.
        inputs: ``recipe/stage`` -> that stage's folder, in the order in which stages run. A stage
            whose folder does not exist or has no manifest is shown as not run.
        output: Folder in which report.html and summary.json are written.
        context: ``recipe`` has the title, launch file, choices, and expected and published numbers.

    Raises:
        StageError: A file of a finished stage cannot be read.
    """
    from pcl_reasoner.report.collect import summarize
    from pcl_reasoner.report.examples import read_examples
    from pcl_reasoner.report.page import render
    from pcl_reasoner.rl_report.examples import read_rl_examples

    records = _read_records(inputs, output, context)
    folders = _graded_folders(records, inputs, str(context.recipe.get("name", "")))
    examples = read_examples(folders, config.problems_shown, config.seed)
    rl_folders = _rl_folders(records, inputs)
    responses = read_rl_examples(rl_folders, config.problems_shown, config.seed)
    summary = summarize(records, context.recipe, examples, responses)
    for warning in summary["warnings"]:
        if warning["stage"] == "report":
            context.warn(warning["text"])
    write_json(output / "summary.json", summary)
    page = render(summary, records)
    (output / "report.html").write_text(page, encoding="utf-8", errors="replace")
    finished = sum(1 for record in records if record.manifest)
    dropped = {"not_run": len(records) - finished} if finished < len(records) else {}
    return Counts(unit="stages", read=len(records), kept=finished, dropped=dropped)


def _read_records(
    inputs: Mapping[str, Path], output: Path, context: StageContext
) -> list[StageRecord]:
    """Read every stage's manifest and small files, and count its problems by kind."""
    from pcl_reasoner.report.kinds import files_by_kind, read_kinds

    manifests = {key: read_manifest(folder) for key, folder in inputs.items()}
    kinds = read_kinds(inputs[key] for key, manifest in manifests.items() if manifest)
    records: list[StageRecord] = []
    for key, folder in inputs.items():
        recipe, _, name = key.rpartition("/")
        files = {**_read_files(folder), **files_by_kind(folder, kinds)} if manifests[key] else {}
        place = os.path.relpath(folder, output)
        records.append(StageRecord(recipe, name, manifests[key], files, place))
        context.progress.update(len(records), len(inputs), "stages")
    return records


def _graded_folders(
    records: Sequence[StageRecord], inputs: Mapping[str, Path], recipe: str
) -> dict[str, Path]:
    """Return the folders of the last grading, of what it graded, and of what was selected.

    Args:
        records: All stages.
        inputs: ``recipe/stage`` -> folder.
        recipe: The report's recipe; its stages override those of other recipes.
    """
    ordered = sorted(records, key=lambda record: record.recipe == recipe)
    last = {record.type: record for record in ordered if record.manifest}
    folders: dict[str, Path] = {}
    for name in ("grade", "select"):
        if name in last:
            folders[name] = inputs[last[name].key]
    graded = last["grade"].manifest if "grade" in last else None
    origins = (graded or {}).get("origins") or {}
    for role, usual in (("responses", "sample"), ("problems", "contamination")):
        if origins.get(role) in inputs:
            folders[role] = inputs[origins[role]]
        elif usual in last:
            folders[role] = inputs[last[usual].key]
    return folders


def _rl_folders(records: Sequence[StageRecord], inputs: Mapping[str, Path]) -> list[RlFolders]:
    """Return the folders of the finished stages ``rl``, and those of their problems."""
    found = []
    for record in trained(records):
        origins = (record.manifest or {}).get("origins") or {}
        problems = inputs.get(origins.get("problems", ""))
        found.append(RlFolders(record.key, inputs[record.key], problems))
    return found


def _read_files(folder: Path) -> dict[str, Any]:
    """Return a stage's small files by name without suffix, and counts from Parquet tables."""
    from pcl_reasoner.report.revisions import read_revisions

    found: dict[str, Any] = {**read_revisions(folder), **read_rl(folder)}
    for path in (folder / name for name in _FILES if (folder / name).is_file()):
        if path.suffix == ".json":
            found[path.stem] = parsed(path.read_bytes(), str(path), CHANGED)
        else:
            found[path.stem] = [value for _, value in json_lines(path, CHANGED)]
    verdicts = Counter(row["verdict"] for row in read_rows(folder, "verdicts.parquet", ["verdict"]))
    if verdicts:
        found["verdict_counts"] = dict(sorted(verdicts.items()))
    for row in read_rows(folder, "per_problem.parquet", ["benchmark", "id", "n", "correct"]):
        scores = found.setdefault("per_problem", {}).setdefault(row["benchmark"], {})
        scores[row["id"]] = row["correct"] / row["n"]
    return found
