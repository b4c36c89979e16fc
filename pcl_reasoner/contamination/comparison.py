"""Compares all problems with all questions, part by part, on the data engine.

    part     texts 2048 … 3071, with the vectors that are in the cache
    result   a match per text, the texts whose match is uncertain, and the computed vectors

The fastest available encoder scores every text first. A text is then scored again in float32 if its
float32 result could differ: if it is flagged or within MARGIN of a limit, may be a near miss, or
has a near neighbour. One text in 1 024, chosen by hash, is scored again in any case. So the encoder
changes how long a check takes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.duplicates import Duplicate, Rows, first_kept, neighbours
from pcl_reasoner.contamination.findings import near_misses
from pcl_reasoner.contamination.scores import MARGIN, Match, Scorer
from pcl_reasoner.core.engine import map_parts
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import NoProgress, Progress
from pcl_reasoner.embedding.embed import Embedder, load_embedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcl_reasoner.embedding.cache import EmbeddingCache

    Vectors = npt.NDArray[np.float32]

PART_TEXTS = 1024
"""Texts per part. A worker holds one part in memory; a killed check repeats unfinished parts."""
NEAR_MISSES = 10
"""Number of kept problems closest to a question that are written to near_misses.jsonl."""
TRUSTED = 0.8 * MARGIN
"""If the faster encoder changes any cosine by more than this, all texts are scored in float32."""
ROUNDING = 1e-4
"""Slack for unrounded cosines, because decisions compare cosines rounded to 4 places."""


@dataclass(frozen=True)
class Job:
    """The settings that a worker needs for every part; picklable.

    Args:
        scorer: The benchmark questions, ready for comparison.
        model: As in ``load_embedder``; None: nothing is embedded.
        encoder: As in ``load_embedder``.
        threads: CPU threads per worker.
        window_tokens: Tokens per window.
        first_only: True: only the first window of each text.
    """

    scorer: Scorer
    model: str | None
    encoder: str
    threads: int
    window_tokens: int
    first_only: bool


@dataclass(frozen=True)
class Part:
    """Some texts, their cached vectors, and the encoder for the other texts.

    Args:
        texts: Problems.
        stripped: The text of each problem that is embedded.
        vectors: Cached vectors per text, [windows, dimension]; None for a text that is not cached.
            The list is empty when nothing is embedded.
        fast: True: use the faster encoder if there is one.
    """

    texts: list[str]
    stripped: list[str]
    vectors: list[Vectors | None]
    fast: bool


_loaded = lru_cache(maxsize=1)(load_embedder)
"""Loads a worker's own embedder once, and reuses it for later parts."""


def score_part(
    job: Job, part: Part, embedder: Embedder | None = None
) -> tuple[list[Match], list[int], list[float], dict[int, Vectors]]:
    """Embed the texts that are not cached, and score the part; pure, so that it can be retried.

    Args:
        job: Settings that are the same for all parts.
        part: The part's texts and cached vectors.
        embedder: None: this process loads its own.

    Returns:
        The match of each text; indices in the part of texts whose match is uncertain; the best
        cosine of each text; index in the part -> computed vectors. The last three are empty when
        nothing is embedded.
    """
    if job.model is None:
        return *job.scorer.score(part.texts, part.stripped, []), {}
    absent = [place for place, known in enumerate(part.vectors) if known is None]
    embedder = embedder or _loaded(job.model, job.threads, job.encoder)
    texts = [part.stripped[place] for place in absent]
    encoded = embedder.computed(texts, job.window_tokens, job.first_only, part.fast)
    made = dict(zip(absent, encoded, strict=True))
    vectors = [made[place] if known is None else known for place, known in enumerate(part.vectors)]
    return *job.scorer.score(part.texts, part.stripped, vectors), made


class Comparison:
    """A running check: the matches so far, and the texts already scored again in float32.

    Args:
        texts: Distinct problems.
        job: Settings that are the same for all parts.
        embedder: This process's embedder; None when nothing is embedded.
        cache: The embedding cache; None when nothing is embedded.
        data: The data engine.
        progress: Receives the number of texts done.
    """

    def __init__(
        self,
        texts: Sequence[str],
        job: Job,
        embedder: Embedder | None,
        cache: EmbeddingCache | None,
        data: DataEngine,
        progress: Progress,
    ) -> None:
        self._texts, self._job, self._embedder = texts, job, embedder
        self._cache, self._data, self._progress = cache, data, progress
        self._fast = embedder is not None and embedder.fast is not None
        self._exact: set[int] = set()
        self._best: dict[int, float] = {}
        self.matches: dict[int, Match] = {}
        self.largest_movement = 0.0

    def run(self) -> list[Match]:
        """Score every text, and score it again in float32 if its float32 result could differ."""
        unsure = self._score(range(len(self._texts)), self._fast)
        if self._fast:
            self._again(unsure)
            self._again(self._perhaps_near_misses())
            if self.largest_movement > TRUSTED:
                self._again(range(len(self._texts)))
        return [self.matches[index] for index in range(len(self._texts))]

    def facts(self) -> dict[str, Any] | None:
        """The encoder and its float32 rescoring, for the report; None when nothing was embedded."""
        if self._embedder is None:
            return None
        facts: dict[str, Any] = {"encoder": self._embedder.encoder}
        if self._fast:
            facts["again_in_float32"] = len(self._exact)
            facts["largest_movement"] = round(self.largest_movement, 4)
        return facts

    def _again(self, chosen: Iterable[int]) -> None:
        """Score in float32 the chosen texts that were not scored in float32 yet."""
        self._score(sorted(set(chosen) - self._exact), fast=False)

    def _score(self, chosen: Sequence[int], fast: bool) -> list[int]:
        """Score texts, keep their matches and vectors, and return the uncertain texts."""
        starts = range(0, len(chosen), PART_TEXTS)
        parts = [chosen[start : start + PART_TEXTS] for start in starts]
        # This process has loaded the embedder already; a worker process loads its own.
        here = self._data.engine == "local"
        function = partial(score_part, self._job, embedder=self._embedder if here else None)
        results = map_parts(
            function, (self._part(part, fast) for part in parts), self._data, NoProgress(), "parts"
        )
        unsure: list[int] = []
        done = 0
        for part, (matches, places, best, made) in zip(parts, results, strict=True):
            self._keep_vectors(part, made, fast)
            self.matches.update(zip(part, matches, strict=True))
            if self._fast:
                self._compare(part, best, fast)
            unsure += [part[place] for place in places]
            done += len(part)
            note = "again in float32" if self._fast and not fast else ""
            self._progress.update(done, len(chosen), "problems", note)
        return unsure

    def _part(self, chosen: Sequence[int], fast: bool) -> Part:
        texts = [self._texts[index] for index in chosen]
        stripped = [self._job.scorer.question_of(text) for text in texts]
        if self._cache is None:
            return Part(texts, stripped, [], fast)
        keys = self._keys(stripped, fast)
        there = [key for key in keys if key in self._cache]
        known = dict(zip(there, self._cache.read(there), strict=True))
        return Part(texts, stripped, [known.get(key) for key in keys], fast)

    def _keys(self, stripped: Sequence[str], fast: bool) -> list[bytes]:
        assert self._cache is not None
        window, first_only = self._job.window_tokens, self._job.first_only
        return [self._cache.key(text, window, first_only, fast) for text in stripped]

    def _keep_vectors(self, part: Sequence[int], made: dict[int, Vectors], fast: bool) -> None:
        if self._cache is not None and made:
            texts = (self._texts[part[place]] for place in made)
            keys = self._keys([self._job.scorer.question_of(text) for text in texts], fast)
            new = dict(zip(keys, made.values(), strict=True))
            self._cache.write(list(new), list(new.values()))

    def _compare(self, part: Sequence[int], best: Sequence[float], fast: bool) -> None:
        """Keep the faster encoder's best cosines, or measure how far float32's differ from them."""
        if fast:
            self._best.update(zip(part, best, strict=True))
            return
        self._exact.update(part)
        moved = [abs(self._best[i] - own) for i, own in zip(part, best, strict=True)]
        self.largest_movement = max([self.largest_movement, *moved])

    def _perhaps_near_misses(self) -> list[int]:
        """Texts that may be among the ten near misses once all cosines are float32.

        A float32 cosine is at most MARGIN lower or higher than the faster encoder's. So a text
        whose cosine is more than 2 MARGIN below the tenth-closest cannot be among the ten.
        """
        matches = [self.matches[index] for index in range(len(self._texts))]
        closest = near_misses(matches, NEAR_MISSES)
        if len(closest) < NEAR_MISSES:
            return closest
        least = (matches[closest[-1]].cosine or 0) - 2 * MARGIN
        return [i for i, m in enumerate(matches) if m.rule is None and (m.cosine or 0) >= least]

    def near_duplicates(self, limit: float, search: str) -> dict[int, Duplicate]:
        """Find texts that nearly repeat an earlier one, by their first windows.

        Only texts that are not flagged are compared. Upstream dropped both texts of a pair and
        printed the match of a text with itself (defect 3).

        Args:
            limit: A text repeats another if their cosine is at least this.
            search: exact or approximate, as in ContaminationConfig.

        Returns:
            Index of a text -> the closest earlier text that was kept, and the cosine of the two.
        """
        clean = [index for index in range(len(self._texts)) if self.matches[index].rule is None]
        slack = 2 * MARGIN if self._fast else ROUNDING
        windows = self._first_windows(clean, self._fast)
        near = neighbours(windows, limit - slack, search, self._progress)
        chosen = [clean[place] for place in near]
        if self._fast:
            self._again(chosen)
        found = first_kept(self._first_windows(chosen, fast=False), limit)
        return {
            chosen[place]: Duplicate(chosen[kept], cosine)
            for place, (kept, cosine) in found.items()
        }

    def _first_windows(self, chosen: Sequence[int], fast: bool) -> Rows:
        assert self._cache is not None
        stripped = [self._job.scorer.question_of(self._texts[index]) for index in chosen]
        return Rows(self._cache.all(), self._cache.first_rows(self._keys(stripped, fast)))
