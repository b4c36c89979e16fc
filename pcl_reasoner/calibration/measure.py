"""Measures an embedder on a benchmark, and derives the check's thresholds from the counts.

    background   problem 3 and question 17 are different: cosine 0.3120   1 770 such pairs
    disguise     question 17 in other LaTeX and question 17: cosine 0.9711
    thresholds   threshold 0.6575: 1 of 1 770 pairs reaches it; 60 of 60 in other LaTeX do

The shares are those of the packaged model's defaults. On the 60 questions of AIME 2024 and 2025,
5 % of the pairs reach the cosine 0.4, and 0.1 % reach 0.66, a little below its threshold of 0.7.
Its half_threshold of 0.9 is two thirds of the way from the threshold to 1. ``cosine_scale`` has the
cosines of this model that the same shares reach.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.calibration.cosines import CosineCounts, QuestionCosines, Table
from pcl_reasoner.calibration.disguises import DISGUISES
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.ngrams import NgramIndex
from pcl_reasoner.contamination.scores import DECIMALS
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.embedding.embed import Embedder
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.verifiers.shares import wilson

SHARE = 0.001
"""Share of the pairs of different problems that may reach ``threshold``."""
SURE = 0.1
"""This part of that share may reach ``half_threshold``."""
COMMON_SHARE = 0.05
"""Share of the pairs that may reach the first cosine of ``cosine_scale``."""
APART = 0.01
"""The two cosines of ``cosine_scale`` are at least this far apart."""
HALF_WAY = 2 / 3
"""``half_threshold`` is at least this part of the way from the threshold to 1: a rare share cannot
be measured on few pairs."""
TEXTS = 256
"""Texts that are embedded together."""
RANKS = (0.01, 0.5, 0.99, 0.999, 1.0)
"""Quantiles of the cosines in the file and in the table."""


@dataclass
class Counted:
    """The cosines of one kind.

    Args:
        limit: The cosine at which one counts as found; known after the background.
        cosines: Their counts.
    """

    limit: float = 0.0
    cosines: CosineCounts = field(default_factory=CosineCounts)

    def record(self) -> dict[str, Any]:
        """Number, number that reach the limit, its share's interval, and quantiles."""
        total, found = self.cosines.total, self.cosines.reaching(self.limit)
        low, high = wilson(found, total)
        return {
            "of": total,
            "limit": self.limit,
            "reached": found,
            "interval": [round(low, 6), round(high, 6)],
            "quantiles": {f"{rank:g}": self.cosines.quantile(rank) for rank in RANKS},
        }


@dataclass(frozen=True)
class Background:
    """Cosines of different problems.

    Args:
        pairs: A problem and a question.
        halves: A problem and the closer half of a question.
        left_out: Pairs that are copies by their n-grams, so they are not different problems.
    """

    pairs: Counted = field(default_factory=Counted)
    halves: Counted = field(default_factory=Counted)
    left_out: int = 0


class Measurement:
    """One embedder on one benchmark.

    Args:
        questions: Their fingerprints, with texts and vectors.
        embedder: The embedder, with its cache.
        config: Its ``window_tokens`` and the settings of n-grams are used.
        progress: Receives the number of texts that are embedded.
    """

    def __init__(
        self,
        questions: Sequence[Fingerprint],
        embedder: Embedder,
        config: ContaminationConfig,
        progress: Progress,
    ) -> None:
        self._texts = [strip_template(question.text or "") for question in questions]
        self._cosines = QuestionCosines(questions)
        grams = [question.grams for question in questions]
        self._ngrams = NgramIndex(grams, config.ngram_size, config.mask_numbers)
        self._embedder, self._config, self._progress = embedder, config, progress

    def background(self, texts: Sequence[str] | None) -> Background:
        """Cosines of problems that are not in the benchmark with its questions.

        Args:
            texts: The problems; None: the questions, each paired with the questions after it.
        """
        pairs, halves, left_out = Counted(), Counted(), 0
        for start, part, cosines, half_cosines in self._batches(texts or self._texts, "problems"):
            different = self._different(part)
            if texts is None:
                rows, columns = np.indices(different.shape)
                later = columns > rows + start
                left_out += int((later & ~different).sum())
                different &= later
            else:
                left_out += int((~different).sum())
            pairs.cosines.add(cosines[different])
            halves.cosines.add(half_cosines[different])
        return Background(pairs, halves, left_out)

    def _different(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """False where a text is a copy of a question by its n-grams, [texts, questions]."""
        different = np.ones((len(texts), len(self._texts)), bool)
        for row, text in enumerate(texts):
            for index, share in self._ngrams.containments(text, text).items():
                different[row, index] = share < self._config.containment
        return different

    def disguised(self, settings: dict[str, Any]) -> dict[str, Counted]:
        """Cosines of each disguise with its own question."""
        everyone = range(len(self._texts))
        return {
            name: self.copies([rule(text) for text in self._texts], everyone, settings, name)
            for name, rule in DISGUISES.items()
        }

    def copies(
        self, texts: Sequence[str], own: Sequence[int], settings: dict[str, Any], name: str
    ) -> Counted:
        """Cosines of rewritten questions with their own questions, as the check takes them.

        Args:
            texts: The rewrites.
            own: Index of the question of each.
            settings: Their thresholds.
            name: What they are, for the progress.
        """
        counted = Counted(settings["threshold"])
        for start, part, cosines, half_cosines in self._batches(texts, name):
            rows, columns = np.arange(len(part)), np.array(own[start : start + len(part)])
            whole, half = cosines[rows, columns], half_cosines[rows, columns]
            counting = np.where(half >= settings["half_threshold"], half, -1.0)
            counted.cosines.add(np.maximum(whole, counting))
        return counted

    def _batches(
        self, texts: Sequence[str], unit: str
    ) -> Iterator[tuple[int, list[str], Table, Table]]:
        """Yield (number of the first text, texts, cosines, cosines with halves) of each batch."""
        for start in range(0, len(texts), TEXTS):
            part = [strip_template(text) for text in texts[start : start + TEXTS]]
            vectors = self._embedder.encode(part, self._config.window_tokens)
            yield start, part, *self._cosines.of(vectors)
            self._progress.update(start + len(part), len(texts), unit)


def derived(background: Background, share: float) -> dict[str, Any]:
    """The thresholds; also sets the limits of the background's counts.

    Args:
        background: Cosines of different problems.
        share: Share of the pairs that may reach ``threshold``.

    Raises:
        StageError: The model gives the cosine 1 to more pairs of different problems.
    """
    pairs, halves = background.pairs.cosines, background.halves.cosines
    threshold = pairs.limit(share)
    common = pairs.limit(COMMON_SHARE)
    half = max(halves.limit(SURE * share), threshold + HALF_WAY * (1 - threshold))
    background.pairs.limit, background.halves.limit = threshold, round(half, DECIMALS)
    return {
        "threshold": threshold,
        "half_threshold": round(half, DECIMALS),
        "cosine_scale": [round(min(threshold - APART, common), DECIMALS), threshold],
    }
