"""Get the third model's opinions on disputed problems: recorded ones first, then from servers.

disputed.jsonl, if too few have an opinion; with ``answer`` filled in, it is an input ``opinion``:
{"problem_id": "9f0c…", "problem": "What is 6·7?", "original": "41", "majority": "42",
 "votes": {"42": 6, "41": 1}, "answer": null}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.addresses import addresses
from pcl_reasoner.revise.cases import Case
from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.revise.opinion import Opinion, read_opinions

LOG = "opinions.partial.jsonl"
"""Name of the file with the servers' opinions in a running stage's folder (asking.py)."""
DISPUTED = "disputed.jsonl"


@dataclass(frozen=True)
class Consulted:
    """The opinions on the disputed problems.

    Args:
        opinions: problem_id -> opinion; without the problems on which there is none.
        figures: Counts: recorded, asked, asked_again, failed, unreadable, absent.
        facts: The model's settings and its servers; None if no server was asked.
    """

    opinions: dict[str, Opinion] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] | None = None


def consult(
    config: ReviseConfig,
    disputed: Sequence[Case],
    recorded: Path | None,
    output: Path,
    context: StageContext,
) -> Consulted:
    """Return the opinions on all disputed problems.

    Args:
        config: The settings of the stage.
        disputed: The disputed problems.
        recorded: File or folder with recorded opinions; None if there is none.
        output: The stage's folder; it has the log of opinions if an earlier run was killed.
        context: ``placement.opinion_urls`` names the servers. They are asked only about problems
            without a recorded opinion.

    Raises:
        StageError: Too many problems are without a readable opinion; disputed.jsonl has them.
    """
    if not disputed or config.opinion == "none":
        return Consulted(figures={"absent": len(disputed)} if disputed else {})
    texts = {case.problem.problem_id: case.problem.problem for case in disputed}
    opinions = read_opinions(recorded, texts) if recorded else {}
    figures = {"recorded": len(opinions)} if recorded else {}
    urls = addresses(config.request_urls(context.placement), context.placement)
    questions = {name: text for name, text in texts.items() if name not in opinions}
    facts = None
    if urls and questions:
        from pcl_reasoner.revise.asking import ask_opinions

        asked = ask_opinions(config, questions, urls, output / LOG, context)
        opinions |= asked.opinions
        again = sum(one.asked - 1 for one in asked.opinions.values())
        figures |= {"asked": len(questions), "asked_again": again, "failed": asked.failed}
        facts = asked.facts
    unreadable = sum(one.answer is None for one in opinions.values())
    figures |= {"unreadable": unreadable, "absent": len(disputed) - len(opinions)}
    _check(config, disputed, opinions, bool(urls), output)
    return Consulted(opinions, figures, facts)


def _check(
    config: ReviseConfig,
    disputed: Sequence[Case],
    opinions: Mapping[str, Opinion],
    has_servers: bool,
    output: Path,
) -> None:
    """Write disputed.jsonl and stop the stage if too many problems have no readable opinion."""
    answered = {name for name, opinion in opinions.items() if opinion.answer is not None}
    missing = [case for case in disputed if case.problem.problem_id not in answered]
    has_source = has_servers or bool(answered)
    file, total = output / DISPUTED, len(disputed)
    if has_source and len(missing) <= config.max_missing * total:
        file.unlink(missing_ok=True)
        return
    write_lines(file, (_question(case) for case in missing))
    if not has_source:
        raise StageError(
            f"{total} ground truths are disputed, and no third model has answered these problems: "
            f"{file}. Do one of these: name a server, placement: {{opinion_urls: "
            "[http://host:8000/v1]}; or fill in answer in a copy of that file and give the copy as "
            "the input opinion; or give the artifact of a stage `sample` with another model as "
            "that input; or keep these ground truths with opinion: none."
        )
    raise StageError(
        f"{len(missing)} of {total} disputed problems have no readable opinion, the limit is "
        f"max_missing {config.max_missing:.0%}: {file}. Raise opinion_max_new_tokens, record the "
        "missing opinions, or raise max_missing; opinions so far are kept."
    )


def _question(case: Case) -> dict[str, Any]:
    line = case.line()
    fields = ("problem_id", "problem", "original", "majority", "votes")
    return {**{name: line[name] for name in fields}, "answer": None}


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSONL file atomically."""
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    write_atomically(path, "".join(f"{line}\n" for line in lines))
