"""audit.html: the number of responses per verdict, and a few examples of each to read.

correct  18 301  37.7 %    9f0c…/3   ground truth 8   answer 008   "…</think><answer>\\\\boxed{008}"
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from pcl_reasoner.grade.agreement import Agreement
from pcl_reasoner.grade.answers import OUTCOMES

DISAGREEMENTS_SHOWN = 200
EXAMPLES_EACH = 5
"""Responses shown per verdict: the first ones."""
_END_CHARACTERS = 400

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "td.n{text-align:right}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}"
)


@dataclass(frozen=True)
class Example:
    """One graded response for the page.

    Args:
        name: ``problem_id/sample_index``.
        ground_truth: The correct answer.
        answer: The answer that was found, if any.
        response: The complete response; only its end is shown.
        judge_text: The judge's reply; None when graded by rule.
    """

    name: str
    ground_truth: str
    answer: str | None
    response: str
    judge_text: str | None = None


@dataclass
class Audit:
    """Counts and examples, collected during grading."""

    outcomes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    def add(self, outcome: str, example: Example) -> None:
        """Count one verdict; keep it as an example if its verdict has few."""
        self.outcomes[outcome] += 1
        kept = self.examples.setdefault(outcome, [])
        if len(kept) < EXAMPLES_EACH:
            kept.append(example)

    def page(self, agreement: Agreement) -> str:
        """The complete HTML page, without external files.

        Args:
            agreement: Agreement of rule and judge; shown where both graded.
        """
        total = sum(self.outcomes.values())
        rows = "".join(
            f"<tr><td>{outcome}</td><td class=n>{self.outcomes[outcome]}</td>"
            f"<td class=n>{100 * self.outcomes[outcome] / max(total, 1):.1f} %</td></tr>"
            for outcome in OUTCOMES
        )
        sections = "".join(
            f"<h2>{outcome}</h2>{_table(self.examples[outcome])}"
            for outcome in OUTCOMES
            if outcome in self.examples
        )
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>Grading</title>"
            f"<style>{_STYLE}</style><h1>Grading: {total} responses</h1>"
            "<table><tr><th>verdict</th><th>responses</th><th>share</th></tr>"
            f"{rows}</table>{_agreement(agreement)}{sections}</html>\n"
        )


def _agreement(agreement: Agreement) -> str:
    """The confusion matrix, kappa, and a table of disagreements."""
    if not agreement.matrix:
        return ""
    names = {True: "correct", False: "not correct"}
    rows = "".join(
        f"<tr><th>rule: {names[rule]}</th>"
        + "".join(f"<td class=n>{agreement.matrix[rule, judge]}</td>" for judge in (True, False))
        + "</tr>"
        for rule in (True, False)
    )
    value = agreement.kappa()
    kappa = "not defined: both say one thing only" if value is None else f"{value:.3f}"
    shown = [
        Example(
            f"{one['problem_id']}/{one['sample_index']}: rule {one['rule']}, judge {one['judge']}",
            one["ground_truth"],
            one["answer"],
            one["end"],
            one["judge_text"],
        )
        for one in agreement.disagreements[:DISAGREEMENTS_SHOWN]
    ]
    count = len(agreement.disagreements)
    return (
        f"<h2>Rule and judge: {agreement.matrix.total()} responses graded by both</h2>"
        f"<table><tr><th></th><th>judge: correct</th><th>judge: not correct</th></tr>{rows}</table>"
        f"<p>Cohen's kappa: {kappa}. {count} disagreements, all in disagreements.jsonl: fill in "
        f"correct, and give the file back as human.</p>{_table(shown) if shown else ''}"
    )


def _table(examples: Sequence[Example]) -> str:
    rows = "".join(
        f"<tr><td>{escape(example.name)}</td><td>{escape(example.ground_truth)}</td>"
        f"<td>{escape('' if example.answer is None else example.answer)}</td>"
        f"<td><pre>{escape(example.response[-_END_CHARACTERS:])}</pre></td>"
        f"<td><pre>{escape(example.judge_text or '')}</pre></td></tr>"
        for example in examples
    )
    return (
        "<table><tr><th>response</th><th>ground truth</th><th>answer</th>"
        f"<th>its end</th><th>judge</th></tr>{rows}</table>"
    )
