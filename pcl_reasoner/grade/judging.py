"""Asking the judge about many responses, and keeping what it said.

verdicts.partial.jsonl, one line a response, while the stage runs:

    {"problem_id": "9f0c…", "sample_index": 3, "right": true, "text": "equal. \\\\boxed{1}"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.errors import StageError
from pcl_reasoner.grade.reading import READ_COLUMNS, batches, truth_of
from pcl_reasoner.stage import StageContext

if TYPE_CHECKING:
    from pcl_reasoner.artifact import AppendLog
    from pcl_reasoner.grade.judge import Judgement
    from pcl_reasoner.grade.select import Key
    from pcl_reasoner.grade.stage import GradeConfig

JUDGE_LOG = "verdicts.partial.jsonl"
_JUDGE_TEXT_CHARACTERS = 2000
"""What is kept of a judge's reply: its end, where its reasons and its verdict are."""


def candidate_of(config: GradeConfig, record: Mapping[str, Any]) -> str | None:
    """The end of a response, as the judge reads it; None when its think part was never closed."""
    from pcl_reasoner.grade.judge import candidate_text

    return candidate_text(record["response"] or "", record["n_tokens"], config.last_tokens)


def judge_all(
    config: GradeConfig,
    files: list[Path],
    truths: Mapping[str, str | None],
    output: Path,
    context: StageContext,
    total: int,
) -> dict[Key, Judgement]:
    """Ask the judge about every response that has an answer, or about which the rule is not sure.

    It goes on where it was cut off.

    Args:
        config: The judge's settings.
        files: responses/*.parquet.
        truths: problem_id -> ground truth.
        output: The stage's folder; what the judge said in a killed run is in it.
        context: ``placement["judge_urls"]`` names the servers.
        total: Responses, for the progress.

    Raises:
        StageError: There is no judge, or it does not answer, or too often unreadably.
    """
    from pcl_reasoner.artifact import AppendLog
    from pcl_reasoner.grade.judge import Judge, Judgement, JudgeSampling, each_in_flight

    urls = list(context.placement.get("judge_urls") or [])
    if not urls:
        raise StageError(
            f"method {config.method} needs a server: set placement.judge_urls in the launch file."
        )
    log = AppendLog(output / JUDGE_LOG)
    done = {
        (record["problem_id"], record["sample_index"]): Judgement(record["right"], record["text"])
        for record in log
    }
    judge = Judge(
        urls,
        JudgeSampling(
            config.judge_model,
            config.judge_temperature,
            config.judge_top_p,
            config.judge_max_tokens,
            config.seed,
        ),
    )
    try:
        questions = _questions(config, files, truths, set(done))
        for key, judgement in each_in_flight(
            lambda question: (question[0], judge.ask(question[1])), questions, judge.in_flight
        ):
            done[key] = _remember(log, key, judgement)
            context.progress.update(len(done), total, "judgements")
    finally:
        judge.close()
        log.close()
    _check_missing(config, done)
    return done


def _questions(
    config: GradeConfig,
    files: list[Path],
    truths: Mapping[str, str | None],
    done: set[Key],
) -> Iterator[tuple[Key, str]]:
    from pcl_reasoner.grade.agreement import unsure
    from pcl_reasoner.grade.answers import last_boxed, why_no_answer
    from pcl_reasoner.grade.judge import fill_prompt

    prompt = _prompt(config)
    for batch in batches(files, READ_COLUMNS):
        for record in batch.to_pylist():
            key = (record["problem_id"], record["sample_index"])
            candidate, truth = candidate_of(config, record), truth_of(record, truths)
            if key in done or why_no_answer(candidate, record["finish_reason"]) is not None:
                continue
            if config.method == "cascade" and not unsure(last_boxed(candidate or ""), truth):
                continue
            yield key, fill_prompt(prompt, truth, candidate or "")


def _remember(log: AppendLog, key: Key, judgement: Judgement) -> Judgement:
    from pcl_reasoner.grade.judge import Judgement as Kept

    kept = Kept(judgement.right, judgement.text[-_JUDGE_TEXT_CHARACTERS:])
    said = {"right": kept.right, "text": kept.text}
    log.append([{"problem_id": key[0], "sample_index": key[1], **said}])
    return kept


def _check_missing(config: GradeConfig, done: Mapping[Key, Judgement]) -> None:
    missing = sum(judgement.right is None for judgement in done.values())
    if missing > config.max_missing * len(done):
        raise StageError(
            f"the judge left {missing} of {len(done)} responses without a readable verdict, the "
            f"limit is {config.max_missing:.1%}. Raise judge_max_tokens, mend the prompt so that "
            "the judge ends with \\boxed{1} or \\boxed{0}, or raise max_missing."
        )


def _prompt(config: GradeConfig) -> str:
    from pcl_reasoner.files import shipped

    file = Path(config.prompt) if config.prompt else shipped("recipes") / "prompts" / "judge.txt"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{file}: the judge's prompt cannot be read ({error}).") from error
    absent = [name for name in ("{ground_truth}", "{candidate}") if name not in text]
    if absent:
        raise StageError(f"{file}: the judge's prompt lacks {' and '.join(absent)}.")
    return text
