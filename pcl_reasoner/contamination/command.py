"""Does the work of ``contamination check`` and ``contamination fingerprint``; prints nothing.

pclr-ms contamination check DATA --against aime24 --output DIR
pclr-ms contamination fingerprint QUESTIONS -o FILE
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.check import check, settings_of
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.reading import FIELDS, data_files, read_questions, read_rows
from pcl_reasoner.contamination.records import Checked, write_evidence
from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import expanded
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.core.validation import validated
from pcl_reasoner.embedding.embed import load_embedder
from pcl_reasoner.second_opinion.judge import Judge

SUMMARY = "summary.json"


def check_data(
    data: Path,
    against: Sequence[str],
    settings: dict[str, Any],
    output: Path,
    column: str | None,
    threads: int,
    progress: Progress,
    placement: Placement = Placement(),  # noqa: B008  (frozen)
) -> Checked:
    """Compare a data set with benchmarks and write the evidence.

    Args:
        data: A file or folder.
        against: Names of shipped benchmarks, fingerprint files, or files or folders with questions.
        settings: Field of ContaminationConfig -> value.
        output: Folder for the evidence; it appears only when the check is complete, and replaces
            the folder of an earlier check.
        column: Column with the question; None: the first of ``reading.FIELDS`` that is present.
        threads: CPU threads for encoding.
        progress: Receives the number of distinct problems done.
        placement: ``judge_urls`` names the judge's servers, if ``judge`` is set.

    Raises:
        InputError: A setting is wrong, the output folder exists but no earlier check made it, or
            the input cannot be read or compared.
        StageError: A benchmark cannot be read, or the embedder or the judge cannot be used.
    """
    config = validated(ContaminationConfig, settings, "settings")
    named, paths = _split(against)
    config = config.model_copy(update={"against": named})
    questions = read_questions(paths)
    files, root = data_files(data)
    with _partial(output) as partial:
        quarantined = partial / artifact.QUARANTINED
        context = StageContext("contamination", quarantined, placement, progress)
        asked = (context, partial, cache_folder("verdicts"))
        judge = None if config.judge is None else Judge(config.judge, *asked)
        rows = read_rows(files, root, context.quarantine, column)
        if not rows.problem:
            raise InputError(
                f"{data}: none of its {rows.read} rows has a question in "
                f"{column or ', '.join(FIELDS)}; {context.quarantined} has them. Name the column "
                "with --field."
            )
        cache = cache_folder("embeddings")
        findings = check(
            rows.problem, questions, config, threads, progress, cache, placement.data, judge
        )
        return _publish(write_evidence(partial, rows, findings, config), output)


def judge_servers(urls: Sequence[str], key_variable: str | None) -> Placement:
    """Return a placement with the judge's running servers.

    Args:
        urls: Their base URLs, with /v1.
        key_variable: Environment variable with the API key of all of them; None: no key.

    Raises:
        InputError: A URL or the variable's name cannot be used, or there is a key but no server.
    """
    if key_variable and not urls:
        raise InputError("--key-variable: works only with --judge. Give --judge URL, too.")
    keys = dict.fromkeys(urls, key_variable) if key_variable else {}
    return validated(Placement, {"judge_urls": list(urls), "api_keys": keys}, "--judge")


@contextmanager
def _partial(output: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``output``; after an error only refused rows are left in it."""
    if output.exists() and not (output / SUMMARY).is_file():
        raise InputError(
            f"{output}: already exists, and no earlier check made it. Give another folder with "
            "--output."
        )
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        if not (partial / artifact.QUARANTINED).exists():
            shutil.rmtree(partial)
        raise


def _publish(checked: Checked, output: Path) -> Checked:
    """Write summary.json, and rename the folder from its temporary to its final name."""
    summary = {"read": checked.read, "dropped": checked.dropped, **checked.info}
    text = json.dumps(summary, indent=1, sort_keys=True) + "\n"
    (checked.output / SUMMARY).write_text(text)
    shutil.rmtree(output, ignore_errors=True)
    checked.output.rename(output)
    return replace(checked, output=output)


def _split(against: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Return the benchmarks given as fingerprints, and the paths of those given as questions."""
    named, paths = [], {}
    for name in against:
        path = expanded(name)
        if not path.exists() or _is_fingerprints(path):
            named.append(name)
        else:
            paths[path.stem] = path
    fingerprints.resolve(named)
    return named, paths


def _is_fingerprints(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "format" in value and "questions" in value


def cache_folder(kind: str) -> Path:
    """A user's cache of embeddings or verdicts: pclr-ms/KIND in $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(base) / "pclr-ms" / kind


def fingerprint_questions(
    source: Path,
    target: Path,
    name: str | None,
    model: str,
    threads: int,
    calibration: str | None = None,
) -> int:
    """Write the fingerprints of a benchmark.

    Args:
        source: A .jsonl, .json or .parquet file with questions, or a folder of .jsonl and .parquet
            files.
        target: The file to write.
        name: The benchmark's name in hits.jsonl; None: the target's name without ``.json``.
        model: Embedder, as in ContaminationConfig.
        threads: CPU threads for encoding.
        calibration: Thresholds of the embedder, as in ContaminationConfig.

    Returns:
        Number of questions.
    """
    name = name or target.stem
    questions = read_questions({name: source})
    repeated = [key for key, n in Counter(item.id for item in questions).items() if n > 1]
    if repeated:
        raise InputError(
            f"{source}: the id {repeated[0]} occurs more than once. Give each question its own id."
        )
    config = validated(
        ContaminationConfig, {"model": model, "calibration": calibration}, "settings"
    )
    embedder = load_embedder(model, threads)
    settings = settings_of(config, embedder)
    made = fingerprints.make(questions, settings, embedder)
    target.parent.mkdir(parents=True, exist_ok=True)
    artifact.remove_unfinished(target)
    artifact.write_atomically(target, fingerprints.to_json(name, made, settings, embedder))
    return len(made)
