"""Compares all problems with all questions, part by part, on the data engine.

    part     texts 2048 … 3071, with the vectors that are in the cache
    result   a match per text, the texts whose match is uncertain, and the computed vectors

If the encoder has a faster pass, this pass scores every text first. A text is scored again in
float32 if it is flagged, if its cosine is within MARGIN of a limit, or if it may be a near miss or
a near-duplicate. One text in 1 024, chosen by hash, is scored again in any case. So the choice of
encoder changes only the time that a check takes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.findings import closeness, near_misses
from pcl_reasoner.contamination.scores import MARGIN, Match, Scorer
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import NoProgress, Progress
from pcl_reasoner.data_engine.tasks import map_parts
from pcl_reasoner.embedding.duplicates import Duplicate, VectorRows, first_kept, neighbours
from pcl_reasoner.embedding.embed import Embedder, load_embedder
from pcl_reasoner.embedding.encoders import Vectors
from pcl_reasoner.second_opinion.suspects import Suspect
from pcl_reasoner.signature.likeness import COSINE_WEIGHT, steepest

PART_TEXTS = 1024
"""Texts per part. A worker holds one part in memory; a killed check repeats unfinished parts."""
NEAR_MISSES = 10
"""Number of problems in near_misses.jsonl: the unflagged problems closest to a question."""
TRUSTED = 0.8 * MARGIN
"""If the faster encoder changes any cosine by more than this, all texts are scored in float32."""
ROUNDING = 1e-4
"""Tolerance for unrounded cosines, because decisions use cosines rounded to 4 decimal places."""


@dataclass(frozen=True)
class Job:
    """The settings that a worker needs for every part; picklable.

    Args:
        config: Method, model and encoder.
        scorer: The benchmark questions, ready for comparison.
        threads: CPU threads per worker.
        window_tokens: Tokens per window.
    """

    config: ContaminationConfig
    scorer: Scorer
    threads: int
    window_tokens: int

    @property
    def first_only(self) -> bool:
        """True: only the first window of each text is embedded."""
        return self.config.method == "upstream"


@dataclass(frozen=True)
class Part:
    """Some texts, their cached vectors, and the encoder for the other texts.

    Args:
        texts: Problems.
        stripped: The text to embed for each problem.
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
) -> tuple[list[Match], list[int], dict[int, float], dict[int, Vectors]]:
    """Score the part, and embed the texts that need it and are not cached; it can be repeated.

    Args:
        job: Settings that are the same for all parts.
        part: The part's texts and cached vectors.
        embedder: The embedding model; None: this process loads its own.

    Returns:
        Four values: the match of each text; the indices of texts whose match is uncertain; index of
        an embedded text -> its best cosine; index of a text -> computed vectors. An index is a
        position in the part. The last three values are empty when nothing is embedded.
    """
    compared = [job.scorer.compare(*pair) for pair in zip(part.texts, part.stripped, strict=True)]
    wanted = [job.scorer.needs_embedding(one) for one in compared]
    cached = part.vectors or [None] * len(wanted)
    missing = [i for i, wants in enumerate(wanted) if wants and cached[i] is None]
    if not missing:
        vectors = [one if wants else None for one, wants in zip(cached, wanted, strict=True)]
        return *job.scorer.score(part.texts, compared, vectors), {}
    embedder = embedder or _loaded(job.config.model, job.threads, job.config.encoder)
    texts = [part.stripped[index] for index in missing]
    encoded = embedder.computed(texts, job.window_tokens, job.first_only, part.fast)
    computed = dict(zip(missing, encoded, strict=True))
    vectors = [computed.get(i, cached[i]) if wants else None for i, wants in enumerate(wanted)]
    return *job.scorer.score(part.texts, compared, vectors), computed


class Comparison:
    """A running check: the matches so far, and the texts already scored again in float32.

    Args:
        texts: Distinct problems.
        job: Settings that are the same for all parts.
        embedder: This process's embedder, with its cache; None when nothing is embedded.
        data: The data engine.
        progress: Receives the number of texts done.
    """

    def __init__(
        self,
        texts: Sequence[str],
        job: Job,
        embedder: Embedder | None,
        data: DataEngine,
        progress: Progress,
    ) -> None:
        self._texts, self._job, self._embedder = texts, job, embedder
        self._data, self._progress = data, progress
        self._cache = embedder.cache if embedder else None
        self._fast = embedder is not None and embedder.fast is not None
        self._exact: set[int] = set()
        self._best: dict[int, float] = {}
        self.matches: dict[int, Match] = {}
        self.largest_movement = 0.0

    def run(self) -> list[Match]:
        """Score every text, twice if float32 may change the output, and return all matches."""
        uncertain = self._score(range(len(self._texts)), self._fast)
        if self._fast:
            self._rescore(uncertain)
            self._rescore(self._possible_near_misses(NEAR_MISSES))
            if self.largest_movement > TRUSTED:
                self._rescore(range(len(self._texts)))
        return self.all_matches()

    def all_matches(self) -> list[Match]:
        """The matches of all texts, in their order."""
        return [self.matches[index] for index in range(len(self._texts))]

    def suspects(self) -> dict[int, tuple[Suspect, ...]]:
        """Index of a text -> the questions that it is suspected to be; none without a judge."""
        return {index: one.suspects for index, one in enumerate(self.all_matches()) if one.suspects}

    def decided(self, changes: Mapping[int, Suspect | None]) -> list[Match]:
        """Apply the judge's decisions, and return all matches.

        Texts with suspects are scored in float32 already, so no decision is lost later.

        Args:
            changes: Index of a text -> the question for which it is flagged; None: cleared.
        """
        for index, found in changes.items():
            fields = {"rule": None} if found is None else asdict(found)
            self.matches[index] = replace(self.matches[index], **fields)
        if self._fast:
            self._rescore(self._possible_near_misses(NEAR_MISSES + len(changes)))
        return self.all_matches()

    def facts(self) -> dict[str, Any] | None:
        """The encoder and its float32 rescoring, for the report; None when nothing was embedded."""
        if self._embedder is None:
            return None
        facts: dict[str, Any] = {"encoder": self._embedder.encoder}
        if self._fast:
            facts["again_in_float32"] = len(self._exact)
            facts["largest_movement"] = round(self.largest_movement, 4)
        return facts

    def _rescore(self, chosen: Iterable[int]) -> None:
        """Score in float32 the chosen texts that were not scored in float32 yet."""
        self._score(sorted(set(chosen) - self._exact), fast=False)

    def _score(self, chosen: Sequence[int], fast: bool) -> list[int]:
        """Score texts, store matches and vectors, and return the indices of uncertain texts."""
        starts = range(0, len(chosen), PART_TEXTS)
        parts = [chosen[start : start + PART_TEXTS] for start in starts]
        # This process has loaded the embedder already; a worker process loads its own.
        embedder = self._embedder if self._data.engine == "local" else None
        function = partial(score_part, self._job, embedder=embedder)
        inputs = (self._part(part, fast) for part in parts)
        results = map_parts(function, inputs, self._data, NoProgress(), "parts")
        note = "again in float32" if self._fast and not fast else ""
        uncertain: list[int] = []
        done = 0
        for part, (matches, indices, best, computed) in zip(parts, results, strict=True):
            self._keep_vectors(part, computed, fast)
            self.matches.update(zip(part, matches, strict=True))
            if self._fast:
                self._compare({part[index]: cosine for index, cosine in best.items()}, fast)
            uncertain += [part[index] for index in indices]
            done += len(part)
            self._progress.update(done, len(chosen), "problems", note)
        return uncertain

    def _part(self, chosen: Sequence[int], fast: bool) -> Part:
        texts = [self._texts[index] for index in chosen]
        stripped = self._stripped(chosen)
        if self._cache is None:
            return Part(texts, stripped, [], fast)
        keys = self._keys(stripped, fast)
        cached = [key for key in keys if key in self._cache]
        vectors = dict(zip(cached, self._cache.read(cached), strict=True))
        return Part(texts, stripped, [vectors.get(key) for key in keys], fast)

    def _stripped(self, chosen: Iterable[int]) -> list[str]:
        return [self._job.scorer.embedded_text(self._texts[index]) for index in chosen]

    def _keys(self, stripped: Sequence[str], fast: bool) -> list[bytes]:
        assert self._cache is not None
        window, first_only = self._job.window_tokens, self._job.first_only
        return [self._cache.key(text, window, first_only, fast) for text in stripped]

    def _keep_vectors(self, part: Sequence[int], computed: dict[int, Vectors], fast: bool) -> None:
        if self._cache is not None and computed:
            keys = self._keys(self._stripped(part[index] for index in computed), fast)
            new = dict(zip(keys, computed.values(), strict=True))
            self._cache.write(list(new), list(new.values()))

    def _compare(self, best: Mapping[int, float], fast: bool) -> None:
        """Store the faster encoder's best cosines, or compare the float32 cosines with them."""
        if fast:
            self._best.update(best)
            return
        self._exact.update(best)
        moved = [abs(self._best[index] - cosine) for index, cosine in best.items()]
        self.largest_movement = max([self.largest_movement, *moved])

    def _possible_near_misses(self, count: int) -> list[int]:
        """Indices of texts that may be among the near misses when all cosines are float32.

        A float32 cosine is at most MARGIN lower or higher than the faster encoder's. So a text
        that is more than twice the change that this can make behind the last near miss cannot be
        one.

        Args:
            count: Number of near misses.
        """
        matches = self.all_matches()
        closest = near_misses(matches, count)
        if len(closest) < count:
            return closest
        config = self._job.config
        weight = COSINE_WEIGHT * steepest(config.cosine_scale) if config.use_signature else 1.0
        change = MARGIN * weight
        least = closeness(matches[closest[-1]]) - 2 * change
        return [i for i, m in enumerate(matches) if m.rule is None and closeness(m) >= least]

    def near_duplicates(self, limit: float) -> dict[int, Duplicate]:
        """Find texts that nearly repeat an earlier one, by their first windows.

        Only texts that are not flagged are compared. Upstream dropped both texts of a pair, and
        printed every text as a match of itself.

        Args:
            limit: A text repeats another if their cosine is at least this.

        Returns:
            Index of a text -> the closest earlier text that was kept, and the cosine of the two.
        """
        clean = [index for index in range(len(self._texts)) if self.matches[index].rule is None]
        slack = 2 * MARGIN if self._fast else ROUNDING
        windows = self._first_windows(clean, self._fast)
        search = self._job.config.near_duplicates_search
        near = neighbours(windows, limit - slack, search, self._progress)
        chosen = [clean[index] for index in near]
        if self._fast:
            self._rescore(chosen)
        found = first_kept(self._first_windows(chosen, fast=False), limit)
        return {chosen[i]: Duplicate(chosen[kept], cosine) for i, (kept, cosine) in found.items()}

    def _first_windows(self, chosen: Sequence[int], fast: bool) -> VectorRows:
        assert self._cache is not None
        keys = self._keys(self._stripped(chosen), fast)
        return VectorRows(self._cache.all(), self._cache.first_rows(keys))
