"""Puts suspects to the judge, and decides by its verdicts.

suspects   of text 17: question 3, which the embedding flags, and question 8, which no rule flags
verdicts   3 no, 8 no        -> changes {17: None}: cleared
           3 no, 8 yes       -> changes {17: question 8, rule "judge"}
           3 unreadable      -> changes {}: the rules decide
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pcl_reasoner.second_opinion.judge import Judge
from pcl_reasoner.second_opinion.suspects import Suspect
from pcl_reasoner.second_opinion.verdict_cache import Opinion

JUDGE = "judge"
"""The rule of a pair that only the judge flags."""

Asked = list[tuple[Suspect, Opinion]]
"""The questions about which the judge was asked, each with its verdict, in their order."""
IsCopy = Callable[[str, str], bool]
"""(Text, question) -> True if the text is certainly a copy of the question."""


@dataclass
class Judged:
    """What the judge was asked, and what it changes.

    Args:
        asked: Index of a text -> the judge's verdicts on it.
        changes: Index of a text -> the question for which it is flagged now; None: cleared. Texts
            about which the rules decide are left out.
        cleared: Index of a text that the judge cleared -> the rules that had flagged it.
        certain: Number of texts with suspects that are certain copies.
        without_text: Number of suspected pairs whose question is known only by its fingerprint.
        cut: Number of pairs that the judge saw only in part.
        facts: The judge, its settings and servers.
    """

    asked: dict[int, Asked] = field(default_factory=dict)
    changes: dict[int, Suspect | None] = field(default_factory=dict)
    cleared: dict[int, str] = field(default_factory=dict)
    certain: int = 0
    without_text: int = 0
    cut: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def opinions(self) -> list[Opinion]:
        """All verdicts."""
        return [opinion for asked in self.asked.values() for _, opinion in asked]

    def advice(self) -> str:
        """What to do about pairs that the judge could not decide; empty if there are none."""
        unreadable = sum(one.same is None for one in self.opinions())
        sentences = [
            f"{self.without_text} close pairs have a question that is known only by its "
            "fingerprint, so the judge cannot read it: give the file with the questions as the "
            "benchmark."
            if self.without_text
            else "",
            f"The judge gave no readable verdict on {unreadable} of {len(self.opinions())} pairs, "
            "so the rules decided about them: raise judge.max_new_tokens, or change the prompt so "
            "that the last line of a reply is VERDICT: YES or VERDICT: NO."
            if unreadable
            else "",
        ]
        return " ".join(filter(None, sentences))

    def info(self) -> dict[str, Any]:
        """The judge and the counts, for the report."""
        found = self.opinions()
        flagged = sum(one is not None and one.rule == JUDGE for one in self.changes.values())
        summary = f"{len(self.asked)} texts, {flagged} flagged, {len(self.cleared)} cleared."
        return {
            **self.facts,
            "texts": len(self.asked),
            "judged": len(found),
            "yes": sum(one.same is True for one in found),
            "no": sum(one.same is False for one in found),
            "unreadable": sum(one.same is None for one in found),
            "asked_again": sum(max(0, one.asked - 1) for one in found),
            "flagged": flagged,
            "cleared": len(self.cleared),
            "certain": self.certain,
            "without_text": self.without_text,
            "cut": self.cut,
            "summary": f"{summary} {self.advice()}".strip(),
        }


def second_opinion(
    texts: Sequence[str],
    suspects: Mapping[int, Sequence[Suspect]],
    questions: Sequence[str | None],
    judge: Judge,
    is_copy: IsCopy,
) -> Judged:
    """Ask the judge about the suspects of each text, and decide by its verdicts.

    Args:
        texts: The distinct texts.
        suspects: Index of a text -> its suspects, closest first.
        questions: Text of each benchmark question; None: only its fingerprint is known.
        judge: Answers.
        is_copy: Finds certain copies, which are never put to the judge.
    """
    judged = Judged()
    chosen: dict[int, list[Suspect]] = {}
    for index, found in suspects.items():
        known = [(one, text) for one in found if (text := questions[one.question]) is not None]
        judged.without_text += len(found) - len(known)
        if any(is_copy(texts[index], text) for _, text in known):
            judged.certain += 1
        elif known:
            chosen[index] = [one for one, _ in known[: judge.config.questions]]
    pairs = {
        index: [(texts[index], questions[one.question] or "") for one in found]
        for index, found in chosen.items()
    }
    for index, opinions in judge.ask(pairs).items():
        judged.asked[index] = list(zip(chosen[index], opinions, strict=False))
        cut = [judge.is_cut(pair) for pair in pairs[index][: len(opinions)]]
        judged.cut += sum(cut)
        _decide(judged, index, suspects[index], cut)
    judged.facts = judge.facts()
    if advice := judged.advice():
        judge.warn(advice)
    return judged


def _decide(judged: Judged, index: int, suspects: Sequence[Suspect], cut: Sequence[bool]) -> None:
    """Decide about one text.

    The first yes decides. A text is cleared only if the judge says no to every question for which
    a rule flags it, and saw all of the text and the question. Otherwise the rules decide.

    Args:
        judged: Has the verdicts; gets the decision.
        index: The text.
        suspects: All its suspects, also those that were not asked about.
        cut: For each verdict, True if the judge did not see all of the text or the question.
    """
    asked = judged.asked[index]
    yes = next((suspect for suspect, opinion in asked if opinion.same), None)
    if yes is not None:
        judged.changes[index] = replace(yes, rule=yes.rule or JUDGE)
        return
    denied = {
        suspect.question
        for (suspect, opinion), unseen in zip(asked, cut, strict=True)
        if opinion.same is False and not unseen
    }
    flagged = {one.question: one.rule for one in suspects if one.rule}
    if flagged and set(flagged) <= denied:
        judged.changes[index] = None
        judged.cleared[index] = next(iter(flagged.values()))
