"""Build audit.html of the stage ``revise``: the number of problems per outcome, and examples.

revised  812  1.6 %    9f0c…  "What is 6·7?"  ground truth 41  majority 42 (6 of 8)  opinion 42.0
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from pcl_reasoner.revise.cases import Case
from pcl_reasoner.revise.votes import OUTCOMES, Outcome, Votes

EXAMPLES_EACH = 20
"""Examples per outcome; the first problems are shown, and revisions.jsonl has all."""
_PROBLEM_CHARACTERS = 1500
_ANSWER_CHARACTERS = 300
_REPLY_CHARACTERS = 400

MEANINGS: dict[Outcome, str] = {
    "agreed": "The most frequent answer equals the ground truth.",
    "revised": "The third model's answer equals the most frequent answer, and is the new truth.",
    "kept_upheld": "The third model's answer equals the ground truth.",
    "kept_disputed": "The third model's answer equals neither, or there is none. Kept unchanged.",
    "dropped_disputed": "The third model's answer equals neither, or there is none. Dropped.",
    "no_majority": "No answer is frequent enough. Kept unchanged.",
    "not_compared": "A comparison that decides failed. Kept unchanged.",
}
_STYLE = (
    ":root{color-scheme:light dark;--line:#8886}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "td{overflow-wrap:anywhere}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;font:inherit}"
)


def page(cases: Iterable[Case]) -> str:
    """Return the complete HTML page, which needs no other files and no scripts.

    Args:
        cases: All checked problems with their outcomes.
    """
    counts: Counter[str] = Counter()
    examples: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        outcome = case.outcome or ""
        counts[outcome] += 1
        if counts[outcome] <= EXAMPLES_EACH:
            examples[outcome].append(case)
    total = counts.total()
    rows = "".join(
        f"<tr><td>{outcome}</td><td class=n>{counts[outcome]}</td>"
        f"<td class=n>{100 * counts[outcome] / max(total, 1):.1f} %</td>"
        f"<td>{MEANINGS[outcome]}</td></tr>"
        for outcome in OUTCOMES
    )
    sections = "".join(_section(one, examples[one]) for one in OUTCOMES if one in examples)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>Ground truths</title><style>{_STYLE}</style>"
        f"<h1>Ground truths: {total} problems checked</h1>"
        "<table><tr><th>outcome</th><th>problems</th><th>share</th><th>meaning</th></tr>"
        f"{rows}</table>{sections}</html>\n"
    )


def _section(outcome: Outcome, cases: Sequence[Case]) -> str:
    rows = "".join(map(_row, cases))
    return (
        f"<h2>{outcome}</h2><table><tr><th>problem</th><th>ground truth</th>"
        f"<th>answers</th><th>third model</th><th>end of its reply</th></tr>{rows}</table>"
    )


def _row(case: Case) -> str:
    problem, opinion = case.problem, case.opinion
    answer = "" if opinion is None else _cut(opinion.answer or "no readable answer")
    reply = (opinion.text if opinion else "")[-_REPLY_CHARACTERS:]
    text = _cut(problem.problem, _PROBLEM_CHARACTERS)
    return (
        f"<tr><td><small>{escape(problem.problem_id)}</small><pre>{text}</pre></td>"
        f"<td>{_cut(problem.ground_truth)}</td><td>{_votes(case.votes)}</td>"
        f"<td>{answer}</td><td><pre>{escape(reply)}</pre></td></tr>"
    )


def _votes(votes: Votes) -> str:
    """Return the classes as HTML, the largest first, and the answers outside of them."""
    ranked = sorted(votes.classes.items(), key=lambda one: -one[1])
    lines = [f"{count} × {_cut(answer)}" for answer, count in ranked]
    without = votes.responses - votes.answered
    lines += [f"{votes.not_compared} × not compared"] if votes.not_compared else []
    lines += [f"{without} × no answer"] if without else []
    return "<br>".join(lines)


def _cut(text: str, characters: int = _ANSWER_CHARACTERS) -> str:
    """Return the start of a text as HTML."""
    return escape(text if len(text) <= characters else text[:characters] + "…")
