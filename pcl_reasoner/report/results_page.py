"""Renders results.html: scores beside published ones, all problems and samples, some responses."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pcl_reasoner.evaluate.rescore import Rescored
from pcl_reasoner.evaluate.summary import Sample
from pcl_reasoner.page_parts import charts
from pcl_reasoner.report.page import page_environment

READ_EACH = 2
"""Responses shown per problem: disputed ones first, then an incorrect and a correct one. If more
than two are disputed, up to five disputed ones are shown."""
BARS = 24


def render(found: Sequence[Rescored], comparisons: Sequence[dict[str, Any]]) -> str:
    """Render the page, which is self-contained and has no scripts.

    Args:
        found: One entry per result file.
        comparisons: As in scores.json.
    """
    environment, style = page_environment()
    text = environment.get_template("results.html.jinja").render(
        style=style,
        sides=[_side(one) for one in found],
        comparisons=comparisons,
        chart=_scores(found),
    )
    return f"{text}\n"


def _scores(found: Sequence[Rescored]) -> Markup:
    """Draw every score with its 95 % interval for another run on the same problems."""
    estimates = [
        charts.Estimate(
            f"{one.model} {one.benchmark}"[:18],
            "after",
            one.figures["avg_at_n"],
            *(one.figures["sampling_interval"] or [one.figures["avg_at_n"]] * 2),
        )
        for one in found
    ]
    return charts.interval_chart("Average scores with 95 % intervals over samples", estimates)


def _side(one: Rescored) -> dict[str, Any]:
    """Collect what the page shows for one result file."""
    rows: list[dict[str, Any]] = [
        {
            "id": question.id,
            "prompt": question.problem,
            "begins": " ".join(question.problem.split())[:50],
            "answer": question.answer,
            "correct": sum(sample.correct for sample in samples),
            "samples": samples,
            "read": _to_read(samples),
        }
        for question, samples in one.graded.values()
    ]
    return {
        "model": one.model,
        "benchmark": one.benchmark,
        "figures": one.figures,
        "rows": rows,
        "lengths": _lengths([sample for row in rows for sample in row["samples"]]),
    }


def _to_read(samples: Sequence[Sample]) -> list[tuple[int, Sample]]:
    numbered = list(enumerate(samples))
    disputed = [pair for pair in numbered if pair[1].disputed]
    incorrect = [pair for pair in numbered if not pair[1].correct][:1]
    correct = [pair for pair in numbered if pair[1].correct][:1]
    chosen = dict([*disputed, *incorrect, *correct][: max(READ_EACH, len(disputed[:5]))])
    return sorted(chosen.items())


def _lengths(samples: Sequence[Sample]) -> list[tuple[str, Markup]]:
    """Draw two histograms of response lengths: of correct responses, and of all others."""
    measured = [(one.tokens, one.correct) for one in samples if one.tokens is not None]
    if not measured:
        return []
    longest = max(1, *(tokens for tokens, _ in measured))
    edges = [longest * number / BARS for number in range(BARS + 1)]
    drawn = []
    for name, wanted in (("correct", True), ("not correct", False)):
        indices = [
            min(BARS - 1, n * BARS // longest) for n, correct in measured if correct is wanted
        ]
        counts = [indices.count(index) for index in range(BARS)]
        label = f"Lengths of responses that are {name}"
        drawn.append((label, charts.histogram(label, edges, counts, "tokens of a response")))
    return drawn
