"""The charts of on-policy training: figures over the rounds of all stages ``rl``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import StageRecord, finite
from pcl_reasoner.page_parts.round_charts import (
    BARS,
    Axis,
    Column,
    Curve,
    round_chart,
    stacked_chart,
)
from pcl_reasoner.rl_report.digest import trained
from pcl_reasoner.rounds.plateau import Accuracy, accuracy_by_kind, mean_and_error, shares_of

SMOOTHED = 5
"""Rounds in the mean of the bold line, where single rounds are noisy."""
PHASES = (
    ("probe", "hue phase-probe"),
    ("load weights", "hue phase-load"),
    ("sample and grade", "hue phase-sample"),
    ("wait for the update", "hue phase-train"),
)
_SECONDS = ("probe", "load", "sample", "train")
"""Keys of seconds.jsonl, as in PHASES."""
OUTCOMES = (
    ("correct", "hue outcome-correct"),
    ("passed some", "hue outcome-some"),
    ("incorrect", "hue outcome-incorrect"),
    ("no code", "hue outcome-none"),
    ("unfinished", "hue outcome-unfinished"),
    ("not graded", "hue outcome-failed"),
)
_PERCENT = Axis(" %", least=None, most=100.0)

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]
"""Row of a round or a probe -> the value in a chart; None: it has no such value."""


@dataclass(frozen=True)
class Panel:
    """One chart with its caption.

    Args:
        title: What it shows.
        legend: (name, CSS classes) of its parts.
        note: How to read it.
        chart: The drawing.
    """

    title: str
    legend: Sequence[tuple[str, str]]
    note: str
    chart: Markup


@dataclass(frozen=True)
class _Stage:
    """A stage ``rl``, and the number of rounds before it."""

    record: StageRecord
    begin: int

    @property
    def rounds(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.record.files["rl"]["rounds"]
        return found

    @property
    def probes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.record.files.get("probe") or []
        return found

    def curve(self, name: str, style: str, rows: Iterable[Row], value: Value) -> Curve:
        """Return a curve of the rows that have the value."""
        pairs = ((float(row["round"]), finite(value(row))) for row in rows)
        points = [(number, y) for number, y in pairs if y is not None]
        return Curve(name, style, self.record.name, self.begin, points)


def rl_panels(records: Sequence[StageRecord]) -> list[Panel]:
    """Return the charts of all finished stages ``rl``; empty without such a stage."""
    stages, lengths = _stages(records)
    if not stages:
        return []
    makers = (_rewards, _held_out, _held_out_by_kind, _shares, _mismatch, _seconds, _outcomes)
    return [panel for make in makers for panel in make(stages, lengths)]


def length_panels(records: Sequence[StageRecord]) -> list[Panel]:
    """Return the charts of lengths and ended responses, of held-out and of trained problems."""
    stages, lengths = _stages(records)
    note = "An answer that did not end was cut off by the limit of new tokens."
    probed = _two_axes(
        "Held-out problems: length of an answer, and share that ended",
        note,
        [
            (
                one.curve("tokens", "correct", one.probes, lambda row: row["mean_length"]),
                one.curve("ended", "incorrect", one.probes, lambda row: 100 * row["stop_ratio"]),
            )
            for one in stages
        ],
        lengths,
    )
    sampled = _two_axes(
        "Trained problems: length of a response, and share that ended",
        "Mean over the answered responses of a round.",
        [
            (
                one.curve("tokens", "correct", one.rounds, _of_answered("tokens")),
                one.curve("ended", "incorrect", one.rounds, _of_answered("stopped", 100)),
            )
            for one in stages
        ],
        lengths,
    )
    return [*probed, *sampled]


def _stages(records: Sequence[StageRecord]) -> tuple[list[_Stage], dict[str, int]]:
    """Return the stages, and name -> number of rounds."""
    stages, begin = list[_Stage](), 0
    for record in trained(records):
        stages.append(_Stage(record, begin))
        begin += len(stages[-1].rounds)
    return stages, {one.record.name: len(one.rounds) for one in stages}


def _rewards(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of mean rewards by kind."""
    curves = []
    for kind in KINDS:
        for one in stages:
            curve = one.curve(kind, f"hue kind-{kind}", one.rounds, _reward_of(kind))
            curves.append(replace(curve, window=SMOOTHED))
    switch = ""
    if len(stages) > 1:
        switch = " Dashed vertical line: the next stage begins. The axis counts all stages' rounds."
    note = f"Thin line: every round. Bold line: mean of {SMOOTHED} neighbouring rounds.{switch}"
    if curves := _drawn(curves):
        chart = round_chart("Mean reward by kind and round", curves, lengths, Axis(least=None))
        yield Panel("Mean reward of trained problems, by kind", _legend(curves), note, chart)


def _reward_of(kind: str) -> Value:
    def value(row: Row) -> float | None:
        found = row["kinds"].get(kind)
        return found["reward"] / found["responses"] if found and found["responses"] else None

    return value


def _held_out(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of the accuracy on all held-out problems, with the lines of the plateau."""
    curves = list[Curve]()
    for one in stages:
        pairs = [(probe["round"], _over_all(probe)) for probe in one.probes]
        curves += _with_band(one, "all held-out problems", "correct", pairs)
    fits = [curve for one in stages for curve in _fit(one)]
    note = "Band: ± 1 standard error over problems."
    if fits:
        note += " Dashed line: the fit over the last probes, which decides about the plateau."
    legend = [("fit", "legend-fit")] if fits else []
    if curves := _drawn(curves):
        label = "Accuracy on held-out problems by round"
        chart = round_chart(label, curves, lengths, _PERCENT, fits=fits)
        yield Panel("Held-out accuracy", legend, note, chart)


def _fit(one: _Stage) -> Iterator[Curve]:
    """Yield the straight line of the last probes, if the stage has one."""
    fit = (one.record.files.get("plateau") or {}).get("fit") or {}
    if fit.get("rounds") and fit.get("slope") is not None:
        ends = (fit["rounds"][0], fit["rounds"][-1])
        points = [(x, 100 * (fit["intercept"] + fit["slope"] * x)) for x in ends]
        yield Curve("fit", "", one.record.name, one.begin, points)


def _held_out_by_kind(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of the accuracy on the held-out problems of each kind."""
    curves = list[Curve]()
    for kind in KINDS:
        for one in stages:
            found = [(probe["round"], accuracy_by_kind(probe).get(kind)) for probe in one.probes]
            pairs = [(number, accuracy) for number, accuracy in found if accuracy is not None]
            curves += _with_band(one, kind, f"hue kind-{kind}", pairs)
    curves = _drawn(curves)
    if len({one.name for one in curves}) > 1:
        chart = round_chart("Held-out accuracy by kind and round", curves, lengths, _PERCENT)
        note = "Bands: ± 1 standard error over problems."
        yield Panel("Held-out accuracy, by kind", _legend(curves), note, chart)


def _over_all(probe: Row) -> Accuracy:
    shares = shares_of(probe)
    return Accuracy(len(shares), *mean_and_error(shares))


def _with_band(
    one: _Stage, name: str, style: str, pairs: Sequence[tuple[int, Accuracy]]
) -> Iterator[Curve]:
    """Yield the curve of some accuracies in per cent, with a band if all have an error."""
    points = [(float(number), 100 * accuracy.accuracy) for number, accuracy in pairs]
    errors = [100 * accuracy.se for _, accuracy in pairs if accuracy.se is not None]
    whole = errors if len(errors) == len(points) else []
    yield Curve(name, style, one.record.name, one.begin, points, whole)


def _shares(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of overlong responses and of responses without an advantage."""
    curves = []
    for one in stages:
        late = one.curve("overlong", "incorrect", one.rounds, _of_answered("overlong", 100))
        equal = one.curve("no advantage", "correct", one.rounds, _without_advantage)
        curves += [replace(late, window=SMOOTHED), replace(equal, window=SMOOTHED)]
    if curves := _drawn(curves):
        axis = Axis(" %", most=100.0)
        chart = round_chart(
            "Overlong responses and those without an advantage", curves, lengths, axis
        )
        note = (
            "No advantage: all responses of the group have the same reward, or the response is "
            "overlong and the rule takes its advantage away. Such a response has no gradient."
        )
        title = "Share of responses that are overlong, or have no advantage"
        yield Panel(title, _legend(curves), note, chart)


def _without_advantage(row: Row) -> float | None:
    return 100 * row["no_advantage"] / row["segments"] if row["segments"] else None


def _of_answered(name: str, times: float = 1.0) -> Value:
    """Return a function: a count per answered response of a round."""

    def value(row: Row) -> float | None:
        answered = row["responses"] - row["failed"]
        return times * row[name] / answered if answered else None

    return value


def _mismatch(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of the mismatch between the trainer's and the sampler's log-probs."""
    figures = (("mean", "correct", "mismatch_abs"), ("largest", "incorrect", "mismatch_max"))
    curves = [
        one.curve(name, style, one.rounds, _above_zero(column))
        for name, style, column in figures
        for one in stages
    ]
    if curves := _drawn(curves):
        axis = Axis(logarithmic=True)
        chart = round_chart("Difference of log-probs by round", curves, lengths, axis)
        note = (
            "Absolute difference of a token's log-prob, in nats. The axis is logarithmic, so a "
            "round without a difference has no point."
        )
        yield Panel("Mismatch of trainer and sampler", _legend(curves), note, chart)


def _above_zero(column: str) -> Value:
    return lambda row: row[column] if (row[column] or 0) > 0 else None


def _seconds(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of seconds by phase; a round with several lines has their sum."""
    columns, missing = list[Column](), 0
    for one in stages:
        lines: dict[int, list[Row]] = {}
        for line in one.record.files.get("seconds") or []:
            lines.setdefault(line["round"], []).append(line)
        spent = {number: _sums(found, _SECONDS) for number, found in lines.items()}
        missing += len(one.rounds) - len(spent)
        columns += _columns(one, spent, lengths, shares=False)
    if columns:
        chart = stacked_chart("Seconds by round and phase", PHASES, columns, lengths, " s")
        note = "The first round contains the start of training and its compilation."
        if missing:
            note += (
                f" {missing} of {sum(lengths.values())} rounds have no bar: the stage was stopped, "
                "and only what was timed in rounds that it then finished is known."
            )
        yield Panel("Seconds of a round, by phase", PHASES, note, chart)


def _outcomes(stages: Sequence[_Stage], lengths: Mapping[str, int]) -> Iterator[Panel]:
    """Yield the chart of the verdicts on programs."""
    columns, seen = list[Column](), set[str]()
    for one in stages:
        rounds = one.record.files["rl"]["tests"]["rounds"]
        counts = {row["round"]: _by_outcome(row["outcomes"]) for row in rounds}
        seen |= {name for parts in counts.values() for name, count in parts.items() if count}
        columns += _columns(one, counts, lengths, shares=True)
    if columns:
        chart = stacked_chart("Outcomes of tests by round", OUTCOMES, columns, lengths, " %")
        legend = [(name, style) for name, style in OUTCOMES if name in seen]
        note = "Responses to problems of code. Incorrect: a test of the program failed."
        yield Panel("Outcomes of tests", legend, note, chart)


def _by_outcome(counts: Mapping[str, int]) -> dict[str, float]:
    """Return name in OUTCOMES -> number of verdicts; the last name has all other verdicts."""
    *names, others = (name for name, _ in OUTCOMES)
    found: dict[str, float] = {name: counts.get(name.replace(" ", "_"), 0) for name in names}
    return {**found, others: sum(counts.values()) - sum(found.values())}


def _sums(rows: Sequence[Row], names: Iterable[str]) -> dict[str, float]:
    return {name: sum(row.get(name, 0.0) for row in rows) for name in names}


def _columns(
    one: _Stage,
    values: Mapping[int, Mapping[str, float]],
    lengths: Mapping[str, int],
    shares: bool,
) -> Iterator[Column]:
    """Yield the bars of a stage, each of a round or of neighbouring rounds.

    Args:
        one: The stage.
        values: Round -> part -> value; rounds that are not there have no bar.
        lengths: Stage -> number of its rounds.
        shares: Show the parts of the rounds' sum in per cent; else the mean over the rounds.
    """
    size = -(-sum(lengths.values()) // BARS)
    for first in range(0, len(one.rounds), size):
        end = min(first + size, len(one.rounds))
        there = [values[number] for number in range(first, end) if number in values]
        total = _sums(there, there[0]) if there else {}
        divisor = sum(total.values()) / 100 if shares else len(there)
        if divisor:
            rounds = f"round {first}" if size == 1 else f"rounds {first}–{end - 1}"
            parts = [value / divisor for value in total.values()]
            edges = one.begin + first, one.begin + end
            yield Column(f"{one.record.name} {rounds}", *edges, parts)


def _two_axes(
    title: str,
    note: str,
    pairs: Sequence[tuple[Curve, Curve]],
    lengths: Mapping[str, int],
) -> Iterator[Panel]:
    """Yield the chart of tokens, on the left axis, and of a share, on the right one."""
    tokens, ended = (_drawn([pair[side] for pair in pairs]) for side in (0, 1))
    if tokens:
        legend = [("tokens (left)", "correct"), ("ended, % (right)", "incorrect")]
        chart = round_chart(f"{title}, by round", tokens, lengths, shares=ended)
        yield Panel(title, legend, note, chart)


def _drawn(curves: Sequence[Curve]) -> list[Curve]:
    return [one for one in curves if one.points]


def _legend(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """Return (name, CSS classes) of the curves, each name once."""
    return list({one.name: (one.name, one.style) for one in curves}.values())
