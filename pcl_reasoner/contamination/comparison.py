"""All problems against all questions, part by part, on the data engine.

    part     texts 2048 … 3071, with the vectors of those that were embedded before
    result   a match each, which of them are not sure, and the vectors that were made

The fastest encoder there is goes first. What could be decided or written otherwise in float32 is
then scored again in float32: what is flagged or within MARGIN of a limit, the near misses, texts
with a near neighbour, and one text in 1 024 whatever it is. An encoder so changes how long a check
takes, and nothing else.
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
"""Texts of a part: what a worker has in memory, and what a killed check embeds again."""
NEAR_MISSES = 10
"""The closest problems that were kept are written down."""
TRUSTED = 0.8 * MARGIN
"""When the faster encoder is seen to move a cosine by more, everything is scored in float32."""
ROUNDING = 1e-4
"""Cosines are compared after rounding to 4 places."""


@dataclass(frozen=True)
class Job:
    """What a worker needs beside a part; it can be sent to another process.

    Args:
        scorer: The benchmark's side.
        model: As for load_embedder; None: nothing is embedded.
        encoder: As for load_embedder.
        threads: CPU threads of a worker.
        window_tokens: Tokens a window.
        first_only: True: one window a text.
    """

    scorer: Scorer
    model: str | None
    encoder: str
    threads: int
    window_tokens: int
    first_only: bool


@dataclass(frozen=True)
class Part:
    """A few texts, the vectors of those that are known, and which encoder the others get.

    Args:
        texts: Problems.
        stripped: What of each is embedded.
        vectors: Of each, [windows, dimension]; None: not known; none when nothing is embedded.
        fast: True: by the faster encoder, where there is one.
    """

    texts: list[str]
    stripped: list[str]
    vectors: list[Vectors | None]
    fast: bool


_loaded = lru_cache(maxsize=1)(load_embedder)
"""A worker's own embedder, kept from part to part."""


def score_part(
    job: Job, part: Part, embedder: Embedder | None = None
) -> tuple[list[Match], list[int], list[float], dict[int, Vectors]]:
    """Embed what is not known yet and score a part; pure, so that it can run twice.

    Args:
        job: What does not change from part to part.
        part: Its texts.
        embedder: None: the process's own.

    Returns:
        A match a text; places in the part that are not sure; a best cosine a text; place ->
        vectors made.
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
    """A check under way: matches so far, and which of them are of float32.

    Args:
        texts: Distinct problems.
        job: What does not change from part to part.
        embedder: Of this process; None when nothing is embedded.
        cache: Where vectors are kept; None when nothing is embedded.
        data: The data engine.
        progress: Told how many texts are done.
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
        """Score every text, and again in float32 what could come out otherwise."""
        unsure = self._score(range(len(self._texts)), self._fast)
        if self._fast:
            self._again(unsure)
            self._again(self._perhaps_near_misses())
            if self.largest_movement > TRUSTED:
                self._again(range(len(self._texts)))
        return [self.matches[index] for index in range(len(self._texts))]

    def facts(self) -> dict[str, Any] | None:
        """What computed, for the report; None when nothing was embedded."""
        if self._embedder is None:
            return None
        facts: dict[str, Any] = {"encoder": self._embedder.encoder}
        if self._fast:
            facts["again_in_float32"] = len(self._exact)
            facts["largest_movement"] = round(self.largest_movement, 4)
        return facts

    def _again(self, chosen: Iterable[int]) -> None:
        """Score texts in float32 that were not yet."""
        self._score(sorted(set(chosen) - self._exact), fast=False)

    def _score(self, chosen: Sequence[int], fast: bool) -> list[int]:
        """Score texts and keep what was made of them; returns those that are not sure."""
        starts = range(0, len(chosen), PART_TEXTS)
        parts = [chosen[start : start + PART_TEXTS] for start in starts]
        # In this process the embedder is there already; another one loads its own.
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
        """Remember the faster encoder's cosines, and see how far those of float32 are from them."""
        if fast:
            self._best.update(zip(part, best, strict=True))
            return
        self._exact.update(part)
        moved = [abs(self._best[i] - own) for i, own in zip(part, best, strict=True)]
        self.largest_movement = max([self.largest_movement, *moved])

    def _perhaps_near_misses(self) -> list[int]:
        """Texts that may be among the closest that were kept.

        Of the ten closest by the faster encoder none is more than MARGIN less close in float32,
        so no text that is more than twice that behind the tenth can be among the ten.
        """
        matches = [self.matches[index] for index in range(len(self._texts))]
        closest = near_misses(matches, NEAR_MISSES)
        if len(closest) < NEAR_MISSES:
            return closest
        least = (matches[closest[-1]].cosine or 0) - 2 * MARGIN
        return [i for i, m in enumerate(matches) if m.rule is None and (m.cosine or 0) >= least]

    def near_duplicates(self, limit: float, search: str) -> dict[int, Duplicate]:
        """Texts that nearly repeat an earlier one that is in no benchmark, by their first windows.

        Upstream dropped both of a pair and printed the match of a text with itself (defect 3).

        Args:
            limit: Cosine from which a problem repeats another.
            search: exact or approximate, as in ContaminationConfig.

        Returns:
            Index of a text -> the earlier text that it is closest to, and the cosine of the two.
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
