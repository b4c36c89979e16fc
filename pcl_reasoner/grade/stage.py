"""Stages ``grade`` (responses -> verdicts) and ``select`` (verdicts -> what is trained on).

verdicts.parquet, one row a response:

    problem_id 9f0c…, sample_index 3, verdict right, reward 1.0, answer 008, graded_by rule,
    judge_text null
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pcl_reasoner.errors import StageError
from pcl_reasoner.grade.reading import (
    READ_COLUMNS,
    batches,
    check_known,
    ground_truths,
    keys_of,
    response_files,
    truth_of,
)
from pcl_reasoner.stage import Counts, FileName, StageConfig, StageContext

if TYPE_CHECKING:
    from pcl_reasoner.grade.agreement import Agreement
    from pcl_reasoner.grade.answers import Verdict
    from pcl_reasoner.grade.judge import Judgement
    from pcl_reasoner.grade.select import Key


BOTH = ("cascade", "audit")
"""Methods in which rule and judge grade the same responses."""


class GradeConfig(StageConfig):
    """How responses are graded."""

    method: Literal["rule", "judge", "cascade", "audit"] = "rule"
    """``rule`` compares the boxed answer; ``judge`` asks a model, as the V1.5 paper does;
    ``cascade`` asks it where the rule is not sure; ``audit`` lets both grade everything, and the
    judge's word counts."""
    human: FileName | None = None
    """A person's verdicts: a disagreements.jsonl with ``right`` filled in."""
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
    """Grade every response; writes verdicts.parquet, audit.html and disagreements.jsonl.

    Raises:
        StageError: A response has no ground truth, or the judge fails.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.grade.agreement import Agreement, read_human
    from pcl_reasoner.grade.audit import Audit, Example
    from pcl_reasoner.grade.judging import JUDGE_LOG, judge_all

    files = response_files(inputs["responses"])
    truths = ground_truths(inputs["problems"])
    total = sum(pq.ParquetFile(file).metadata.num_rows for file in files)
    human = read_human(Path(config.human)) if config.human else {}
    judgements = {}
    if config.method != "rule":
        judgements = judge_all(config, files, truths, output, context, total)
    audit, agreement, decided = Audit(), Agreement(), Counter[str]()
    with pq.ParquetWriter(output / "verdicts.parquet", _schema(), compression="zstd") as writer:
        for batch in batches(files, READ_COLUMNS):
            rows = []
            for record in batch.to_pylist():
                truth = truth_of(record, truths)
                key = (record["problem_id"], record["sample_index"])
                row = _decide(config, record, truth, judgements.get(key), human.get(key), agreement)
                rows.append(row)
                decided[row["graded_by"]] += 1
                name = f"{record['problem_id']}/{record['sample_index']}"
                shown = (name, truth, row["answer"], record["response"], row["judge_text"])
                audit.add(row["verdict"], Example(*shown))
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_schema()))
            context.progress.update(sum(audit.outcomes.values()), total, "responses")
    (output / "audit.html").write_text(audit.page(agreement), encoding="utf-8")
    if config.method in BOTH:
        agreement.write(output / "disagreements.jsonl")
    (output / JUDGE_LOG).unlink(missing_ok=True)
    outcomes = dict(sorted(audit.outcomes.items()))
    info = {"outcomes": outcomes, "right_share": outcomes.get("right", 0) / max(total, 1)}
    if config.method in BOTH:
        info["agreement"] = agreement.info()
    if config.method != "rule":
        info["unreadable"] = sum(one.right is None for one in judgements.values())
    if config.method in BOTH or human:
        info["graded_by"] = dict(sorted(decided.items()))
    if human:
        info["human_not_here"] = len(human) - decided["human"]
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

    files = response_files(inputs["responses"])
    rewards = read_rewards(inputs["verdicts"] / "verdicts.parquet")
    rates = rules.pass_rates(rewards)
    if config.shuffle_rewards:
        rewards = rules.shuffled(rewards, config.seed)
        context.warn("rewards were exchanged among the responses: a control experiment.")
    advantages = rules.advantages(rewards)
    known = ground_truths(inputs["problems"])
    schema = pq.read_schema(files[0])
    for name in ("reward", "pass_rate", "advantage"):
        schema = schema.append(pa.field(name, pa.float32()))
    dropped: Counter[str] = Counter()
    kept: Counter[float] = Counter()
    with pq.ParquetWriter(output / "responses.parquet", schema, compression="zstd") as writer:
        for batch in batches(files, None):
            keys = keys_of(batch)
            for problem, _ in keys:
                check_known(problem, known)
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
    return rewards_by_key(keys_of(table), table["reward"].to_pylist(), str(file))


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


def _decide(
    config: GradeConfig,
    record: Mapping[str, Any],
    truth: str,
    judgement: Judgement | None,
    human: bool | None,
    agreement: Agreement,
) -> dict[str, Any]:
    """A row of verdicts.parquet: a person's word stands over the judge's, the judge's over the
    rule's."""
    from pcl_reasoner.grade.answers import Verdict

    verdict = _by_rule(config, record, truth)
    by = "judge" if config.method == "judge" else "rule"
    if judgement is not None and judgement.right is not None:
        if config.method in BOTH:
            agreement.add(record, truth, verdict, judgement.right, judgement.text)
        verdict, by = Verdict("right" if judgement.right else "wrong", verdict.answer), "judge"
    if human is not None:
        verdict, by = Verdict("right" if human else "wrong", verdict.answer), "human"
    return {
        "problem_id": record["problem_id"],
        "sample_index": record["sample_index"],
        "verdict": verdict.outcome,
        "reward": verdict.reward,
        "answer": verdict.answer,
        "graded_by": by,
        "judge_text": judgement.text if judgement else None,
    }


def _by_rule(config: GradeConfig, record: Mapping[str, Any], truth: str) -> Verdict:
    """What the rule says; with a judge for everything, only whether there is an answer to judge.

    What is to be judged and has no readable judgement is an error; in a cascade the rule's stands.
    """
    from pcl_reasoner.grade.answers import Verdict, grade_by_rule, last_boxed, why_no_answer
    from pcl_reasoner.grade.judging import candidate_of

    response, reason = record["response"] or "", record["finish_reason"]
    if config.method != "judge":
        return grade_by_rule(response, truth, reason)
    candidate = candidate_of(config, record)
    answer = last_boxed(candidate or "")
    return Verdict(why_no_answer(candidate, reason) or "error", answer)


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
