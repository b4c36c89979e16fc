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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.embed import Embedder, load_embedder
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
class Question:
    """A benchmark question: the benchmark's name in the recipe, its id there, its text."""

    benchmark: str
    id: str
    text: str


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
class Duplicate:
    """A problem that is dropped for an earlier one: index of the distinct text kept, cosine."""

    kept: int
    cosine: float


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Args:
        texts: The distinct texts, in order of appearance.
        text_of_row: Row -> index of its text.
        matches: One a distinct text.
        duplicates: Index of a text -> the earlier text that it nearly repeats.
        embedder: Name, dimension and hash of the embedder; None when nothing was embedded.
    """

    texts: list[str]
    text_of_row: list[int]
    matches: list[Match]
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    embedder: dict[str, Any] | None = None

    def clean(self, row: int) -> bool:
        """True when a row is neither flagged nor a near-duplicate."""
        text = self.text_of_row[row]
        return self.matches[text].rule is None and text not in self.duplicates


def check(
    rows: Sequence[str],
    questions: Sequence[Question],
    config: ContaminationConfig,
    threads: int = 2,
    progress: Progress | None = None,
) -> Findings:
    """Compare problems with benchmark questions.

    Args:
        rows: Problems, one a row; equal ones are looked at once.
        questions: At least one.
        config: Method and limits.
        threads: CPU threads for encoding.
        progress: Told how many distinct problems are done.

    Raises:
        StageError: The embedder cannot be loaded, or reads fewer tokens than a window has.
    """
    index_of = {text: index for index, text in enumerate(dict.fromkeys(rows))}
    texts = list(index_of)
    embedder = load_embedder(config.model, threads) if config.embedding else None
    scorer = _Scorer(questions, config, embedder)
    matches: list[Match] = []
    for start in range(0, len(texts), CHUNK_TEXTS):
        matches += scorer.matches(texts[start : start + CHUNK_TEXTS])
        (progress or NoProgress()).update(len(matches), len(texts), "problems")
    duplicates = {}
    if config.near_duplicates is not None and embedder is not None:
        clean = [index for index, match in enumerate(matches) if match.rule is None]
        duplicates = _near_duplicates(texts, clean, embedder, config, config.near_duplicates)
    facts = embedder.facts() if embedder else None
    return Findings(texts, [index_of[text] for text in rows], matches, duplicates, facts)


class _Scorer:
    """The benchmark's side of the comparison, made once."""

    def __init__(
        self,
        questions: Sequence[Question],
        config: ContaminationConfig,
        embedder: Embedder | None,
    ) -> None:
        self._config = config
        self._embedder = embedder
        self._count = len(questions)
        stripped = [self._question_of(question.text) for question in questions]
        self._index = (
            NgramIndex(stripped, config.ngram_size, config.mask_numbers)
            if config.use_ngrams
            else None
        )
        if embedder is not None:
            self._vectors, self._firsts = embedder.encode(
                stripped, self._window(embedder), config.method == "upstream"
            )

    def _question_of(self, text: str) -> str:
        return text if self._config.method == "upstream" else strip_template(text)

    def _window(self, embedder: Embedder) -> int:
        """Tokens a window; upstream's one window is all that the model reads."""
        if self._config.method == "upstream":
            return embedder.max_tokens
        if self._config.window_tokens > embedder.max_tokens:
            raise StageError(
                f"contamination: window_tokens is {self._config.window_tokens}, but "
                f"{embedder.name} reads {embedder.max_tokens}. Set window_tokens to "
                f"{embedder.max_tokens} or less."
            )
        return self._config.window_tokens

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
            stripped, self._window(self._embedder), self._config.method == "upstream"
        )
        products = np.maximum.reduceat(vectors @ self._vectors.T, self._firsts, axis=1)
        cosines: Table = products.astype(np.float64).round(PLACES)
        ends = [*firsts[1:], len(vectors)]
        return [
            self._match(share, cosines[first:end])
            for share, first, end in zip(shares, firsts, ends, strict=True)
        ]

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


def _near_duplicates(
    texts: list[str],
    clean: list[int],
    embedder: Embedder,
    config: ContaminationConfig,
    threshold: float,
) -> dict[int, Duplicate]:
    """Texts that nearly repeat an earlier clean one; the first of a kind stays.

    The score is that of the pair; upstream dropped both and printed the match of a text with
    itself (defect 3).
    """
    import numpy as np

    stripped = [strip_template(texts[index]) for index in clean]
    window = min(config.window_tokens, embedder.max_tokens)
    vectors, _ = embedder.encode(stripped, window, first_only=True)
    kept_vectors = np.zeros_like(vectors)
    kept: list[int] = []
    found: dict[int, Duplicate] = {}
    for index, vector in zip(clean, vectors, strict=True):
        cosines = kept_vectors[: max(len(kept), 1)] @ vector
        nearest = int(cosines.argmax())
        cosine = round(float(cosines[nearest]), PLACES)
        if cosine >= threshold:
            found[index] = Duplicate(kept[nearest], cosine)
        else:
            kept_vectors[len(kept)] = vector
            kept.append(index)
    return found


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
