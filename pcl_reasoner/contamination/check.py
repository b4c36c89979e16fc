"""Finds problems that are equal or nearly equal to a benchmark question.

rows       17 "Every morning Ada walks 8 kilometers …"    18 "Find the middle angle."
findings   17: question aime-2024-I-01, cosine 0.9873, rule "embedding"    18: not flagged

stage.py and command.py read the problems and write the evidence.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.comparison import Comparison, Job
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.findings import Findings
from pcl_reasoner.contamination.fingerprints import Fingerprint, Question, Settings
from pcl_reasoner.contamination.ngrams import is_copy
from pcl_reasoner.contamination.scores import Scorer
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import NoProgress, Progress
from pcl_reasoner.data_engine import tasks as engine
from pcl_reasoner.embedding.cache import EmbeddingCache
from pcl_reasoner.embedding.embed import Embedder, load_embedder
from pcl_reasoner.embedding.thresholds import require_weights
from pcl_reasoner.second_opinion.decisions import Judged, second_opinion
from pcl_reasoner.second_opinion.judge import Judge


def settings_of(config: ContaminationConfig, embedder: Embedder | None) -> Settings:
    """Return the settings (windows, n-grams, masking) that all fingerprints of a check must have.

    With the method ``upstream``, a window has as many tokens as the model can read.

    Args:
        config: Method, tokens per window, and n-grams.
        embedder: The embedding model; None if nothing is embedded.

    Raises:
        StageError: The model reads fewer tokens than window_tokens, or is not the one for which
            ``calibration`` was made.
    """
    if embedder is not None and config.calibration:
        require_weights(config.calibration, embedder.facts())
    window = config.window_tokens
    if embedder is not None and config.method == "upstream":
        window = embedder.max_tokens
    elif embedder is not None and window > embedder.max_tokens:
        raise StageError(
            f"contamination: window_tokens is {window}, but {embedder.name} reads "
            f"{embedder.max_tokens}. Set window_tokens to {embedder.max_tokens} or less."
        )
    return Settings(window, config.ngram_size, config.mask_numbers)


def fingerprints_of(
    questions: Sequence[Question], config: ContaminationConfig, embedder: Embedder | None
) -> list[Fingerprint]:
    """Return fingerprints: those of the questions, then those of the benchmarks in ``against``.

    Args:
        questions: Questions with their texts; may be empty if the configuration names benchmarks.
        config: Method and limits, and ``against``.
        embedder: The embedding model; None if nothing is embedded.
    """
    settings = settings_of(config, embedder)
    found = fingerprints.make(questions, settings, embedder, config.method == "upstream")
    hashes = {item.grams.text_hash for item in found}
    for file in fingerprints.resolve(config.against):
        loaded = fingerprints.load(file, settings, embedder)
        # A question that is also given as text is compared only once.
        found += [item for item in loaded if item.grams.text_hash not in hashes]
    return found


@contextmanager
def open_embedder(
    config: ContaminationConfig, threads: int, cache: Path | None
) -> Iterator[Embedder | None]:
    """Yield the embedder with its cache open; None if nothing is embedded."""
    if not config.embedding:
        yield None
        return
    embedder = load_embedder(config.model, threads, config.encoder)
    with closing(EmbeddingCache(cache, embedder.sha256, embedder.dimension)) as vectors:
        yield replace(embedder, cache=vectors)


def _judged(
    texts: Sequence[str],
    comparison: Comparison,
    benchmark: Sequence[Fingerprint],
    config: ContaminationConfig,
    judge: Judge | None,
) -> Judged | None:
    """Ask the judge about the suspects; None if there is no judge."""
    if config.judge is None:
        return None
    if judge is None:
        raise StageError(
            "contamination: judge is set, but nothing here can ask it. Use the stage contamination "
            "or pclr-ms contamination check --judge URL, or leave judge out."
        )
    known = [question.text for question in benchmark]
    copied = partial(is_copy, config.ngram_size)
    return second_opinion(texts, comparison.suspects(), known, judge, copied)


def check(
    rows: Sequence[str],
    questions: Sequence[Question],
    config: ContaminationConfig,
    threads: int = 2,
    progress: Progress | None = None,
    cache: Path | None = None,
    data: DataEngine = DataEngine(),  # noqa: B008  (frozen)
    judge: Judge | None = None,
) -> Findings:
    """Compare problems with benchmark questions.

    Args:
        rows: Problems, one per row; equal problems are compared once.
        questions: Questions with their texts; may be empty if the configuration names benchmarks.
        config: Method and limits.
        threads: CPU threads for encoding; with several workers, threads per worker.
        progress: Receives the number of distinct problems done.
        cache: Folder of the embedding cache; None: a temporary folder.
        data: The data engine.
        judge: Asked about close pairs if ``config.judge`` is set.

    Raises:
        InputError: A fingerprint file is invalid, or has other settings or another embedder.
        StageError: The embedder cannot be loaded, reads fewer tokens than a window has, or a
            configured benchmark does not exist; or the judge fails.
    """
    index_of = {text: index for index, text in enumerate(dict.fromkeys(rows))}
    duplicates = {}
    with open_embedder(config, threads, cache) as embedder, engine.connected(data):
        benchmark = fingerprints_of(questions, config, embedder)
        window = settings_of(config, embedder).window_tokens
        job = Job(config, Scorer(benchmark, config), threads, window)
        comparison = Comparison(list(index_of), job, embedder, data, progress or NoProgress())
        matches = comparison.run()
        judged = _judged(list(index_of), comparison, benchmark, config, judge)
        if judged is not None:
            matches = comparison.decided(judged.changes)
        if config.near_duplicates is not None:
            duplicates = comparison.near_duplicates(config.near_duplicates)
    return Findings(
        texts=list(index_of),
        text_of_row=[index_of[text] for text in rows],
        questions=benchmark,
        matches=matches,
        duplicates=duplicates,
        judged=judged,
        embedder=embedder.facts() if embedder else None,
        encoding=comparison.facts(),
    )
