"""Stage ``report``: every stage before it -> one HTML page and its numbers as JSON.

    v15_opg/report-1a2b3c4d/
        report.html        one page, nothing loaded from elsewhere
        summary.json       the same numbers, {"funnel": [{"key": "v15_opg/pack", "kept": 510, …}]}

``summary.json`` has the same bytes for the same inputs. ``report.html`` is the only artifact for
which that is not required: it shows the durations, hosts and commits of the manifests that it read,
and two runs with equal results differ in those. Nothing else in the page depends on them.
"""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from pcl_reasoner.core.artifact import read_manifest
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.report.records import StageRecord

_JSON_FILES = ("histogram", "accounting", "scores", "sweep")
_JSONL_FILES = ("metrics", "probe", "hits")
_RESPONSES_SHOWN = 8
"""Most responses per problem; more would make the page too long."""


class ReportConfig(StageConfig):
    """Settings of the stage ``report``."""

    page: ClassVar[str | None] = "report.html"

    problems_shown: int = Field(6, ge=0, le=100)
    """Problems that are shown with their responses and grades, drawn at random."""
    seed: int = 0
    """Seed for drawing these problems."""


def report(
    config: ReportConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Write the page about a run.

    Args:
        config: How many problems are shown, and which.
        inputs: ``recipe/stage`` -> that stage's folder, in the order in which stages run. A stage
            whose folder does not exist or has no manifest is shown as not run.
        output: Gets report.html and summary.json.
        context: ``recipe`` holds the title, launch, choices, expected and published numbers.

    Raises:
        StageError: A file of a finished stage cannot be read.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.report.collect import summarize
    from pcl_reasoner.report.page import render
    from pcl_reasoner.report.records import StageRecord

    records: list[StageRecord] = []
    for key, folder in inputs.items():
        recipe, _, name = key.rpartition("/")
        manifest = read_manifest(folder)
        files = _read_files(folder) if manifest else {}
        records.append(StageRecord(recipe, name, manifest, files))
        context.progress.update(len(records), len(inputs), "stages")
    examples = _read_examples(config, records, inputs, str(context.recipe.get("name", "")))
    summary = summarize(records, context.recipe, examples)
    for warning in summary["warnings"]:
        if warning["stage"] == "report":
            context.warn(warning["text"])
    write_json(output / "summary.json", summary)
    page = render(summary, records)
    (output / "report.html").write_text(page, encoding="utf-8", errors="replace")
    finished = sum(1 for record in records if record.manifest)
    dropped = {"not_run": len(records) - finished} if finished < len(records) else {}
    return Counts(unit="stages", read=len(records), kept=finished, dropped=dropped)


def _read_files(folder: Path) -> dict[str, Any]:
    """Read a stage's small files, by file name without suffix, and figures of its tables."""
    found: dict[str, Any] = {}
    for name in _JSON_FILES:
        path = folder / f"{name}.json"
        if path.is_file():
            found[name] = _parse(path, 1, path.read_text(encoding="utf-8"))
    for name in _JSONL_FILES:
        path = folder / f"{name}.jsonl"
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                numbered = enumerate(lines, start=1)
                found[name] = [_parse(path, row, line) for row, line in numbered if line.strip()]
    if verdicts := _count_verdicts(folder):
        found["verdict_counts"] = verdicts
    if scores := _scores_by_problem(folder):
        found["per_problem"] = scores
    return found


def _parse(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text.strip())
    except json.JSONDecodeError as error:
        raise StageError(
            f"{path}: line {line + error.lineno - 1}: not JSON ({error.msg}). The file was changed "
            "after its stage had finished; run that stage again with --from."
        ) from error


def _read_examples(
    config: ReportConfig, records: list[StageRecord], folders: Mapping[str, Path], recipe: str
) -> list[dict[str, Any]]:
    """Draw graded problems, and read the rows of these problems only.

    Args:
        config: How many problems, and the seed.
        records: Every stage.
        folders: ``recipe/stage`` -> folder.
        recipe: Name of the report's recipe. Its stages are preferred to those of recipes that it
            takes from.
    """
    from pcl_reasoner.report.examples import join_examples

    ordered = sorted(records, key=lambda record: record.recipe == recipe)
    last = {record.type: folders[record.key] for record in ordered if record.manifest}
    keys = ["problem_id", "sample_index"]
    rows = _rows(last, "grade", "verdicts.parquet", keys[:1], None)
    graded = sorted({row["problem_id"] for row in rows})
    drawn = random.Random(config.seed).sample(graded, min(config.problems_shown, len(graded)))
    verdicts = [*keys, "verdict", "reward", "answer"]
    truths = ["problem_id", "problem", "ground_truth"]
    selected = _rows(last, "select", "responses.parquet", keys, drawn)
    return join_examples(
        drawn,
        graded=_rows(last, "grade", "verdicts.parquet", verdicts, drawn),
        texts=_rows(last, "sample", "responses", [*keys, "response", "n_tokens"], drawn),
        selected=selected if "select" in last else None,
        problems=_rows(last, "contamination", "clean.parquet", truths, drawn),
        responses_shown=_RESPONSES_SHOWN,
    )


def _count_verdicts(folder: Path) -> dict[str, int]:
    """Responses by verdict; empty for a stage without grading."""
    from pyarrow import dataset

    path = folder / "verdicts.parquet"
    if not path.is_file():
        return {}
    column = dataset.dataset(path, format="parquet").to_table(columns=["verdict"])["verdict"]
    counts = ((row["values"], row["counts"]) for row in column.value_counts().to_pylist())
    return dict(sorted(counts))


def _scores_by_problem(folder: Path) -> dict[str, dict[str, float]]:
    """Benchmark -> question id -> its share of correct responses; empty if nothing was scored."""
    from pyarrow import parquet

    path = folder / "per_problem.parquet"
    if not path.is_file():
        return {}
    found: dict[str, dict[str, float]] = {}
    for row in parquet.read_table(path, columns=["benchmark", "id", "n", "correct"]).to_pylist():
        found.setdefault(row["benchmark"], {})[row["id"]] = row["correct"] / row["n"]
    return found


def _rows(
    folders: Mapping[str, Path],
    stage: str,
    path: str,
    columns: list[str],
    problem_ids: list[str] | None,
) -> list[dict[str, Any]]:
    """Read some columns of some problems' rows; empty if the table does not exist.

    Args:
        folders: Stage type -> its folder.
        stage: Type of the stage whose table is read.
        path: The Parquet file, or the folder of Parquet files, in the stage's folder.
        columns: Columns to read, if the table has them.
        problem_ids: Read only these problems; None: all.
    """
    from pyarrow import dataset

    source = folders.get(stage, Path()) / path
    # An empty list of problems ends here: Arrow could not infer its type.
    if stage not in folders or not source.exists() or problem_ids == []:
        return []
    table = dataset.dataset(source, format="parquet")
    present = [name for name in columns if name in table.schema.names]
    row_filter = None if problem_ids is None else dataset.field("problem_id").isin(problem_ids)
    found: list[dict[str, Any]] = table.to_table(columns=present, filter=row_filter).to_pylist()
    return found
