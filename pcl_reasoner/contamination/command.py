"""The commands for the check and for fingerprints: they read and write files and print nothing.

pclr-ms contamination check DATA --against aime24 --output DIR
pclr-ms contamination fingerprint QUESTIONS -o FILE
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.check import check, window_of
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.reading import FIELDS, data_files, read_questions, read_rows
from pcl_reasoner.contamination.records import reasons, write_evidence
from pcl_reasoner.contamination.review import read_review
from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.stage import RAW_LIMIT_BYTES, Progress
from pcl_reasoner.embedding.embed import load_embedder

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Checked:
    """The result of checking a data set.

    Args:
        output: Folder with the evidence.
        read: Rows read.
        kept: Rows that were not dropped for any reason.
        dropped: Reason -> number of rows.
        info: The same figures as the stage's ``Counts.info``.
        hits: Records of hits.jsonl.
        misses: Records of near_misses.jsonl.
    """

    output: Path
    read: int
    kept: int
    dropped: dict[str, int]
    info: dict[str, Any]
    hits: list[dict[str, Any]]
    misses: list[dict[str, Any]]


def check_data(
    data: Path,
    against: Sequence[str],
    settings: dict[str, Any],
    output: Path,
    column: str | None,
    threads: int,
    progress: Progress,
) -> Checked:
    """Compare a data set with benchmarks and write the evidence.

    Args:
        data: A file or folder.
        against: Names of shipped benchmarks, fingerprint files, or files or folders with questions.
        settings: Values of ContaminationConfig.
        output: Folder for the evidence; it appears only when the check is complete, and replaces
            the folder of an earlier check.
        column: Column with the question; None: it is searched for.
        threads: CPU threads for encoding.
        progress: Receives the number of distinct problems done.

    Raises:
        InputError: The output folder is not an earlier check's, or the input cannot be read or
            compared.
        StageError: A benchmark cannot be read, or the embedder cannot be used.
    """
    _may_replace(output)
    named, texts = _sort(against)
    config = ContaminationConfig(**settings, against=named)
    questions = read_questions(texts)
    files, root = data_files(data)
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    rows = read_rows(files, root, _apart(partial), column)
    if not rows.problem:
        raise InputError(
            f"{data}: none of its {rows.read} rows has a question in {column or ', '.join(FIELDS)};"
            f" {partial / artifact.QUARANTINED} has them. Name the column with --field."
        )
    findings = check(rows.problem, questions, config, threads, progress, cache_folder())
    review = read_review(Path(config.review)) if config.review else {}
    taken_out = reasons(rows, findings, review)
    info = write_evidence(partial, rows, findings, config, review)
    dropped = Counter(why for why in (*taken_out, *rows.refused.values()) if why is not None)
    summary = {"read": rows.read, "dropped": dict(dropped), **info}
    (partial / SUMMARY).write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    partial.rename(output)
    kept = rows.read - sum(dropped.values())
    lines = [_lines(output / f"{name}.jsonl") for name in ("hits", "near_misses")]
    return Checked(output, rows.read, kept, dict(dropped), info, *lines)


def _may_replace(output: Path) -> None:
    """Refuse to overwrite a folder that was not written by a check."""
    if output.exists() and not (output / SUMMARY).is_file():
        raise InputError(
            f"{output}: is there, and no earlier check made it. Give another folder with --output."
        )


def _sort(against: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Separate benchmarks given as fingerprints from those given as questions (name -> path)."""
    named, texts = [], {}
    for name in against:
        path = Path(name).expanduser()
        if not path.exists() or _is_fingerprints(path):
            named.append(name)
        else:
            texts[path.stem] = path
    fingerprints.resolve(named)
    return named, texts


def _is_fingerprints(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and "format" in value and "questions" in value


def _apart(folder: Path) -> Any:
    def quarantine(file: str, row: int, reason: str, raw: str | bytes) -> None:
        data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
        text = data[:RAW_LIMIT_BYTES].decode("utf-8", "replace")
        record = {"file": file, "row": row, "reason": reason, "raw": text}
        with (folder / artifact.QUARANTINED).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")

    return quarantine


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def cache_folder() -> Path:
    """A user's embedding cache: pclr-ms/embeddings in $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "pclr-ms" / "embeddings"


def fingerprint_questions(
    source: Path, target: Path, name: str | None, model: str, threads: int
) -> int:
    """Write the fingerprints of a benchmark.

    Args:
        source: A .jsonl, .json or .parquet file with questions, or a folder of .jsonl and .parquet
            files.
        target: The file to write.
        name: The benchmark's name in hits; None: the target's stem.
        model: Embedder, as in ContaminationConfig.
        threads: CPU threads for encoding.

    Returns:
        Number of questions.
    """
    name = name or target.stem
    questions = read_questions({name: source})
    repeated = [key for key, n in Counter(item.id for item in questions).items() if n > 1]
    if repeated:
        raise InputError(f"{source}: the id {repeated[0]} is there more than once.")
    config = ContaminationConfig(model=model)
    embedder = load_embedder(model, threads)
    settings = fingerprints.Settings(
        window_of(config, embedder), config.ngram_size, config.mask_numbers
    )
    made = fingerprints.make(questions, settings, embedder)
    target.parent.mkdir(parents=True, exist_ok=True)
    artifact.write_atomically(target, fingerprints.to_json(name, made, settings, embedder))
    return len(made)
