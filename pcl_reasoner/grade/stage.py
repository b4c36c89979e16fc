"""Stages ``grade`` (responses -> verdicts) and ``select`` (verdicts -> training responses).

verdicts.parquet, one row per response:

    problem_id 9f0c…, sample_index 3, verdict correct, reward 1.0, answer 008, graded_by rule,
    judge_text null
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.grade.config import BOTH, GradeConfig, SelectConfig
from pcl_reasoner.grade.reading import (
    READ_COLUMNS,
    batches,
    check_known,
    ground_truths,
    keys_of,
    response_files,
    truth_of,
)

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key
    from pcl_reasoner.grade.answers import Verdict
    from pcl_reasoner.grade.judge import Judgement
    from pcl_reasoner.grade.judging import Judged


def grade(
    config: GradeConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Grade every response; writes verdicts.parquet and audit.html.

    Where rule and judge both grade, it writes disagreements.jsonl too. With a judge it writes
    judging.json.

    Args:
        config: Grading by rule, by a judge, or by both.
        inputs: ``responses``, ``problems``; also ``judge`` (a Hugging Face folder), where the
            judge's weights are available or its server is started here.
        output: The stage's folder; judgements of a killed run in it are kept.
        context: ``placement.judge_urls`` names the judge's servers, or ``placement.judging``
            says how to start them.

    Raises:
        StageError: A response has no ground truth, or the judge fails.
    """
    import pyarrow.parquet as pq

    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.grade.agreement import read_human
    from pcl_reasoner.grade.judging import JUDGE_LOG, judge_all

    told = output / "judging.json"
    # The log is deleted last: judging.json without a log means that everything was written.
    if told.exists() and not (output / JUDGE_LOG).exists():
        return Counts.model_validate(json.loads(told.read_text(encoding="utf-8"))["counts"])
    files = response_files(inputs["responses"])
    truths = ground_truths(inputs["problems"])
    total = sum(pq.ParquetFile(file).metadata.num_rows for file in files)
    human = read_human(Path(config.human)) if config.human else {}
    judged = None
    if config.method != "rule":
        judged = judge_all(config, files, truths, output, context, total, inputs.get("judge"))
    found = _Graded(judged.judgements if judged else {}, human)
    _write_verdicts(config, files, truths, found, output, context, total)
    (output / "audit.html").write_text(found.audit.page(found.agreement), encoding="utf-8")
    if config.method in BOTH:
        found.agreement.write(output / "disagreements.jsonl")
    info = _figures(config, found, judged, total)
    counts = Counts(unit="responses", read=total, kept=total, info=info)
    if judged:
        write_json(told, {**judged.described, **judged.figures, "counts": counts.model_dump()})
    (output / JUDGE_LOG).unlink(missing_ok=True)
    return counts


class _Graded:
    """Verdicts of judge and people, and the counts made while the verdicts are written."""

    def __init__(self, judgements: Mapping[Key, Judgement], human: Mapping[Key, bool]) -> None:
        from pcl_reasoner.grade.agreement import Agreement
        from pcl_reasoner.grade.audit import Audit

        self.judgements, self.human = judgements, human
        self.audit, self.agreement, self.decided = Audit(), Agreement(), Counter[str]()


def _write_verdicts(
    config: GradeConfig,
    files: list[Path],
    truths: Mapping[str, str | None],
    found: _Graded,
    output: Path,
    context: StageContext,
    total: int,
) -> None:
    """Write verdicts.parquet and count its rows by verdict and by grader."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import VERDICTS
    from pcl_reasoner.grade.audit import Example

    with pq.ParquetWriter(output / "verdicts.parquet", VERDICTS, compression="zstd") as writer:
        for batch in batches(files, READ_COLUMNS):
            rows = []
            for record in batch.to_pylist():
                truth = truth_of(record, truths)
                row = _decide(config, record, truth, found)
                rows.append(row)
                found.decided[row["graded_by"]] += 1
                name = f"{record['problem_id']}/{record['sample_index']}"
                shown = (name, truth, row["answer"], record["response"], row["judge_text"])
                found.audit.add(row["verdict"], Example(*shown))
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=VERDICTS))
            context.progress.update(sum(found.audit.outcomes.values()), total, "responses")


def _figures(
    config: GradeConfig, found: _Graded, judged: Judged | None, total: int
) -> dict[str, Any]:
    """Further figures for the stage's counts."""
    outcomes = dict(sorted(found.audit.outcomes.items()))
    info = {"outcomes": outcomes, "correct_share": outcomes.get("correct", 0) / max(total, 1)}
    if config.method in BOTH:
        info["agreement"] = found.agreement.info()
    if judged:
        info |= {**judged.figures, "prompt_sha256": judged.described["prompt_sha256"]}
    if config.method in BOTH or found.human:
        info["graded_by"] = dict(sorted(found.decided.items()))
    if found.human:
        info["human_not_here"] = len(found.human) - found.decided["human"]
    return info


def select(
    config: SelectConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Join responses with their rewards and keep those to train on; writes responses.parquet.

    Raises:
        StageError: A response has no verdict, its problem is not in clean.parquet, or no response
            is left.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import REWARDED
    from pcl_reasoner.grade import select as rules
    from pcl_reasoner.grade.rewards import Rewards, pass_rates, read_rewards

    files = response_files(inputs["responses"])
    by_key = read_rewards(inputs["verdicts"] / "verdicts.parquet")
    rates = pass_rates(by_key)
    if config.shuffle_rewards:
        by_key = rules.shuffled(by_key, config.seed)
        context.warn("rewards were exchanged among the responses: a control experiment.")
    rewards = Rewards.of(by_key, rates)
    known = ground_truths(inputs["problems"])
    schema = pa.schema([*pq.read_schema(files[0]), *REWARDED])
    dropped: Counter[str] = Counter()
    kept: Counter[float] = Counter()
    with pq.ParquetWriter(output / "responses.parquet", schema, compression="zstd") as writer:
        for batch in batches(files, None):
            keys = keys_of(batch)
            for problem, _ in keys:
                check_known(problem, known)
            joined = rewards.join(keys, str(inputs["responses"]))
            reasons = [
                rules.drop_reason(
                    rates[problem], length, config.drop_groups, config.max_response_tokens
                )
                for (problem, _), length in zip(keys, batch["n_tokens"].to_pylist(), strict=True)
            ]
            dropped.update(reason for reason in reasons if reason)
            columns = [*batch.columns, *map(pa.array, joined.values())]
            keep = pa.array([reason is None for reason in reasons])
            taken = pa.RecordBatch.from_arrays(columns, schema=schema).filter(keep)
            kept.update(taken["reward"].to_pylist())
            if taken.num_rows:
                writer.write_batch(taken)
    groups = rules.group_figures(by_key, config.drop_groups)
    return _selected(kept, dropped, groups, context)


def _selected(
    kept: Counter[float], dropped: Counter[str], groups: dict[str, int], context: StageContext
) -> Counts:
    total = kept.total()
    if total == 0:
        raise StageError(
            f"no response is left to train on (dropped: {dict(dropped)}). Sample more, set "
            "drop_groups to none, or raise max_response_tokens."
        )
    positive = sum(count for reward, count in kept.items() if reward >= 0.5)
    share = positive / total
    if share < 0.5:
        context.warn(
            f"only {positive} of {total} responses ({share:.1%}) are correct: OPG is fragile where "
            "correct ones are under half. Compare with objective rft, or sample a stronger policy."
        )
    info = {"positive": positive, "negative": total - positive, "correct_share": share, **groups}
    return Counts(
        unit="responses",
        read=total + dropped.total(),
        kept=total,
        dropped=dict(sorted(dropped.items())),
        info=info,
    )


def _decide(
    config: GradeConfig, record: Mapping[str, Any], truth: str, found: _Graded
) -> dict[str, Any]:
    """A row of verdicts.parquet: a human verdict overrides the judge's, the judge's the rule's."""
    from pcl_reasoner.grade.answers import Verdict

    key = (record["problem_id"], record["sample_index"])
    judgement, human = found.judgements.get(key), found.human.get(key)
    verdict = _by_rule(config, record, truth)
    by = "judge" if config.method == "judge" else "rule"
    if judgement is not None and judgement.correct is not None:
        if config.method in BOTH:
            found.agreement.add(record, truth, verdict, judgement.correct, judgement.text)
        verdict, by = (
            Verdict("correct" if judgement.correct else "incorrect", verdict.answer),
            "judge",
        )
    if human is not None:
        verdict, by = Verdict("correct" if human else "incorrect", verdict.answer), "human"
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
    """The rule's verdict; with method ``judge``, only whether there is an answer to judge.

    A response without a readable judgement is an ``error`` with method ``judge``; with ``cascade``
    and ``audit`` the rule's verdict counts.
    """
    from pcl_reasoner.grade.answers import Verdict, grade_by_rule, last_boxed, why_no_answer
    from pcl_reasoner.grade.judging import candidate_of

    response, reason = record["response"] or "", record["finish_reason"]
    if config.method != "judge":
        return grade_by_rule(response, truth, reason)
    candidate = candidate_of(config, record)
    answer = last_boxed(candidate or "")
    return Verdict(why_no_answer(candidate, reason) or "error", answer)
