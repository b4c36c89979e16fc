"""Stages ``grade`` (responses -> verdicts) and ``select`` (verdicts -> training responses).

verdicts.parquet, one row per response:

    problem_id 9f0c…, sample_index 3, verdict correct, reward 1.0, answer 008, graded_by rule,
    judge_text null, score null, detail null
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.parts import open_parquet
from pcl_reasoner.grade.agreement import Agreement, read_human
from pcl_reasoner.grade.audit import Audit
from pcl_reasoner.grade.by_kind import ByKind, delete_logs, verify_by_kind
from pcl_reasoner.grade.config import BOTH, JUDGE_LOG, GradeConfig, SelectConfig
from pcl_reasoner.grade.reading import Question, Responses, pairs, truth_of, value_of
from pcl_reasoner.verifiers.answers import (
    Verdict,
    grade_by_rule,
    last_boxed,
    prepare,
    why_no_answer,
)
from pcl_reasoner.verifiers.compared import one_sided
from pcl_reasoner.verifiers.kept_checks import KeptChecks
from pcl_reasoner.verifiers.logs import LOGS

GRADING = "grading.json"
"""File with the settings of judge, reward model, sandbox and function."""
LEAST_LEFT = 0.1
"""If a smaller share of the responses is left by ``drop_groups``, there is a warning."""

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key
    from pcl_reasoner.grade.judge import Judgement
    from pcl_reasoner.grade.judging import Judged


def grade(
    config: GradeConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Grade every response; writes verdicts.parquet and audit.html.

    There is a warning if nearly all answers are graded the same.

    If rule and judge both grade, it also writes disagreements.jsonl. If models, sandboxes or a
    function of the user's grade, it also writes grading.json with their settings.

    Args:
        config: How each kind of problem is graded.
        inputs: ``responses``, ``problems``; optionally ``judge`` and ``reward_model``, Hugging Face
            folders, which are required if this stage starts their servers.
        output: The stage's folder; what a killed run left in it is kept.
        context: ``placement`` names the servers or says how to start them, and where programs run.

    Raises:
        StageError: A problem lacks what its kind needs, or a judge, a server or a sandbox fails.
    """
    grading_file = output / GRADING
    # The logs are deleted last: grading.json without a log means that everything was written.
    if grading_file.exists() and not any((output / log).exists() for log in (JUDGE_LOG, *LOGS)):
        written = own_json(grading_file)
        return Counts.model_validate(written["counts"])
    with KeptChecks(output) as kept:
        return _grade(config, inputs, output, context, kept)


def _grade(
    config: GradeConfig,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
    kept: KeptChecks,
) -> Counts:
    responses = Responses(inputs["responses"], inputs["problems"], kept)
    human = read_human(Path(config.human)) if config.human else {}
    by_kind = verify_by_kind(config, responses, inputs, output, context)
    judged = None
    if config.method != "rule" and "answer" in responses.methods(config.kinds):
        from pcl_reasoner.grade.judging import judge_all

        judged = judge_all(config, responses, output, context, inputs.get("judge"))
    grading = _Grading(config, judged, human, by_kind)
    grading.write(responses, output, context)
    if warning := one_sided(grading.answered["correct"], grading.answered.total()):
        context.warn(warning)
    total = responses.total
    counts = Counts(unit="responses", read=total, kept=total, info=grading.figures(total))
    if described := grading.described():
        write_json(output / GRADING, {**described, "counts": counts.model_dump()})
    (output / JUDGE_LOG).unlink(missing_ok=True)
    delete_logs(output)
    return counts


class _Grading:
    """Decides the verdict on every response, and counts the verdicts while it writes them."""

    def __init__(
        self,
        config: GradeConfig,
        judged: Judged | None,
        human: Mapping[Key, bool],
        by_kind: ByKind,
    ) -> None:
        self.config, self.judged, self.human, self.by_kind = config, judged, human, by_kind
        self.judgements = judged.judgements if judged else {}
        self.audit, self.agreement, self.graders = Audit(), Agreement(), Counter[str]()
        self.rewards: dict[str, list[float]] = {}
        """Kind -> number of responses and sum of their rewards."""
        self.answered = Counter[str]()
        """``correct`` and ``incorrect``: responses with an answer in a box."""

    def write(self, responses: Responses, output: Path, context: StageContext) -> None:
        """Write verdicts.parquet and audit.html; with rule and judge, also disagreements.jsonl."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from pcl_reasoner.core.schemas import VERDICTS

        with pq.ParquetWriter(output / "verdicts.parquet", VERDICTS, compression="zstd") as writer:
            for batch in responses.with_questions():
                self._prepare(batch, responses, context)
                rows = [self._row(record, question, responses) for record, question in batch]
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=VERDICTS))
                written = self.graders.total()
                context.progress.update(written, responses.total, "responses")
        (output / "audit.html").write_text(self.audit.page(self.agreement), encoding="utf-8")
        if self.config.method in BOTH:
            lines = [json.dumps(one, ensure_ascii=False) for one in self.agreement.disagreements]
            text = "".join(f"{line}\n" for line in lines)
            (output / "disagreements.jsonl").write_text(text, encoding="utf-8")

    def _prepare(
        self,
        batch: Sequence[tuple[Mapping[str, Any], Question]],
        responses: Responses,
        context: StageContext,
    ) -> None:
        """Compare the answers of a batch on all cores."""
        if self.config.method == "judge":
            return
        written = self.graders.total()

        def report(done: int, total: int) -> None:
            note = f"{done:,} of {total:,} expressions compared"
            context.progress.update(written, responses.total, "responses", note)

        answered = (
            (one["response"] or "", truth_of(one, responses.truths), one["finish_reason"])
            for one, question in batch
            if self.config.kinds[question.kind] == "answer"
        )
        prepare(answered, report)

    def _row(
        self, record: Mapping[str, Any], question: Question, responses: Responses
    ) -> dict[str, Any]:
        """Return a response's row of verdicts.parquet; also counts its verdict and its grader."""
        key = (record["problem_id"], record["sample_index"])
        judgement = self.judgements.get(key)
        if self.config.kinds[question.kind] == "answer":
            truth = truth_of(record, responses.truths)
            verdict, grader = self._decide(record, truth, judgement, self.human.get(key))
            if verdict.outcome in ("correct", "incorrect"):
                self.answered[verdict.outcome] += 1
        else:
            truth = question.truth
            verdict, grader = self.by_kind.verdict(record, question)
        judge_text = judgement.text if judgement else None
        self.graders[grader] += 1
        counted = self.rewards.setdefault(question.kind, [0, 0.0])
        counted[0] += 1
        counted[1] += verdict.reward
        texts = (truth, verdict.answer or verdict.detail, record["response"] or "", judge_text)
        self.audit.add(verdict.outcome, (f"{key[0]}/{key[1]}", *texts))
        return {
            "problem_id": key[0],
            "sample_index": key[1],
            "verdict": verdict.outcome,
            "reward": verdict.reward,
            "answer": verdict.answer,
            "graded_by": grader,
            "judge_text": judge_text,
            "score": verdict.score,
            "detail": verdict.detail,
        }

    def _decide(
        self, record: Mapping[str, Any], truth: str, judgement: Judgement | None, human: bool | None
    ) -> tuple[Verdict, str]:
        """Return verdict and grader; a person overrides the judge, who overrides the rule."""
        verdict = self._by_rule(record, truth)
        grader = "judge" if self.config.method == "judge" else "rule"
        if judgement is not None and judgement.correct is not None:
            if self.config.method in BOTH:
                self.agreement.add(record, truth, verdict, judgement.correct, judgement.text)
            verdict, grader = verdict.overridden(judgement.correct), "judge"
        if human is not None:
            verdict, grader = verdict.overridden(human), "human"
        return verdict, grader

    def _by_rule(self, record: Mapping[str, Any], truth: str) -> Verdict:
        """Return the verdict that is used if there is no readable judgement.

        It is the rule's verdict. But with method ``judge`` the rule does not compare answers: a
        response that has an answer gets ``error``.
        """
        reason = record["finish_reason"]
        if self.config.method != "judge":
            return grade_by_rule(record["response"] or "", truth, reason)
        from pcl_reasoner.grade.judge import candidate_text

        candidate = candidate_text(record, self.config.last_tokens)
        return Verdict(why_no_answer(candidate, reason) or "error", last_boxed(candidate or ""))

    def described(self) -> dict[str, Any]:
        """Return the settings of whatever graded besides the rule; empty if nothing did."""
        found = dict(self.by_kind.described)
        if self.judged:
            found["judge"] = {**self.judged.described, **self.judged.figures}
        return found

    def figures(self, total: int) -> dict[str, Any]:
        """Return the ``info`` of the stage's counts: verdicts, agreement, judge and graders."""
        outcomes = dict(sorted(self.audit.outcomes.items()))
        info = {"outcomes": outcomes, "correct_share": outcomes.get("correct", 0) / max(total, 1)}
        if set(self.rewards) - {"math"}:
            info["kinds"] = {
                kind: {"responses": number, "mean_reward": summed / number}
                for kind, (number, summed) in sorted(self.rewards.items())
            }
        info |= self.by_kind.figures
        if self.config.method in BOTH:
            info["agreement"] = self.agreement.info()
        if self.judged:
            prompt_sha256 = self.judged.described["prompt_sha256"]
            info |= {**self.judged.figures, "prompt_sha256": prompt_sha256}
        if self.config.method in BOTH or self.human or len(self.graders) > 1:
            info["graded_by"] = dict(sorted(self.graders.items()))
        if self.human:
            info["human_not_here"] = len(self.human) - self.graders["human"]
        return info


def select(
    config: SelectConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Add rewards to the responses and keep those to train on; writes responses.parquet.

    Raises:
        StageError: A response has no verdict, its problem is not in clean.parquet, or no response
            is left.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import REWARDED
    from pcl_reasoner.grade import select as rules
    from pcl_reasoner.grade.rewards import Rewards, pass_rates, read_rewards

    responses = Responses(inputs["responses"], inputs["problems"])
    by_key = read_rewards(inputs["verdicts"] / "verdicts.parquet")
    rates = pass_rates(by_key)
    if config.shuffle_rewards:
        by_key = rules.shuffled(by_key, config.seed)
        context.warn("rewards were exchanged among the responses, as a control experiment.")
    rewards = Rewards(by_key, rates)
    limits = (config.drop_groups, config.max_response_tokens)
    schema = pa.schema([*open_parquet(responses.files[0]).schema_arrow, *REWARDED])
    dropped, kept = Counter[str](), Counter[float]()
    with pq.ParquetWriter(output / "responses.parquet", schema, compression="zstd") as writer:
        for batch in responses.batches():
            keys = pairs(batch, "problem_id", "sample_index")
            for problem, _ in keys:
                value_of(problem, responses.truths)  # a problem that was removed is an error
            reasons = [
                rules.drop_reason(rates[problem], length, *limits)
                for (problem, _), length in zip(keys, batch["n_tokens"].to_pylist(), strict=True)
            ]
            dropped.update(reason for reason in reasons if reason)
            joined = rewards.join(keys, str(inputs["responses"])).values()
            columns = [*batch.columns, *map(pa.array, joined)]
            keep = pa.array([reason is None for reason in reasons])
            taken = pa.RecordBatch.from_arrays(columns, schema=schema).filter(keep)
            kept.update(taken["reward"].to_pylist())
            if taken.num_rows:
                writer.write_batch(taken)
    return _selected(kept, dropped, rules.group_figures(by_key, config.drop_groups), context)


def _selected(
    kept: Counter[float], dropped: Counter[str], groups: dict[str, int], context: StageContext
) -> Counts:
    total = kept.total()
    if total == 0:
        raise StageError(
            f"no response is left to train on (dropped: {dict(dropped)}). Sample more, set "
            "drop_groups to none, or raise max_response_tokens."
        )
    read, left = total + dropped.total(), groups["left_by_groups"]
    if left < LEAST_LEFT * read:
        context.warn(
            f"only {left} of {read} responses ({left / read:.1%}) are left after groups were "
            f"dropped ({dict(sorted(dropped.items()))}): nearly all problems have equal verdicts. "
            "Compare some with audit.html of the stage grade before you train on the rest."
        )
    positive = sum(count for reward, count in kept.items() if reward >= 0.5)
    share = positive / total
    if share < 0.5:
        context.warn(
            f"only {positive} of {total} responses ({share:.1%}) are correct: OPG is fragile if "
            "less than half are. Compare with train.loss=rft, or sample with a stronger policy."
        )
    info = {"positive": positive, "negative": total - positive, "correct_share": share, **groups}
    return Counts(
        unit="responses",
        read=read,
        kept=total,
        dropped=dict(sorted(dropped.items())),
        info=info,
    )
