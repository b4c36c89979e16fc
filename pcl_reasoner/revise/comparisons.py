"""Compare two answers as the stage ``grade`` compares a response with its ground truth.

equal("\\\\frac{2}{4}", "0.5") -> True      equal("008", "9") -> False
equal("9^{9^{9^9}}", "7") -> None, and failed is {("9^{9^{9^9}}", "7"): "timeout"}
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from pcl_reasoner.verifiers.answers import grade_by_rule, prepare
from pcl_reasoner.verifiers.equivalence import Report


class Comparisons:
    """Compares answers, and remembers the comparisons that failed."""

    def __init__(self) -> None:
        self.failed: dict[tuple[str, str], str] = {}
        """(answer, reference) -> ``timeout``, or ``error`` if the comparing process died."""

    def prepare(self, problems: Iterable[tuple[Sequence[str | None], str]], report: Report) -> None:
        """Compare on all cores what the votes will ask for most often.

        Args:
            problems: The answers to each problem, and its ground truth.
            report: Called with the number of comparisons that are done, and of all.
        """
        compared = (
            (_as_response(answer), reference, "stop")
            for answers, truth in problems
            for given in [[one for one in dict.fromkeys(answers) if one is not None]]
            for answer in given
            for reference in (given[0], truth)
            if reference != answer
        )
        prepare(compared, report)

    def equal(self, answer: str, reference: str) -> bool | None:
        """Return whether two answers are equivalent; None if the comparison failed.

        A comparison that failed is not repeated: it would take the whole time limit again.

        Args:
            answer: The content of a box.
            reference: Another answer, or the ground truth.
        """
        pair = (answer, reference)
        if pair in self.failed:
            return None
        # As a response: integers then take the fast path, and texts are normalised as in `grade`.
        outcome = grade_by_rule(_as_response(answer), reference, "stop").outcome
        if outcome in ("timeout", "error"):
            self.failed[pair] = outcome
            return None
        return outcome == "correct"

    def figures(self) -> dict[str, int]:
        """Return the number of failed comparisons by reason."""
        return dict(sorted(Counter(self.failed.values()).items()))


def _as_response(answer: str) -> str:
    return f"</think>\\boxed{{{answer}}}"
