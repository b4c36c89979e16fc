"""Compares problems with all questions, flags problems, and finds uncertain decisions.

    problem    "Find x if 3x+5=20. Put your answer in \\boxed{}."
    question   "Find x if 3x+7=20."  (id aime-7)
    match      question 0, cosine 0.9712, window 0, containment 0.0, log-odds -1.3, rule None

A problem is flagged if it contains a large enough share of a question's n-grams; if what it shares
with a question (numbers, formulas, concepts, cosine) makes it likely that it is a rewrite; or if
the cosine of its best window is at least the threshold and what is shared does not speak against.
Cosines and log-odds are rounded to 4 decimal places before they are compared, so that the written
figures agree with the decision.

The faster encoder's cosines differ slightly from float32 cosines. A match is uncertain if it is
flagged, or so near a limit that float32 could decide otherwise; it is scored again in float32.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import compress

import numpy as np
import numpy.typing as npt

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.embedding.encoders import Vectors
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.second_opinion.suspects import NEAR_LOG_ODDS, Suspect, suspects
from pcl_reasoner.signature import likeness
from pcl_reasoner.signature.index import SignatureIndex
from pcl_reasoner.signature.kinds import kind_of

Table = npt.NDArray[np.float64]

DECIMALS = 4
"""Decimal places to which cosines, containments and log-odds are rounded."""
SWEEP = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Thresholds of the sweep: 0.50, 0.55 … 0.95."""
MARGIN = 0.003
"""If a cosine of the faster encoder is this close to a limit, the text is scored again in float32.
Measured differences from float32 cosines: standard deviation 0.0004, at most 0.002."""
SAMPLE = 1024
"""One text in this many, chosen by its hash, is scored again in float32 in any case."""

FEW_NATS, SAME_CONCEPTS = 3.0, 0.3
"""If a question's numbers and formulas have fewer nats, its log-odds flag nothing, and a cosine
with it needs this share of its concepts as support."""

RULES = ("embedding", "ngrams", "likeness")
"""The rules, in the order in which ``Match.rule`` names those that a pair meets."""


@dataclass(frozen=True, slots=True)
class Match:
    """The question for which a problem is flagged; for an unflagged problem, the closest question.

    Args:
        question: Index of the question.
        cosine: Cosine of this question and the problem's best window; None: not embedded.
        window: Index of that window; None: not embedded.
        containment: Share of this question's n-grams that the problem contains.
        best_containment: The largest such share over all questions.
        supported_cosine: The largest cosine over the questions whose log-odds do not speak against
            them; None: there is none.
        log_odds: Log-odds that the problem is a rewrite of this question; None: not compared.
        by_likeness: True if the log-odds of any question flag the problem.
        rule: The rules that this pair meets, as ``embedding+ngrams``; None: not flagged.
        suspects: The questions to ask a judge about, closest first; empty without a judge.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    best_containment: float
    supported_cosine: float | None
    log_odds: float | None
    by_likeness: bool
    rule: str | None
    suspects: tuple[Suspect, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """A text compared with all questions, before its cosines are known.

    Args:
        containment: Share of each question's n-grams in the text, (questions,).
        features: What speaks for each question, without the cosine, (questions, features); None:
            signatures are not compared.
        weights: Weight of each feature for this kind of text, (features,).
        constant: What is added to the weighted sum.
        telling: True for questions whose numbers and formulas tell something, (questions,).
        by_concepts: True for the others, if their concepts support a cosine, (questions,).
        scale: The cosines that say as much as 0.4 and 0.7 of the packaged model.
    """

    containment: Table
    features: Table | None
    weights: Table
    constant: float
    telling: npt.NDArray[np.bool_]
    by_concepts: npt.NDArray[np.bool_]
    scale: tuple[float, float] = likeness.SCALE

    def log_odds(self, cosines: Table | float | None) -> Table | None:
        """Log-odds of each question, (questions,), for cosines of this shape."""
        if self.features is None:
            return None
        known = 0.0 if cosines is None else likeness.scaled(cosines, self.scale)
        odds = self.features @ self.weights + known * self.weights[likeness.COSINE] + self.constant
        return np.asarray(odds).round(DECIMALS)


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
        if config.use_signature:
            salts = [question.grams.text_hash for question in questions]
            self._signatures = SignatureIndex([one.signature for one in questions], salts)
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

    def compare(self, text: str, stripped: str) -> Compared:
        """Compare a text with all questions by everything but its embedding.

        Args:
            text: A problem.
            stripped: ``embedded_text`` of it.
        """
        containment = np.zeros(self._count)
        if self._index is not None:
            for index, share in self._index.containments(text, stripped).items():
                containment[index] = round(share, DECIMALS)
        if self._signatures is None:
            none = np.zeros(self._count, bool)
            return Compared(containment, None, np.zeros(len(likeness.FEATURES)), 0.0, none, none)
        kind = kind_of(stripped)
        if kind == "other_script" and self._config.all_scripts:
            kind = "question"
        shared = self._signatures.shared(stripped, answers=kind in likeness.WITH_ANSWER)
        weights, constant = likeness.weights(kind, self._config.embedding)
        features = likeness.features(shared, None)
        telling = self._signatures.nats >= FEW_NATS
        by_concepts = ~telling & (features[:, likeness.CONCEPTS] >= SAME_CONCEPTS)
        scale = self._config.cosine_scale
        return Compared(containment, features, weights, constant, telling, by_concepts, scale)

    def needs_embedding(self, compared: Compared) -> bool:
        """True if the cosines of a text can change its decision, or are shown with it.

        Without signatures, every text is embedded.
        """
        if not self._config.embedding:
            return False
        highest = compared.log_odds(1.0)
        if highest is None or self._config.near_duplicates is not None:
            return True
        likely = (highest >= min(self._odds_limits())) & compared.telling
        return bool((likely | compared.by_concepts).any() or compared.containment.any())

    def score(
        self,
        texts: Sequence[str],
        compared: Sequence[Compared],
        vectors: Sequence[Vectors | None],
    ) -> tuple[list[Match], list[int], dict[int, float]]:
        """Match each text; find the uncertain matches and the best cosine of each embedded text.

        The best cosine is with complete questions, never with halves, so a small change of the
        vectors changes it only slightly. The match's cosine can jump, because the cosine with a
        half counts only if it reaches the limit for halves.

        Args:
            texts: Problems.
            compared: ``compare`` of each text.
            vectors: Vectors of each text, [windows, dimension]; None for a text that is not
                embedded.

        Returns:
            The match of each text; the indices of texts with an uncertain match; index of an
            embedded text -> its best cosine.
        """
        matches, uncertain, best = [], [], {}
        for index, (text, one, windows) in enumerate(zip(texts, compared, vectors, strict=True)):
            if windows is None:
                matches.append(self._match(one, None))
                continue
            cosines, halves = self._cosines(windows)
            best[index] = float(cosines.max())
            limit = self._config.half_threshold if self._config.method == "windows" else np.inf
            near_half = bool((np.abs(halves - limit) <= MARGIN).any())
            counting = np.where(halves >= limit, halves, -1.0)
            match = self._match(one, np.maximum(cosines, counting), counting.max(axis=0))
            matches.append(match)
            if near_half or not self._is_certain(one, cosines, match) or _is_sampled(text):
                uncertain.append(index)
        return matches, uncertain, best

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

    def _odds_limits(self) -> list[float]:
        """Log-odds at which a decision changes."""
        asked = [NEAR_LOG_ODDS] if self._config.judge is not None else []
        return [self._config.support, self._config.log_odds, *asked]

    def _is_certain(self, compared: Compared, cosines: Table, match: Match) -> bool:
        """True if an error of up to MARGIN in the cosines cannot change the check's output."""
        if match.rule is not None or match.suspects:
            return False
        best = cosines.max(axis=0)
        limits = (*SWEEP, self._config.threshold)
        odds = compared.log_odds(best)
        if odds is None:
            return min(abs(best.max() - limit) for limit in limits) > MARGIN
        # The log-odds of 4 decimal places may be off by half of the last one.
        steepest = likeness.steepest(compared.scale)
        reach = MARGIN * steepest * compared.weights[likeness.COSINE] + 10.0**-DECIMALS
        near_odds = [bool((np.abs(odds - limit) <= reach).any()) for limit in self._odds_limits()]
        supported = best[(odds >= self._config.support - reach) | compared.by_concepts]
        near = any(abs(cosine - limit) <= MARGIN for cosine in supported for limit in limits)
        return not (near or any(near_odds))

    def _match(
        self, compared: Compared, cosines: Table | None, halves: Table | None = None
    ) -> Match:
        """Choose the question to report, and decide whether the problem is flagged.

        The closest question that flags the problem is reported: by its cosine if the embedding
        flags it, else by its n-grams, else by its log-odds. If none does, the closest question.

        Args:
            compared: What the text shares with the questions.
            cosines: Cosines, shape (windows, questions); None when the text is not embedded.
            halves: Cosine with half of each question where it counts, else -1, (questions,).
        """
        best = None if cosines is None else cosines.max(axis=0)
        odds = compared.log_odds(best)
        containment = compared.containment
        none = np.zeros(self._count, bool)
        supported = ~none
        if odds is not None:
            supported = np.where(
                compared.telling, odds >= self._config.support, compared.by_concepts
            )
        if halves is not None:
            # Half a question has half of its numbers.
            supported = supported | (halves > 0)
        near = none if best is None else (best >= self._config.threshold) & supported
        limit = self._config.containment if self._index is not None else float("inf")
        copied = containment >= limit
        likely = none if odds is None else (odds >= self._config.log_odds) & compared.telling
        closeness = next(one for one in (odds, best, containment) if one is not None)
        question = int(closeness.argmax())
        for flags, order in ((near, best), (copied, containment), (likely, odds)):
            if order is not None and flags.any():
                question = int(np.where(flags, order, -np.inf).argmax())
                break
        rules = (near, copied, likely)
        asked: list[int] = []
        if self._config.judge is not None:
            asked = suspects(best, containment, odds, near | copied | likely)
        return Match(
            **asdict(_pair(question, cosines, containment, odds, rules)),
            best_containment=float(containment.max()),
            supported_cosine=float(best[supported].max())
            if best is not None and supported.any()
            else None,
            by_likeness=bool(likely.any()),
            suspects=tuple(_pair(one, cosines, containment, odds, rules) for one in asked),
        )


def _pair(
    question: int,
    cosines: Table | None,
    containment: Table,
    odds: Table | None,
    rules: tuple[npt.NDArray[np.bool_], ...],
) -> Suspect:
    """What a text shares with one question, and the rules that flag this pair."""
    window = None if cosines is None else int(cosines[:, question].argmax())
    return Suspect(
        question=question,
        cosine=None if cosines is None else float(cosines[window, question]),
        window=window,
        containment=float(containment[question]),
        log_odds=None if odds is None else float(odds[question]),
        rule="+".join(compress(RULES, (flags[question] for flags in rules))) or None,
    )


def _is_sampled(text: str) -> bool:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SAMPLE == 0
