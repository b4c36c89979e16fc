"""Stage ``revise``: corrects ground truths by the teacher's most frequent answer and a third model.

clean.parquet has the columns of the problems, with ``ground_truth`` revised, and two more:

    problem_id 9f0c…, ground_truth "42", original_ground_truth "41", revision revised

``revision`` is one of votes.OUTCOMES; null if the ground truth was not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically, write_json
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.parts import problems_file
from pcl_reasoner.revise.answers import Answers, read_answers
from pcl_reasoner.revise.audit import page
from pcl_reasoner.revise.cases import Case, settle_case, vote, why_not_checked
from pcl_reasoner.revise.comparisons import Comparisons
from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.revise.consult import LOG, Consulted, consult, write_lines
from pcl_reasoner.revise.problems import (
    CLEAN,
    Problem,
    column_names,
    read_problems,
    write_problems,
)

_DESCRIPTION = "opinion.json"
"""The third model's settings and servers, written last by a run that asked servers."""
_DROPPED = "dropped_disputed"
_ADDED = ("original_ground_truth", "revision")


def revise(
    config: ReviseConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Check the ground truths of mathematics and science problems, and revise some of them.

    It writes clean.parquet, revisions.jsonl and audit.html. If servers were asked, it also writes
    opinions.jsonl and opinion.json.

    Args:
        config: The limits of a majority, and how the third model is asked.
        inputs: ``problems``; ``responses``, the teacher's, from a stage ``sample``; optionally
            ``opinion``, the third model's recorded answers.
        output: The stage's folder; opinions that a killed run left in it are kept.
        context: ``placement.opinion_urls`` names the third model's servers.

    Raises:
        StageError: There are no answers to vote with, too few opinions on disputed problems, or no
            problem is left.

    Source: AM-Thinking-v1 (arXiv 2505.08311); votes.py has the rules.
    """
    # The log is deleted last: opinion.json without a log means that everything was written.
    if (output / _DESCRIPTION).exists() and not (output / LOG).exists():
        written = own_json(output / _DESCRIPTION)
        return Counts.model_validate(written["counts"])
    source = problems_file(inputs["problems"])
    problems = read_problems(source)
    _refuse_revised(source)
    comparisons = Comparisons()
    cases, answers = _vote(config, problems, inputs["responses"], comparisons, context)
    disputed = [case for case in cases if case.outcome is None]
    consulted = consult(config, disputed, inputs.get("opinion"), output, context)
    for case in disputed:
        opinion = consulted.opinions.get(case.problem.problem_id)
        settle_case(case, opinion, config, comparisons.equal)
    info = _figures(problems, cases, answers, consulted, comparisons)
    counts = _counts(len(problems), cases, info)
    if not counts.kept:
        raise StageError(
            f"{source}: no problem is left of {counts.read} (outcomes: {info['outcomes']}). Set "
            "disputed to keep, or check the third model and the input responses."
        )
    _write(source, problems, cases, output)
    if consulted.facts is not None:
        _write_opinions(consulted, counts, output)
    (output / LOG).unlink(missing_ok=True)
    return counts


def _refuse_revised(source: Path) -> None:
    """Refuse problems that this stage has revised: their original ground truths would be lost."""
    present = [name for name in column_names(source) if name in _ADDED]
    if present:
        raise StageError(
            f"{source}: has the columns {', '.join(present)}, so these ground truths were revised "
            "before. Let the input problems come from a stage before `revise`."
        )


def _vote(
    config: ReviseConfig,
    problems: Sequence[Problem],
    responses: Path,
    comparisons: Comparisons,
    context: StageContext,
) -> tuple[list[Case], Answers]:
    """Return the cases of all problems that can be checked, and the teacher's answers.

    Raises:
        StageError: There are problems to check, but none has an answer.
    """
    checked = [problem for problem in problems if why_not_checked(problem) is None]
    answers = read_answers(responses, {problem.problem_id for problem in checked})
    if checked and not any(answer for found in answers.by_problem.values() for answer in found):
        raise StageError(
            f"{responses}: no response has an answer to one of the {len(checked)} problems to "
            f"check ({answers.others} responses are to other problems). Let the input responses "
            "come from a stage `sample` on these problems; an answer is in the last \\boxed{…} "
            "after </think>."
        )
    answered = [(answers.by_problem.get(one.problem_id, []), one.ground_truth) for one in checked]

    def report(done: int, total: int) -> None:
        note = f"{done:,} of {total:,} expressions compared"
        context.progress.update(0, len(checked), "problems", note)

    comparisons.prepare(answered, report)
    cases = []
    for case in vote(checked, answers.by_problem, config, comparisons.equal):
        cases.append(case)
        context.progress.update(len(cases), len(checked), "problems")
    return cases, answers


def _write(source: Path, problems: Sequence[Problem], cases: Sequence[Case], output: Path) -> None:
    """Write clean.parquet, revisions.jsonl and audit.html."""
    originals = {one.problem_id: one.ground_truth for one in problems}
    revised = {case.problem.problem_id: case.ground_truth for case in cases}
    outcomes = {case.problem.problem_id: case.outcome for case in cases}
    columns: dict[str, tuple[str, Mapping[str, Any]]] = {
        "ground_truth": ("string", originals | revised),
        **dict(zip(_ADDED, (("string", originals), ("string", outcomes)), strict=True)),
    }
    kept = {name for name in originals if outcomes.get(name) != _DROPPED}
    write_problems(source, output / CLEAN, columns, kept)
    write_lines(output / "revisions.jsonl", (case.line() for case in cases))
    write_atomically(output / "audit.html", page(cases))


def _write_opinions(consulted: Consulted, counts: Counts, output: Path) -> None:
    """Write opinions.jsonl, which another run can read as recorded opinions, and opinion.json."""
    lines = [
        {"problem_id": name, "answer": one.answer, "text": one.text, "asked": one.asked}
        for name, one in sorted(consulted.opinions.items())
    ]
    write_lines(output / "opinions.jsonl", lines)
    described = {**(consulted.facts or {}), "counts": counts.model_dump()}
    write_json(output / _DESCRIPTION, described)


def _counts(read: int, cases: Sequence[Case], info: dict[str, Any]) -> Counts:
    dropped = sum(case.outcome == _DROPPED for case in cases)
    return Counts(
        unit="problems",
        read=read,
        kept=read - dropped,
        dropped={"disputed": dropped} if dropped else {},
        info=info,
    )


def _figures(
    problems: Sequence[Problem],
    cases: Sequence[Case],
    answers: Answers,
    consulted: Consulted,
    comparisons: Comparisons,
) -> dict[str, Any]:
    """Return the ``info`` of the stage's counts."""
    not_checked = Counter(reason for one in problems if (reason := why_not_checked(one)))
    figures: dict[str, Any] = {
        "not_checked": dict(sorted(not_checked.items())),
        "opinions": consulted.figures,
        "failed_comparisons": comparisons.figures(),
        "without_responses": sum(case.votes.responses == 0 for case in cases),
        "responses_to_other_problems": answers.others,
    }
    outcomes = Counter(str(case.outcome) for case in cases)
    shown = {name: value for name, value in figures.items() if value}
    return {"checked": len(cases), "outcomes": dict(sorted(outcomes.items())), **shown}
