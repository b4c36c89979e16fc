"""Renders the page on which a reviewer judges hits: pairs side by side, differences marked.

problem    Every morning [Ada] goes for a [$8$-kilometer-long] walk
question   Every morning [Aya] goes for a [$9$-kilometer-long] walk
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from pcl_reasoner.contamination.config import ContaminationConfig

MAX_PAIRS = 500
"""Maximum number of pairs on the page; hits.jsonl has all hits."""
MAX_WORDS = 600
"""Maximum number of words per text that are shown and compared."""

NO_TEXT = "Its text is not here, only its fingerprint; give a file with the questions to see it."

Span = tuple[str, bool]
"""(Run of words, True if the other text does not have these words at this position)."""


def differing(left: str, right: str) -> tuple[list[Span], list[Span]]:
    """Split two texts into runs of words that they share and runs that they do not share.

    Args:
        left: A problem.
        right: A benchmark question.

    Returns:
        The spans of the problem and the spans of the question, each in order.
    """
    left_words, right_words = left.split()[:MAX_WORDS], right.split()[:MAX_WORDS]
    runs = SequenceMatcher(None, left_words, right_words, autojunk=False).get_opcodes()
    return (
        [(" ".join(left_words[a:b]), tag != "equal") for tag, a, b, _, _ in runs if a < b],
        [(" ".join(right_words[a:b]), tag != "equal") for tag, _, _, a, b in runs if a < b],
    )


def render(
    hits: Sequence[Mapping[str, Any]],
    misses: Sequence[Mapping[str, Any]],
    sweep: Mapping[str, Mapping[str, int]],
    config: ContaminationConfig,
    judged: Mapping[str, Any] | None = None,
) -> str:
    """Render evidence.html: self-contained, without scripts.

    Args:
        hits: Records of hits.jsonl; rows with the same problem are shown once.
        misses: Records of near_misses.jsonl.
        sweep: Threshold -> numbers of rows flagged, as returned by ``findings.sweep``.
        config: The limits that were used.
        judged: Counts of the judge's verdicts; None: there is no judge.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pcl_reasoner.contamination", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    rows = Counter(hit["problem"] for hit in hits)
    first = list({hit["problem"]: hit for hit in reversed(hits)}.values())
    first.sort(key=lambda hit: (-(hit["cosine"] or 0.0), -hit["ngrams"], hit["row"]))
    return environment.get_template("evidence.html.jinja").render(
        config=config,
        judged=judged,
        hits=len(hits),
        distinct=len(first),
        pairs=[_pair(hit, rows[hit["problem"]]) for hit in first[:MAX_PAIRS]],
        misses=[_pair(miss, 1) for miss in misses],
        sweep=sweep,
    )


def _pair(record: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return a record for the page: add the number of its rows and the spans of both texts."""
    if record["benchmark_problem"] is None:
        shown = " ".join(record["problem"].split()[:MAX_WORDS])
        problem, question = [(shown, False)], [(NO_TEXT, False)]
    else:
        problem, question = differing(record["problem"], record["benchmark_problem"])
    return {**record, "rows": rows, "problem_parts": problem, "question_parts": question}
