"""Which problems are, or nearly are, a benchmark question: the decisions, without the disk.

    problem    "Find x if 3x+5=20. Put your answer in \\boxed{}."
    question   "Find x if 3x+7=20."  (id aime-7)
    match      question 0, cosine 0.9712, window 0, containment 1.0, rule "both"

A problem is flagged when the cosine of its best window reaches the threshold, or when enough of a
question's n-grams stand in it. Cosines are rounded to 4 places before they are compared, so that
what is written is what was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.contamination.cache import EmbeddingCache
from pcl_reasoner.contamination.duplicates import Duplicate, near_duplicates
from pcl_reasoner.contamination.embed import Embedder, load_embedder
from pcl_reasoner.contamination.fingerprints import Fingerprint, Question
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.contamination.text import strip_template
from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import NoProgress, Progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcl_reasoner.contamination.stage import ContaminationConfig

    Table = npt.NDArray[np.float64]

CHUNK_TEXTS = 2048
"""Texts whose tokens and scores are in memory at once."""
PLACES = 4
SWEEP = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Thresholds for which the sweep says what would be flagged: 0.50, 0.55 … 0.95."""


@dataclass(frozen=True)
class Match:
    """A problem and the benchmark question that it was flagged for or else is closest to.

    Args:
        question: Index of the question.
        cosine: Of the problem's best window and this question; None when nothing was embedded.
        window: Which window that is; None when nothing was embedded.
        containment: Share of this question's n-grams in the problem.
        best_containment: The largest share over all questions.
        rule: The rules that this pair meets: embedding, ngrams or both; None: not flagged.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    best_containment: float
    rule: str | None


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Args:
        texts: The distinct texts, in order of appearance.
        text_of_row: Row -> index of its text.
        questions: What was compared with; a match's question is an index of it.
        matches: One a distinct text.
        duplicates: Index of a text -> the earlier text that it nearly repeats.
        embedder: Name, dimension and hash of the embedder; None when nothing was embedded.
    """

    texts: list[str]
    text_of_row: list[int]
    questions: list[Fingerprint]
    matches: list[Match]
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    embedder: dict[str, Any] | None = None

    def clean(self, row: int) -> bool:
        """True when a row is neither flagged nor a near-duplicate."""
        text = self.text_of_row[row]
        return self.matches[text].rule is None and text not in self.duplicates


def window_of(config: ContaminationConfig, embedder: Embedder) -> int:
    """Tokens a window; upstream's one window is all that the model reads.

    Raises:
        StageError: The model reads fewer.
    """
    if config.method == "upstream":
        return embedder.max_tokens
    if config.window_tokens > embedder.max_tokens:
        raise StageError(
            f"contamination: window_tokens is {config.window_tokens}, but {embedder.name} reads "
            f"{embedder.max_tokens}. Set window_tokens to {embedder.max_tokens} or less."
        )
    return config.window_tokens


def fingerprints_of(
    questions: Sequence[Question], config: ContaminationConfig, embedder: Embedder | None
) -> list[Fingerprint]:
    """Fingerprints of questions whose texts are at hand, and of the benchmarks named in the
    configuration.

    Args:
        questions: May be none where the configuration names benchmarks.
        config: Method and limits.
        embedder: None: nothing is embedded.
    """
    window = window_of(config, embedder) if embedder else config.window_tokens
    settings = fingerprints.Settings(window, config.ngram_size, config.mask_numbers)
    upstream = config.method == "upstream"
    given = fingerprints.make(questions, settings, embedder, not upstream, upstream)
    known = {item.grams.whole for item in given}
    for file in fingerprints.resolve(config.against):
        loaded = fingerprints.load(file, settings, embedder)
        # A question that is there with its text is compared with once.
        given += [item for item in loaded if item.grams.whole not in known]
    return given


def check(
    rows: Sequence[str],
    questions: Sequence[Question],
    config: ContaminationConfig,
    threads: int = 2,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Findings:
    """Compare problems with benchmark questions.

    Args:
        rows: Problems, one a row; equal ones are looked at once.
        questions: With their texts; none where the configuration names benchmarks.
        config: Method and limits.
        threads: CPU threads for encoding.
        progress: Told how many distinct problems are done.
        cache: Folder in which embeddings are kept, by content; None: they are not.

    Raises:
        InputError: A fingerprint that cannot be compared with.
        StageError: The embedder cannot be loaded, or reads fewer tokens than a window has.
    """
    embedder = load_embedder(config.model, threads) if config.embedding else None
    if embedder is not None and cache is not None:
        embedder = replace(embedder, cache=EmbeddingCache(cache, embedder.sha256))
    benchmark = fingerprints_of(questions, config, embedder)
    index_of = {text: index for index, text in enumerate(dict.fromkeys(rows))}
    texts = list(index_of)
    scorer = _Scorer(benchmark, config, embedder)
    matches: list[Match] = []
    for start in range(0, len(texts), CHUNK_TEXTS):
        matches += scorer.matches(texts[start : start + CHUNK_TEXTS])
        (progress or NoProgress()).update(len(matches), len(texts), "problems")
    duplicates = {}
    if config.near_duplicates is not None and embedder is not None:
        clean = [index for index, match in enumerate(matches) if match.rule is None]
        duplicates = near_duplicates(
            texts, clean, embedder, config.window_tokens, config.near_duplicates
        )
    facts = embedder.facts() if embedder else None
    rows_texts = [index_of[text] for text in rows]
    return Findings(texts, rows_texts, benchmark, matches, duplicates, facts)


class _Scorer:
    """The benchmark's side of the comparison, made once."""

    def __init__(
        self,
        questions: Sequence[Fingerprint],
        config: ContaminationConfig,
        embedder: Embedder | None,
    ) -> None:
        import numpy as np

        self._config = config
        self._embedder = embedder
        self._count = len(questions)
        self._index = (
            NgramIndex(
                [question.grams for question in questions], config.ngram_size, config.mask_numbers
            )
            if config.use_ngrams
            else None
        )
        if embedder is not None:
            # Where a question has several windows, the best of them counts.
            vectors = [question.vectors for question in questions if question.vectors is not None]
            self._vectors = np.concatenate(vectors)
            self._firsts = np.cumsum([0, *(len(own) for own in vectors[:-1])])
            halves = [question.halves for question in questions if question.halves is not None]
            self._halves = np.stack(halves)

    def _question_of(self, text: str) -> str:
        return text if self._config.method == "upstream" else strip_template(text)

    def matches(self, texts: list[str]) -> list[Match]:
        """The match of each of a few texts."""
        import numpy as np

        stripped = [self._question_of(text) for text in texts]
        shares = np.zeros((len(texts), self._count))
        if self._index is not None:
            for row, (text, question) in enumerate(zip(texts, stripped, strict=True)):
                for index, share in self._index.containments(text, question).items():
                    shares[row, index] = round(share, PLACES)
        if self._embedder is None:
            return [self._match(share, None) for share in shares]
        vectors, firsts = self._embedder.encode(
            stripped, window_of(self._config, self._embedder), self._config.method == "upstream"
        )
        products = np.maximum.reduceat(vectors @ self._vectors.T, self._firsts, axis=1)
        cosines: Table = products.astype(np.float64).round(PLACES)
        if self._config.method == "windows":
            cosines = np.maximum(cosines, self._of_halves(vectors))
        ends = [*firsts[1:], len(vectors)]
        return [
            self._match(share, cosines[first:end])
            for share, first, end in zip(shares, firsts, ends, strict=True)
        ]

    def _of_halves(self, vectors: npt.NDArray[np.float32]) -> Table:
        """Cosines with the closer half of each question, −1 where it is not all but that half.

        A half of a question is often a phrase that many have ("Find the sum of all positive
        integers n such that"), so it must be met much more closely than a question.

        Args:
            vectors: Of windows, [windows, dimension].
        """
        import numpy as np

        cosines: Table = np.einsum("wd,qhd->wqh", vectors, self._halves).max(axis=2)
        rounded = cosines.astype(np.float64).round(PLACES)
        return np.where(rounded >= self._config.half_threshold, rounded, -1.0)

    def _match(self, shares: Table, cosines: Table | None) -> Match:
        """Choose the question to report; the embedding's, if the embedding alone would flag.

        Args:
            shares: Containment, shape (questions,).
            cosines: Shape (windows, questions); None when nothing was embedded.
        """
        best = cosines.max(axis=0) if cosines is not None else None
        question = int((best if best is not None else shares).argmax())
        near = best is not None and bool(best[question] >= self._config.threshold)
        limit = self._config.containment if self._index is not None else float("inf")
        if not near and shares.max() >= limit:
            question = int(shares.argmax())
        shared = bool(shares[question] >= limit)
        rules = {(True, True): "both", (True, False): "embedding", (False, True): "ngrams"}
        return Match(
            question=question,
            cosine=float(best[question]) if best is not None else None,
            window=int(cosines[:, question].argmax()) if cosines is not None else None,
            containment=float(shares[question]),
            best_containment=float(shares.max()),
            rule=rules.get((near, shared)),
        )


def sweep(findings: Findings, config: ContaminationConfig) -> dict[str, dict[str, int]]:
    """How many rows other thresholds would flag.

    Returns:
        Threshold -> rows that the embedding alone flags, and rows with n-grams as configured.
        The configured threshold is among them.
    """
    matches = [findings.matches[text] for text in findings.text_of_row]
    limit = config.containment if config.use_ngrams else float("inf")
    result = {}
    for threshold in sorted({*SWEEP, config.threshold}):
        near = [m.cosine is not None and m.cosine >= threshold for m in matches]
        shared = [m.best_containment >= limit for m in matches]
        either = sum(a or b for a, b in zip(near, shared, strict=True))
        result[f"{threshold:.2f}" if threshold in SWEEP else repr(threshold)] = {
            "embedding": sum(near),
            "with_ngrams": either,
        }
    return result


def near_misses(findings: Findings, count: int) -> list[int]:
    """Texts that came closest without being flagged, closest first.

    Returns:
        Indices of distinct texts; the measure is the cosine, or the containment without it.
    """

    def distance(index: int) -> tuple[float, int]:
        match = findings.matches[index]
        return -(match.containment if match.cosine is None else match.cosine), index

    unflagged = [index for index, match in enumerate(findings.matches) if match.rule is None]
    return sorted(unflagged, key=distance)[:count]
