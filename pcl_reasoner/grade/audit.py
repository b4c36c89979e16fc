"""Builds audit.html: the number of responses per verdict, and examples of each verdict.

correct  18 301  37.7 %    9f0c…/3   ground truth 8   answer 008   "…</think><answer>\\\\boxed{008}"
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from pcl_reasoner.grade.agreement import Agreement
from pcl_reasoner.verifiers.answers import OUTCOMES

DISAGREEMENTS_SHOWN = 200
EXAMPLES_EACH = 5
"""Examples per verdict; the first responses are shown."""
_END_CHARACTERS = 400

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "td.n{text-align:right}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}"
)


Example = tuple[str, str, str | None, str, str | None]
"""A response on the page: ``problem_id/sample_index``, the ground truth, the answer in the box,
the complete response (only its end is shown), and the judge's reply (None if there is none)."""


@dataclass
class Audit:
    """Counts and examples, collected during grading."""

    outcomes: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, list[Example]] = field(default_factory=lambda: defaultdict(list))

    def add(self, outcome: str, example: Example) -> None:
        """Count a verdict; keep the response if it is among the first with this verdict."""
        self.outcomes[outcome] += 1
        if self.outcomes[outcome] <= EXAMPLES_EACH:
            self.examples[outcome].append(example)

    def page(self, agreement: Agreement) -> str:
        """Return the complete HTML page, which needs no other files.

        Args:
            agreement: Verdicts of rule and judge; shown if both graded responses.
        """
        total = self.outcomes.total()
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
    """Return the HTML section on rule and judge; empty if no response was graded by both."""
    if not agreement.matrix:
        return ""
    value = agreement.kappa()
    kappa = "not defined: both say one thing only" if value is None else f"{value:.3f}"
    shown = [
        (
            f"{one['problem_id']}/{one['sample_index']}: rule {one['rule']}, judge {one['judge']}",
            *(one[name] for name in ("ground_truth", "answer", "end", "judge_text")),
        )
        for one in agreement.disagreements[:DISAGREEMENTS_SHOWN]
    ]
    count = len(agreement.disagreements)
    return (
        f"<h2>Rule and judge: {agreement.matrix.total()} responses graded by both</h2>"
        f"{_confusion(agreement)}"
        f"<p>Cohen's kappa: {kappa}. {count} disagreements, all in disagreements.jsonl: fill in "
        f"correct, and give the file back as human.</p>{_table(shown) if shown else ''}"
    )


def _confusion(agreement: Agreement) -> str:
    """Return the confusion matrix as HTML: the rule's verdicts in rows, the judge's in columns."""
    names = {True: "correct", False: "not correct"}
    rows = "".join(
        f"<tr><th>rule: {names[rule]}</th>"
        + "".join(f"<td class=n>{agreement.matrix[rule, judge]}</td>" for judge in (True, False))
        + "</tr>"
        for rule in (True, False)
    )
    return (
        f"<table><tr><th></th><th>judge: correct</th><th>judge: not correct</th></tr>{rows}</table>"
    )


def _table(examples: Sequence[Example]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(ground_truth)}</td>"
        f"<td>{escape(answer or '')}</td>"
        f"<td><pre>{escape(response[-_END_CHARACTERS:])}</pre></td>"
        f"<td><pre>{escape(judge_text or '')}</pre></td></tr>"
        for name, ground_truth, answer, response, judge_text in examples
    )
    return (
        "<table><tr><th>response</th><th>ground truth</th><th>answer</th>"
        f"<th>its end</th><th>judge</th></tr>{rows}</table>"
    )
