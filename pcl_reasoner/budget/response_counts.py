"""Number and length of the responses that a recipe's stages draw or read.

Numbers come from ``published.funnel``, from benchmark files, or from ``--problems``; lengths from
``published.mean_tokens``, or from the stage ``lengths`` that keeps long problems:

    mean_tokens: {evaluate: {aime24: 22535, aime25: 25993}}

Missing numbers are assumed, and the report names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from pcl_reasoner.budget.served_model import hub_facts
from pcl_reasoner.core.files import expanded
from pcl_reasoner.curate.lengths import LengthsConfig
from pcl_reasoner.estimate.data_size import DataSize, data_size, published_counts
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.runner.recipe import Recipe
from pcl_reasoner.runner.stage_spec import StageSpec

PROMPT_TOKENS = 200
"""Assumed tokens of a problem with its system turn."""
QUESTIONS = 30
"""Assumed number of questions, as in one year of AIME, if a benchmark's file is missing."""
ASSUMED_SHARE = 0.2
"""Assumed mean length of a reply, as a share of the longest, if no mean is published."""
_ROLES = ("responses", "samples", "packs")
"""Roles through which responses come from the stage that draws them."""

_PROBLEMS = ("problems", "rows")
"""Roles through which problems come from the stage that selects them."""


@dataclass(frozen=True)
class Counted:
    """A number and its source.

    Args:
        number: The number.
        source: Where it is from, for the report.
    """

    number: float
    source: str


@dataclass(frozen=True)
class Responses:
    """Counts the responses of a recipe's stages.

    Args:
        recipe: The recipe.
        problems: The user's number of problems that are sampled; None if not given.
        tokens: The user's mean tokens per response; None: the published or assumed mean.
    """

    recipe: Recipe
    problems: int | None = None
    tokens: float | None = None

    def count(self, spec: StageSpec) -> Counted | None:
        """Return the responses that a stage draws or reads; None if nothing says it."""
        config, published = spec.config, published_counts(self.recipe.published)
        if isinstance(config, RlConfig):
            source = f"responses of one round: {config.queries:,} problems x {config.n}"
            return Counted(config.responses, source)
        if spec.inputs.get("benchmark") and isinstance(config, SamplingConfig):
            return self._evaluated(spec, config)
        if spec.name in published and self.problems is None:
            return Counted(published[spec.name], "responses: published")
        if isinstance(config, SamplingConfig):
            if self.problems is None:
                return None
            source = f"responses: {self.problems:,} problems, given, x {config.n}"
            return Counted(self.problems * config.n, source)
        drawing = self.drawn_by(spec)
        found = self.count(drawing) if drawing else None
        if drawing is None or found is None:
            return None
        return Counted(found.number, f"responses: at most those of {drawing.name}")

    def drawn_by(self, spec: StageSpec) -> StageSpec | None:
        """Return the stage that draws the responses that a stage reads; None if none does."""
        for role in _ROLES:
            for name in spec.inputs.get(role, ()):
                before = self.recipe.stages.get(name)
                if before is not None:
                    draws = isinstance(before.config, SamplingConfig)
                    return before if draws else self.drawn_by(before)
        return None

    def mean_tokens(self, spec: StageSpec) -> Counted:
        """Return the mean tokens of the responses that a stage draws or reads."""
        drawing = spec if isinstance(spec.config, SamplingConfig) else self.drawn_by(spec)
        if self.tokens:
            return Counted(self.tokens, "given")
        means: Mapping[str, Mapping[str, float]] = self.recipe.published.get("mean_tokens") or {}
        if drawing is not None and drawing.name in means:
            return Counted(fmean(means[drawing.name].values()), "published")
        assumed = self._assumed(drawing, means)
        kept = self._kept(drawing) if drawing else None
        return kept if kept and kept.number > assumed.number else assumed

    def _assumed(
        self, drawing: StageSpec | None, means: Mapping[str, Mapping[str, float]]
    ) -> Counted:
        """The mean of a stage for which none is published, by other stages or by its limit."""
        if means:
            other, lengths = next(iter(means.items()))
            source = f"ASSUMED as in {other}, which is published"
            return Counted(fmean(lengths.values()), source)
        config = drawing.config if drawing else SamplingConfig()
        assert isinstance(config, SamplingConfig)
        longest = config.max_new_tokens or config.max_model_len
        source = f"ASSUMED, {ASSUMED_SHARE:.0%} of the longest"
        return Counted(ASSUMED_SHARE * longest, source)

    def _kept(self, drawing: StageSpec) -> Counted | None:
        """The lowest mean length with which a stage ``lengths`` before the stage keeps a problem.

        The responses that it measures are another model's.
        """
        found = [drawing]
        # The list grows while it is walked.
        for spec in found:
            if isinstance(spec.config, LengthsConfig):
                mean = min(spec.config.min_mean_tokens, _longest(drawing))
                source = f"ASSUMED, the least mean that {spec.name} keeps, of another model"
                return Counted(mean, source)
            names = (name for role in _PROBLEMS for name in spec.inputs.get(role, ()))
            before = (self.recipe.stages.get(name) for name in names)
            found += [one for one in before if one is not None and one not in found]
        return None

    def _evaluated(self, spec: StageSpec, config: SamplingConfig) -> Counted:
        counts, assumed = 0, []
        for name in spec.inputs["benchmark"]:
            number = questions(self.recipe, name)
            counts += QUESTIONS if number is None else number
            assumed += [name] if number is None else []
        source = f"responses: {counts} questions x {config.n}"
        if assumed:
            source += f" ({', '.join(assumed)}: no file here, {QUESTIONS} questions ASSUMED)"
        return Counted(counts * config.n, source)


def _longest(drawing: StageSpec) -> int:
    config = drawing.config
    assert isinstance(config, SamplingConfig)
    return min(config.max_new_tokens or config.max_model_len, config.max_model_len)


def training_data(
    planned: PlannedStage,
    responses: Responses,
    segments: int | None = None,
    segment_tokens: float | None = None,
) -> DataSize:
    """Return the size of the data of a train stage; with ``problems``, of all their responses.

    Args:
        planned: The train stage.
        responses: Counts the responses; ``problems`` counts only without ``segments``.
        segments: As in `data_size`.
        segment_tokens: As in `data_size`.

    Raises:
        InputError: As in `data_size`.
    """
    drawn = None if segments else responses.count(planned.spec)
    if responses.problems is None or drawn is None:
        return data_size(planned, segments, segment_tokens)
    notes = [f"segments: {drawn.source.removeprefix('responses: ')}; filters drop some"]
    if segment_tokens is None:
        mean = responses.mean_tokens(planned.spec)
        segment_tokens = mean.number + PROMPT_TOKENS
        notes.append(f"tokens per segment: those of a response ({mean.source}) and its prompt")
    size = data_size(planned, round(drawn.number), segment_tokens)
    return replace(size, notes=(*notes, *size.notes))


def questions(recipe: Recipe, name: str) -> int | None:
    """Return the number of questions of a benchmark; None if it has no file here."""
    if file := benchmark_file(recipe, name):
        return sum(bool(line.strip()) for line in file.open(encoding="utf-8"))
    source = recipe.sources.get(name)
    facts = hub_facts("benchmarks").get(str(source and source.hub))
    return facts["questions"] if facts else None


def benchmark_file(recipe: Recipe, name: str) -> Path | None:
    """Return the file of JSON lines of a source that is on this machine; None without one."""
    source = recipe.sources.get(name)
    given = source.path if source and not source.stage else None
    path = expanded(str(given or ""))
    return path if path.suffix == ".jsonl" and path.is_file() else None
