"""Compares problems with all questions, flags problems, and finds uncertain decisions.

    problem    "Find x if 3x+5=20. Put your answer in \\boxed{}."
    question   "Find x if 3x+7=20."  (id aime-7)
    match      question 0, cosine 0.9712, window 0, containment 0.0, signature 0.61, 1.9 nats,
               rule "embedding"

A problem is flagged if the cosine of its best window is at least the threshold and its numbers and
formulas are not all other ones; or if it contains a large enough share of a question's n-grams, or
of its numbers and formulas. Cosines are rounded to 4 decimal places before the comparison, so that
the written cosine agrees with the decision.

The faster encoder's cosines differ slightly from float32 cosines. A match is uncertain if it is
flagged, or so near a limit that float32 could decide otherwise; it is scored again in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress

import numpy as np
import numpy.typing as npt

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.contamination.text import in_latin_script, strip_template
from pcl_reasoner.embedding.encoders import Vectors
from pcl_reasoner.signature.index import SignatureIndex

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

SPEAKING_NATS = 3.0
"""A question whose numbers and formulas tell less is not asked for support."""

ANSWER_SHARE, ANSWER_COSINE = 0.25, 0.55
"""A solution without the question: it has the answer, this share of the signature, and this cosine
with the question. The answer's nats count towards ``signature_nats``."""

RULES = ("embedding", "ngrams", "signature", "answer")
"""The rules, in the order in which ``Match.rule`` names those that a pair meets."""


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
        signature: Share of this question's numbers and formulas that the problem has.
        nats: What they tell, in nats.
        by_signature: True if the signature or the answer of any question flags the problem.
        supported: True if this question's signature does not speak against it.
        rule: The rules that this pair meets, as ``embedding+ngrams``; None: not flagged.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    best_containment: float
    signature: float
    nats: float
    by_signature: bool
    supported: bool
    rule: str | None


@dataclass(frozen=True, slots=True)
class Signed:
    """What a problem has of the questions' signatures, each of shape (questions,).

    Args:
        share: Share of the signature.
        nats: What the shared terms tell, in nats.
        enough: True where both reach their limits.
        supports: True where the signature does not speak against the question.
        answered: True where the question's answer, in addition, makes it enough for a solution.
        needs_cosine: True if the cosine has to reach its limit too.
    """

    share: Table
    nats: Table
    enough: npt.NDArray[np.bool_]
    supports: npt.NDArray[np.bool_]
    answered: npt.NDArray[np.bool_]
    needs_cosine: bool


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
        self._signatures: SignatureIndex | None = None
        self._answers = [(one.signature.answer, one.grams.text_hash) for one in questions]
        self._mute = np.ones(self._count, bool)
        if config.use_signature:
            self._signatures = SignatureIndex([question.signature for question in questions])
            self._mute = self._signatures.nats < SPEAKING_NATS
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
        signed = [self._signed(text) for text in stripped]
        if not self._config.embedding:
            without = zip(shares, signed, strict=True)
            return [self._match(share, None, one) for share, one in without], [], []
        starts = np.cumsum([0, *(len(windows) for windows in vectors[:-1])])
        cosines, halves = self._cosines(np.concatenate(vectors))
        counting = np.where(halves >= self._config.half_threshold, halves, -1.0)
        compared = np.maximum(cosines, counting) if self._config.method == "windows" else cosines
        by_text = list(zip(shares, np.split(compared, starts[1:]), signed, strict=True))
        matches = [self._match(*one) for one in by_text]
        close = np.abs(halves - self._config.half_threshold).min(axis=1) <= MARGIN
        near_half = np.logical_or.reduceat(close, starts)
        uncertain = [
            index
            for index, match in enumerate(matches)
            if near_half[index]
            or not self._is_certain(match)
            or self._is_near_signature(*by_text[index][1:])
            or _is_sampled(texts[index])
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

    def _signed(self, text: str) -> Signed:
        """What a problem, without chat template, has of each question's signature."""
        found = self._signatures.shared(text) if self._signatures is not None else {}
        share, nats = np.zeros(self._count), np.zeros(self._count)
        for index, shared in found.items():
            share[index] = round(shared.share, DECIMALS)
            nats[index] = round(shared.nats, DECIMALS)
        latin = bool(found) and in_latin_script(text)
        limit = self._config.signature_nats
        if latin and not self._config.embedding:
            limit *= 2
        enough = (share >= self._config.signature_share) & (nats >= limit)
        supports = self._mute | (share >= self._config.support)
        needs_cosine = latin and self._config.embedding
        answered = np.zeros(self._count, bool)
        if needs_cosine:
            for index in np.flatnonzero((share >= ANSWER_SHARE) & ~enough):
                told = self._answer_nats(text, index)
                answered[index] = told > 0 and nats[index] + told >= limit
        return Signed(share, nats, enough, supports, answered, needs_cosine)

    def _answer_nats(self, text: str, index: int) -> float:
        """What the answer of a question tells in a text, in nats."""
        answer, salt = self._answers[index]
        if self._signatures is None or answer is None or salt is None:
            return 0.0
        return self._signatures.answer_nats(text, answer, salt)

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

    def _is_near_signature(self, cosines: Table, signed: Signed) -> bool:
        """True if a cosine is near the limit that decides whether a signature flags the problem."""
        best = cosines.max(axis=0)
        near = np.abs(best - self._config.signature_cosine) <= MARGIN
        near_answer = np.abs(best - ANSWER_COSINE) <= MARGIN
        found = (near & signed.enough) | (near_answer & signed.answered)
        return signed.needs_cosine and bool(found.any())

    def _by_cosine(self, best: Table, signed: Signed) -> npt.NDArray[np.bool_]:
        """True for each question whose cosine flags the problem, shape (questions,)."""
        sure = best >= max(self._config.threshold, self._config.sure_threshold)
        return sure | ((best >= self._config.threshold) & signed.supports)

    def _match(self, shares: Table, cosines: Table | None, signed: Signed) -> Match:
        """Choose the question to report, and decide whether the problem is flagged.

        The question with the best cosine is reported. But if no cosine flags the problem and the
        largest containment reaches its limit, the question with that containment is reported; and
        if only signatures flag the problem, the question with the largest share.

        Args:
            shares: Containment, shape (questions,).
            cosines: Cosines, shape (windows, questions); None when nothing was embedded.
            signed: What the problem has of the signatures.
        """
        best = cosines.max(axis=0) if cosines is not None else None
        question = int((best if best is not None else shares).argmax())
        near = False
        if best is not None:
            by_cosine = self._by_cosine(best, signed)
            near = bool(by_cosine.any())
            question = int(np.where(by_cosine, best, -1.0).argmax()) if near else question
        limit = self._config.containment if self._index is not None else float("inf")
        same, solved = signed.enough, signed.answered
        if best is not None and signed.needs_cosine:
            same = same & (best >= self._config.signature_cosine)
            solved = solved & (best >= ANSWER_COSINE)
        told = same | solved
        if not near and shares.max() >= limit:
            question = int(shares.argmax())
        elif not near and told.any():
            question = int(np.where(told, signed.share, -1.0).argmax())
        met = (near, bool(shares[question] >= limit), bool(same[question]), bool(solved[question]))
        return Match(
            question=question,
            cosine=float(best[question]) if best is not None else None,
            window=int(cosines[:, question].argmax()) if cosines is not None else None,
            containment=float(shares[question]),
            best_containment=float(shares.max()),
            signature=float(signed.share[question]),
            nats=float(signed.nats[question]),
            by_signature=bool(told.any()),
            supported=bool(signed.supports[question]),
            rule="+".join(compress(RULES, met)) or None,
        )


def _is_sampled(text: str) -> bool:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SAMPLE == 0
