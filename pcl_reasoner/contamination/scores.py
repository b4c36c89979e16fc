"""A few problems against all questions: the decision on each, and whether it is sure.

    problem    "Find x if 3x+5=20. Put your answer in \\boxed{}."
    question   "Find x if 3x+7=20."  (id aime-7)
    match      question 0, cosine 0.9712, window 0, containment 1.0, rule "both"

A problem is flagged when the cosine of its best window reaches the threshold, or when enough of a
question's n-grams stand in it. Cosines are rounded to 4 places before they are compared, so that
what is written is what was decided.

Vectors of the faster encoder move a cosine a little. What is flagged, or is so close to a limit
that this could decide, is not sure, and is scored again in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.contamination.text import strip_template

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcl_reasoner.contamination.config import ContaminationConfig

    Table = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]

PLACES = 4
SWEEP = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Thresholds for which the sweep says what would be flagged: 0.50, 0.55 … 0.95."""
MARGIN = 0.003
"""A cosine of the faster encoder this close to a limit decides nothing. Its cosines with exact
vectors moved by 0.0004 (standard deviation) and by 0.002 at most."""
SAMPLE = 1024
"""One in so many texts is scored again whatever it is, chosen by its hash."""


@dataclass(frozen=True, slots=True)
class Match:
    """A problem and the benchmark question that it was flagged for or else is closest to.

    Args:
        question: Index of the question.
        cosine: Of the problem's best window and this question; None when nothing was embedded.
        window: Which window that is; None when nothing was embedded.
        containment: Share of this question's n-grams in the problem.
        best_containment: The largest such share over all questions.
        rule: both, embedding, ngrams; None: not flagged.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    best_containment: float
    rule: str | None


class Scorer:
    """The benchmark's side of the comparison, made once; it can be sent to another process.

    Args:
        questions: Fingerprints of all benchmarks.
        config: Method and limits.
        embedded: False: n-grams only.
    """

    def __init__(
        self, questions: Sequence[Fingerprint], config: ContaminationConfig, embedded: bool
    ) -> None:
        import numpy as np

        self._config = config
        self._embedded = embedded
        self._count = len(questions)
        self._index = (
            NgramIndex(
                [question.grams for question in questions], config.ngram_size, config.mask_numbers
            )
            if config.use_ngrams
            else None
        )
        if embedded:
            # Where a question has several windows, the best of them counts.
            vectors = [question.vectors for question in questions if question.vectors is not None]
            self._vectors = np.concatenate(vectors)
            self._firsts = np.cumsum([0, *(len(own) for own in vectors[:-1])])
            halves = [question.halves for question in questions if question.halves is not None]
            self._halves = np.concatenate(halves)

    def question_of(self, text: str) -> str:
        """What of a problem is embedded: without templates, but for upstream's method."""
        return text if self._config.method == "upstream" else strip_template(text)

    def score(
        self, texts: Sequence[str], stripped: Sequence[str], vectors: Sequence[Vectors]
    ) -> tuple[list[Match], list[int], list[float]]:
        """The match of each of a few texts, which are not sure, and each one's best cosine.

        The best cosine is with whole questions, whatever the match is: unlike the match's it moves
        no more than the vectors do. There is none when nothing was embedded.

        Args:
            texts: Problems.
            stripped: ``question_of`` each.
            vectors: Of each, [windows, dimension]; none when nothing was embedded.
        """
        import numpy as np

        shares = self._shares(texts, stripped)
        if not self._embedded:
            return [self._match(share, None) for share in shares], [], []
        windows = np.concatenate(vectors)
        ends = np.cumsum([len(own) for own in vectors])
        cosines, halves = self._cosines(windows)
        whole = np.where(halves >= self._config.half_threshold, halves, -1.0)
        compared = np.maximum(cosines, whole) if self._config.method == "windows" else cosines
        matches = [
            self._match(share, own)
            for share, own in zip(shares, np.split(compared, ends[:-1]), strict=True)
        ]
        close = np.abs(halves - self._config.half_threshold).min(axis=1) <= MARGIN
        near_half = np.logical_or.reduceat(close, [0, *ends[:-1]])
        unsure = [
            place
            for place, match in enumerate(matches)
            if near_half[place] or not self._sure(match) or _sampled(texts[place])
        ]
        best = np.maximum.reduceat(cosines.max(axis=1), [0, *ends[:-1]])
        return matches, unsure, best.tolist()

    def _shares(self, texts: Sequence[str], stripped: Sequence[str]) -> Table:
        """Containment, shape (texts, questions)."""
        import numpy as np

        shares = np.zeros((len(texts), self._count))
        if self._index is not None:
            for row, (text, question) in enumerate(zip(texts, stripped, strict=True)):
                for index, share in self._index.containments(text, question).items():
                    shares[row, index] = round(share, PLACES)
        return shares

    def _cosines(self, vectors: Vectors) -> tuple[Table, Table]:
        """Cosines with whole questions, and with the closer half of each.

        A half of a question is often a phrase that many have ("Find the sum of all positive
        integers n such that"), so it must be met much more closely than a question.

        Args:
            vectors: Of windows, [windows, dimension].

        Returns:
            Two of [windows, questions].
        """
        import numpy as np

        products = np.maximum.reduceat(vectors @ self._vectors.T, self._firsts, axis=1)
        both = (vectors @ self._halves.T).reshape(len(vectors), self._count, 2)
        halves = both.max(axis=2).astype(np.float64).round(PLACES)
        return products.astype(np.float64).round(PLACES), halves

    def _sure(self, match: Match) -> bool:
        """Whether a cosine that is up to MARGIN off could change nothing that is written."""
        assert match.cosine is not None
        limits = (*SWEEP, self._config.threshold)
        return (
            match.rule is None
            and match.cosine < self._config.threshold - MARGIN
            and min(abs(match.cosine - limit) for limit in limits) > MARGIN
        )

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


def _sampled(text: str) -> bool:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SAMPLE == 0
