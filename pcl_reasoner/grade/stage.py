"""Stages ``grade`` (responses -> verdicts) and ``select`` (verdicts -> what is trained on).

verdicts.parquet, one row a response:

    problem_id 9f0c…, sample_index 3, verdict right, reward 1.0, answer 008, graded_by rule,
    judge_text null
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import Counts, FileName, StageConfig, StageContext

if TYPE_CHECKING:
    from pcl_reasoner.artifact import AppendLog
    from pcl_reasoner.grade.answers import Verdict
    from pcl_reasoner.grade.judge import Judgement
    from pcl_reasoner.grade.select import Key

_BATCH_ROWS = 256
"""Responses held at a time: at 100 000 tokens each they are ~150 MB."""
_JUDGE_LOG = "verdicts.partial.jsonl"
_JUDGE_TEXT_CHARACTERS = 2000
"""What is kept of a judge's reply: its end, where its reasons and its verdict are."""
_READ_COLUMNS = ["problem_id", "sample_index", "response", "finish_reason", "n_tokens"]


class GradeConfig(StageConfig):
    """How responses are graded."""

    method: Literal["rule", "judge"] = "rule"
    """``rule`` compares the boxed answer; ``judge`` asks a model, as the V1.5 paper does."""
    last_tokens: int = Field(300, gt=0)
    """How much of a response's end the judge reads."""
    prompt: FileName | None = None
    """The judge's prompt file with {ground_truth} and {candidate}; None for the shipped one."""
    judge_model: str = "judge"
    """The judge's name at its server."""
    judge_temperature: float = Field(0.6, ge=0)
    """0 is greedy; then a reply that cannot be read is not mended by asking again."""
    judge_top_p: float = Field(0.95, gt=0, le=1)
    """The judge's nucleus."""
    judge_max_tokens: int = Field(8192, gt=0)
    """New tokens a reply, the judge's own thinking included."""
    max_missing: float = Field(0.01, ge=0, le=1)
    """Largest share of responses that the judge may leave without a readable verdict."""
    seed: int = 0
    """Of the judge's sampling."""


class SelectConfig(StageConfig):
    """Which graded responses are trained on."""

    drop_groups: Literal["none", "all_wrong", "both"] = "both"
    """Groups of one problem's responses to drop: none, all wrong, or also all right."""
    max_tokens: int | None = Field(None, gt=0)
    """Longer responses are dropped; None for no limit."""
    shuffle_rewards: bool = False
    """A control experiment: exchange rewards among the responses of mixed groups."""
    seed: int = 0
    """Of that exchange."""


def grade(
    config: GradeConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Grade every response; writes verdicts.parquet and audit.html.

    Raises:
        StageError: A response has no ground truth, or the judge fails.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.grade.audit import Audit, Example

    files = _response_files(inputs["responses"])
    truths = _ground_truths(inputs["problems"])
    total = sum(pq.ParquetFile(file).metadata.num_rows for file in files)
    judgements = _judge_all(config, files, truths, output, context, total)
    audit = Audit()
    with pq.ParquetWriter(output / "verdicts.parquet", _schema(), compression="zstd") as writer:
        for batch in _batches(files, _READ_COLUMNS):
            rows = []
            for record in batch.to_pylist():
                truth = _truth(record, truths)
                verdict, text = _verdict(config, record, truth, judgements)
                rows.append(_row(record, verdict, config.method, text))
                name = f"{record['problem_id']}/{record['sample_index']}"
                example = Example(name, truth, verdict.answer, record["response"], text)
                audit.add(verdict.outcome, example)
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_schema()))
            context.progress.update(sum(audit.outcomes.values()), total, "responses")
    (output / "audit.html").write_text(audit.page(), encoding="utf-8")
    (output / _JUDGE_LOG).unlink(missing_ok=True)
    outcomes = dict(sorted(audit.outcomes.items()))
    info = {"outcomes": outcomes, "right_share": outcomes.get("right", 0) / max(total, 1)}
    return Counts(unit="responses", read=total, kept=total, info=info)


def select(
    config: SelectConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Join responses with their rewards and keep those to train on; writes responses.parquet.

    Raises:
        StageError: A response has no verdict, or belongs to no known problem.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.grade import select as rules

    files = _response_files(inputs["responses"])
    rewards = read_rewards(inputs["verdicts"] / "verdicts.parquet")
    rates = rules.pass_rates(rewards)
    if config.shuffle_rewards:
        rewards = rules.shuffled(rewards, config.seed)
        context.warn("rewards were exchanged among the responses: a control experiment.")
    advantages = rules.advantages(rewards)
    known = _ground_truths(inputs["problems"])
    schema = pq.read_schema(files[0])
    for name in ("reward", "pass_rate", "advantage"):
        schema = schema.append(pa.field(name, pa.float32()))
    dropped: Counter[str] = Counter()
    kept: Counter[float] = Counter()
    with pq.ParquetWriter(output / "responses.parquet", schema, compression="zstd") as writer:
        for batch in _batches(files, None):
            keys = _keys(batch)
            for problem, _ in keys:
                _check_known(problem, known)
            found = rules.rewards_of(keys, rewards, str(inputs["responses"]))
            reasons = [
                rules.drop_reason(rates[problem], length, config.drop_groups, config.max_tokens)
                for (problem, _), length in zip(keys, batch["n_tokens"].to_pylist(), strict=True)
            ]
            dropped.update(reason for reason in reasons if reason)
            keep = [reason is None for reason in reasons]
            rate = pa.array([rates[problem] for problem, _ in keys], pa.float32())
            gained = pa.array([advantages[key] for key in keys], pa.float32())
            columns = [*batch.columns, pa.array(found, pa.float32()), rate, gained]
            taken = pa.RecordBatch.from_arrays(columns, schema=schema).filter(pa.array(keep))
            kept.update(taken["reward"].to_pylist())
            if taken.num_rows:
                writer.write_batch(taken)
    return _selected(kept, dropped, context)


def read_rewards(file: Path) -> dict[Key, float]:
    """Read verdicts.parquet as response -> reward.

    Raises:
        StageError: A reward is missing or out of range, or a response has two verdicts.
    """
    import pyarrow.parquet as pq

    from pcl_reasoner.grade.select import rewards_by_key

    table = pq.read_table(file, columns=["problem_id", "sample_index", "reward"])
    return rewards_by_key(_keys(table), table["reward"].to_pylist(), str(file))


def _selected(kept: Counter[float], dropped: Counter[str], context: StageContext) -> Counts:
    total = kept.total()
    if total == 0:
        raise StageError(
            f"no response is left to train on (dropped: {dict(dropped)}). Sample more, set "
            "drop_groups to none, or raise max_tokens."
        )
    positive = sum(count for reward, count in kept.items() if reward >= 0.5)
    share = positive / total
    if share < 0.5:
        context.warn(
            f"only {positive} of {total} responses ({share:.1%}) are right: OPG is fragile where "
            "right ones are under half. Compare with objective rft, or sample a stronger policy."
        )
    info = {"positive": positive, "negative": total - positive, "right_share": share}
    return Counts(
        unit="responses",
        read=total + dropped.total(),
        kept=total,
        dropped=dict(sorted(dropped.items())),
        info=info,
    )


def _response_files(folder: Path) -> list[Path]:
    files = sorted((folder / "responses").glob("*.parquet"))
    if not files:
        raise StageError(f"{folder}: no responses/*.parquet. Run the stage `sample` first.")
    return files


def _batches(files: list[Path], columns: list[str] | None) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for file in files:
        yield from pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=columns)


def _keys(table: Any) -> list[Key]:
    """The (problem_id, sample_index) of every row of a table or batch."""
    problems = table["problem_id"].to_pylist()
    return list(zip(problems, table["sample_index"].to_pylist(), strict=True))


def _ground_truths(folder: Path) -> dict[str, str | None]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "clean.parquet", columns=["problem_id", "ground_truth"])
    return dict(
        zip(table["problem_id"].to_pylist(), table["ground_truth"].to_pylist(), strict=True)
    )


def _check_known(problem: str, known: Mapping[str, str | None]) -> None:
    if problem not in known:
        raise StageError(
            f"problem {problem} has responses but is not in clean.parquet, so it was removed or "
            "never checked. Sample the problems that the contamination stage kept."
        )


def _truth(record: Mapping[str, Any], truths: Mapping[str, str | None]) -> str:
    _check_known(record["problem_id"], truths)
    truth = truths[record["problem_id"]]
    if truth is None or not truth.strip():
        raise StageError(
            f"problem {record['problem_id']} has no ground truth, so its responses cannot be "
            "graded. The stage `unique` drops such problems: run it on these rows."
        )
    return truth


def _verdict(
    config: GradeConfig,
    record: Mapping[str, Any],
    truth: str,
    judgements: Mapping[Key, Judgement],
) -> tuple[Verdict, str | None]:
    """The verdict on one response, and what the judge said where one was asked."""
    from pcl_reasoner.grade.answers import Verdict, grade_by_rule, last_boxed, why_no_answer

    response, reason = record["response"] or "", record["finish_reason"]
    if config.method == "rule":
        return grade_by_rule(response, truth, reason), None
    candidate = _candidate(config, record)
    answer = last_boxed(candidate or "")
    failure = why_no_answer(candidate, reason)
    if failure is not None:
        return Verdict(failure, answer), None
    judgement = judgements[(record["problem_id"], record["sample_index"])]
    if judgement.right is None:
        return Verdict("error", answer), judgement.text
    return Verdict("right" if judgement.right else "wrong", answer), judgement.text


def _candidate(config: GradeConfig, record: Mapping[str, Any]) -> str | None:
    from pcl_reasoner.grade.judge import candidate_text

    return candidate_text(record["response"] or "", record["n_tokens"], config.last_tokens)


def _judge_all(
    config: GradeConfig,
    files: list[Path],
    truths: Mapping[str, str | None],
    output: Path,
    context: StageContext,
    total: int,
) -> dict[Key, Judgement]:
    """Ask the judge about every response that has an answer; goes on where it was cut off."""
    if config.method == "rule":
        return {}
    from pcl_reasoner.artifact import AppendLog
    from pcl_reasoner.grade.judge import Judge, Judgement, JudgeSampling, each_in_flight

    urls = list(context.placement.get("judge_urls") or [])
    if not urls:
        raise StageError(
            "method judge needs a server: set placement.judge_urls in the launch file."
        )
    log = AppendLog(output / _JUDGE_LOG)
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
    from pcl_reasoner.grade.answers import why_no_answer
    from pcl_reasoner.grade.judge import fill_prompt

    prompt = _prompt(config)
    for batch in _batches(files, _READ_COLUMNS):
        for record in batch.to_pylist():
            key = (record["problem_id"], record["sample_index"])
            candidate = _candidate(config, record)
            if key in done or why_no_answer(candidate, record["finish_reason"]) is not None:
                continue
            yield key, fill_prompt(prompt, _truth(record, truths), candidate or "")


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


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("problem_id", pa.string()),
            ("sample_index", pa.int32()),
            ("verdict", pa.string()),
            ("reward", pa.float32()),
            ("answer", pa.string()),
            ("graded_by", pa.string()),
            ("judge_text", pa.string()),
        ]
    )


def _row(
    record: Mapping[str, Any], verdict: Verdict, graded_by: str, judge_text: str | None
) -> dict[str, Any]:
    return {
        "problem_id": record["problem_id"],
        "sample_index": record["sample_index"],
        "verdict": verdict.outcome,
        "reward": verdict.reward,
        "answer": verdict.answer,
        "graded_by": graded_by,
        "judge_text": judge_text,
    }
