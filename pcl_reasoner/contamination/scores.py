"""Compares problems with all questions, flags problems, and finds uncertain decisions.

    problem    "Find x if 3x+5=20. Put your answer in \\boxed{}."
    question   "Find x if 3x+7=20."  (id aime-7)
    match      question 0, cosine 0.9712, window 0, containment 0.0, rule "embedding"

A problem is flagged if the cosine of its best window is at least the threshold, or if it contains a
large enough share of a question's n-grams. Cosines are rounded to 4 decimal places before the
comparison, so that the written cosine agrees with the decision.

The faster encoder's cosines differ slightly from float32 cosines. A match is uncertain if it is
flagged, or so near a limit that float32 could decide otherwise; it is scored again in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.contamination.text import strip_template
from pcl_reasoner.embedding.encoders import Vectors

Table = npt.NDArray[np.float64]

DECIMALS = 4
"""Decimal places to which cosines and containments are rounded."""
SWEEP = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Thresholds of the sweep: 0.50, 0.55 … 0.95."""
MARGIN = 0.003
"""If a cosine of the faster encoder is this close to a limit, the text is scored again in float32.
Measured differences from float32 cosines: standard deviation 0.0004, at most 0.002."""
SAMPLE = 1024
"""One text in this many, chosen by its hash, is scored again in float32 in any case."""

_RULES = {(True, True): "both", (True, False): "embedding", (False, True): "ngrams"}
"""(Cosine reaches its limit, containment reaches its limit) -> rule that flags the problem."""


@dataclass(frozen=True, slots=True)
class Match:
    """The question for which a problem is flagged; for an unflagged problem, the closest question.

    Args:
        question: Index of the question.
        cosine: Cosine of this question and the problem's best window; None when nothing was
            embedded.
        window: Index of that window; None when nothing was embedded.
        containment: Share of this question's n-grams that the problem contains.
        best_containment: The largest such share over all questions.
        rule: both, embedding or ngrams; None: not flagged.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    best_containment: float
    rule: str | None


class Scorer:
    """Scores problems against fixed benchmark questions; built once and picklable.

    Args:
        questions: Fingerprints of all benchmarks.
        config: Method and limits, and whether embeddings and n-grams are compared.
    """

    def __init__(self, questions: Sequence[Fingerprint], config: ContaminationConfig) -> None:
        self._config = config
        self._count = len(questions)
        self._index: NgramIndex | None = None
        if config.use_ngrams:
            grams = [question.grams for question in questions]
            self._index = NgramIndex(grams, config.ngram_size, config.mask_numbers)
        if config.embedding:
            # If a question has several windows, the best one counts.
            vectors = [question.vectors for question in questions if question.vectors is not None]
            self._vectors = np.concatenate(vectors)
            self._firsts = np.cumsum([0, *(len(windows) for windows in vectors[:-1])])
            halves = [question.halves for question in questions if question.halves is not None]
            self._halves = np.concatenate(halves)

    def embedded_text(self, text: str) -> str:
        """Text to embed: the problem without its chat template (upstream's method: unchanged)."""
        return text if self._config.method == "upstream" else strip_template(text)

    def score(
        self, texts: Sequence[str], stripped: Sequence[str], vectors: Sequence[Vectors]
    ) -> tuple[list[Match], list[int], list[float]]:
        """Match each text; find the uncertain matches and the best cosine of each text.

        The best cosine is with complete questions, never with halves, so a small change of the
        vectors changes it only slightly. The match's cosine can jump, because the cosine with a
        half counts only if it reaches the limit for halves.

        Args:
            texts: Problems.
            stripped: ``embedded_text`` of each text.
            vectors: Vectors of each text, [windows, dimension]; empty when nothing was embedded.

        Returns:
            Three lists: the match of each text; the indices of texts with an uncertain match; the
            best cosine of each text. The last two are empty when nothing was embedded.
        """
        shares = self._shares(texts, stripped)
        if not self._config.embedding:
            return [self._match(share, None) for share in shares], [], []
        starts = np.cumsum([0, *(len(windows) for windows in vectors[:-1])])
        cosines, halves = self._cosines(np.concatenate(vectors))
        counting = np.where(halves >= self._config.half_threshold, halves, -1.0)
        compared = np.maximum(cosines, counting) if self._config.method == "windows" else cosines
        by_text = zip(shares, np.split(compared, starts[1:]), strict=True)
        matches = [self._match(share, windows) for share, windows in by_text]
        close = np.abs(halves - self._config.half_threshold).min(axis=1) <= MARGIN
        near_half = np.logical_or.reduceat(close, starts)
        uncertain = [
            index
            for index, match in enumerate(matches)
            if near_half[index] or not self._is_certain(match) or _is_sampled(texts[index])
        ]
        best = np.maximum.reduceat(cosines.max(axis=1), starts)
        return matches, uncertain, best.tolist()

    def _shares(self, texts: Sequence[str], stripped: Sequence[str]) -> Table:
        """Containment of each question in each text, shape (texts, questions)."""
        shares = np.zeros((len(texts), self._count))
        if self._index is not None:
            for row, (text, question) in enumerate(zip(texts, stripped, strict=True)):
                for index, share in self._index.containments(text, question).items():
                    shares[row, index] = round(share, DECIMALS)
        return shares

    def _cosines(self, vectors: Vectors) -> tuple[Table, Table]:
        """Cosines with complete questions, and with the closer half of each question.

        Half a question is often a phrase of many problems ("Find the sum of all positive integers n
        such that"), so its limit is much higher than that of a complete question.

        Args:
            vectors: Vectors of windows, [windows, dimension].

        Returns:
            Two tables of shape [windows, questions].
        """
        products = np.maximum.reduceat(vectors @ self._vectors.T, self._firsts, axis=1)
        both = (vectors @ self._halves.T).reshape(len(vectors), self._count, 2)
        halves = both.max(axis=2).astype(np.float64).round(DECIMALS)
        return products.astype(np.float64).round(DECIMALS), halves

    def _is_certain(self, match: Match) -> bool:
        """True if an error of up to MARGIN in the cosine cannot change the check's output."""
        assert match.cosine is not None
        limits = (*SWEEP, self._config.threshold)
        return (
            match.rule is None
            and match.cosine < self._config.threshold - MARGIN
            and min(abs(match.cosine - limit) for limit in limits) > MARGIN
        )

    def _match(self, shares: Table, cosines: Table | None) -> Match:
        """Choose the question to report, and decide whether the problem is flagged.

        The question with the best cosine is reported. But if this cosine is below the threshold and
        the largest containment reaches its limit, the question with that containment is reported.

        Args:
            shares: Containment, shape (questions,).
            cosines: Cosines, shape (windows, questions); None when nothing was embedded.
        """
        best = cosines.max(axis=0) if cosines is not None else None
        question = int((best if best is not None else shares).argmax())
        near = best is not None and bool(best[question] >= self._config.threshold)
        limit = self._config.containment if self._index is not None else float("inf")
        if not near and shares.max() >= limit:
            question = int(shares.argmax())
        shared = bool(shares[question] >= limit)
        return Match(
            question=question,
            cosine=float(best[question]) if best is not None else None,
            window=int(cosines[:, question].argmax()) if cosines is not None else None,
            containment=float(shares[question]),
            best_containment=float(shares.max()),
            rule=_RULES.get((near, shared)),
        )


def _is_sampled(text: str) -> bool:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SAMPLE == 0
