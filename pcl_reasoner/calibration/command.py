"""Does the work of ``contamination calibrate``; prints nothing.

pclr-ms contamination calibrate QUESTIONS --model FOLDER --background problems.jsonl -o FILE
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.calibration.measure import Background, Counted, Measurement, derived
from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.check import open_embedder, settings_of
from pcl_reasoner.contamination.command import cache_folder
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question
from pcl_reasoner.contamination.reading import data_files, read_questions, read_rows
from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.embedding import thresholds

COPIES = "given copies"
"""The kind of the rewrites in a file."""


@dataclass(frozen=True)
class Calibration:
    """The content of a file of thresholds.

    Args:
        embedder: Name, dimension and hash of the weights.
        settings: Setting of ContaminationConfig -> value.
        measured: The counts.
    """

    embedder: dict[str, Any]
    settings: dict[str, Any]
    measured: dict[str, Any]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headings and rows: how many cosines of each kind reach their limit, and quantiles."""
        kinds = {
            "background": self.measured["pairs"],
            "background, halves": self.measured["halves"],
            **self.measured["copies"],
        }
        ranks = [f"{float(rank):.4g}" for rank in self.measured["pairs"]["quantiles"]]
        return ("cosines", "of", "limit", "reached", "95 % interval", *ranks), [
            (
                name,
                f"{one['of']:,}",
                f"{one['limit']:.4f}",
                f"{one['reached']:,}",
                "–".join(f"{100 * bound:.3g}" for bound in one["interval"]) + " %",
                *(f"{cosine:.3f}" for cosine in one["quantiles"].values()),
            )
            for name, one in kinds.items()
        ]


def calibrate(
    source: Path,
    target: Path,
    model: str,
    background: Sequence[Path],
    copies: Path | None,
    share: float,
    multilingual: bool,
    threads: int,
    progress: Progress,
) -> Calibration:
    """Measure an embedder on a benchmark, and write its thresholds.

    Args:
        source: The benchmark's questions, as ``fingerprint_questions`` reads them.
        target: The file to write.
        model: Embedder, as in ContaminationConfig.
        background: Files or folders of problems that are not in the benchmark; empty: the
            benchmark's own other questions.
        copies: Rewritten questions, e.g. translations, with the ids of their questions.
        share: Share of the pairs of different problems that may reach ``threshold``.
        multilingual: True: the embedder reads all scripts.
        threads: CPU threads for encoding.
        progress: Receives the number of texts that are embedded.

    Raises:
        InputError: There is no pair of different problems, or a copy's id is not a question's.
        StageError: A file cannot be read, or the embedder cannot be used.
    """
    questions = _distinct(read_questions({target.stem: source}))
    rewrites = _rewrites(copies, questions)
    problems = _problems(background)
    cache = cache_folder("embeddings")
    with open_embedder(ContaminationConfig(model=model), threads, cache) as embedder:
        assert embedder is not None
        window = min(ContaminationConfig().window_tokens, embedder.max_tokens)
        config = ContaminationConfig(model=model, window_tokens=window)
        made = fingerprints.make(questions, settings_of(config, embedder), embedder)
        measurement = Measurement(made, embedder, config, progress)
        found = _different(measurement, problems, source)
        limits = derived(found, share)
        settings = {**limits, "window_tokens": window, "all_scripts": multilingual}
        kinds = measurement.disguised(settings)
        if rewrites:
            texts, own = zip(*rewrites, strict=True)
            kinds[COPIES] = measurement.copies(texts, own, settings, COPIES)
        measured = _measured(len(questions), len(problems), share, found, kinds)
        result = Calibration(embedder.facts(), settings, measured)
    _write(target, result)
    return result


def _different(measurement: Measurement, problems: Sequence[str], source: Path) -> Background:
    """The cosines of different problems.

    Raises:
        InputError: There is no pair of different problems.
    """
    found = measurement.background(problems or None)
    if not found.pairs.cosines.total:
        raise InputError(
            f"{source}: the questions give no pair of different problems. Give problems that are "
            "not in the benchmark with --background."
        )
    return found


def _distinct(questions: Sequence[Question]) -> list[Question]:
    """The questions without those whose text occurs before."""
    return list({question.text: question for question in reversed(questions)}.values())[::-1]


def _problems(files: Sequence[Path]) -> list[str]:
    """The distinct problems of the background; a row without a problem is left out.

    Raises:
        InputError: A file has no problem.
    """
    found: dict[str, None] = {}
    for path in files:
        rows = read_rows(*data_files(path), lambda *_: None)
        if not rows.problem:
            raise InputError(f"{path}: none of its {rows.read} rows has a problem. Give others.")
        found |= dict.fromkeys(rows.problem)
    return list(found)


def _rewrites(file: Path | None, questions: Sequence[Question]) -> list[tuple[str, int]]:
    """The rewrites of a file, each with the index of its question.

    Raises:
        InputError: A rewrite has the id of no question.
    """
    if file is None:
        return []
    index_of = {question.id: index for index, question in enumerate(questions)}
    found = read_questions({file.stem: file})
    unknown = [one.id for one in found if one.id not in index_of]
    if unknown:
        raise InputError(
            f"{file}: {len(unknown)} of {len(found)} copies have the id of no question, e.g. "
            f"{unknown[0]}. Give each copy the id of its question."
        )
    return [(one.text, index_of[one.id]) for one in found]


def _measured(
    questions: int, problems: int, share: float, found: Background, kinds: dict[str, Counted]
) -> dict[str, Any]:
    """The counts, as they are in the file."""
    return {
        "share": share,
        "questions": questions,
        "background": f"{problems} problems" if problems else "the benchmark's other questions",
        "copies_left_out": found.left_out,
        "pairs": found.pairs.record(),
        "halves": found.halves.record(),
        "copies": {name: one.record() for name, one in kinds.items()},
    }


def _write(target: Path, result: Calibration) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    artifact.remove_unfinished(target)
    text = thresholds.to_json(result.embedder, result.settings, result.measured)
    artifact.write_atomically(target, text)
