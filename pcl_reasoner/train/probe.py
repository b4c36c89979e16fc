"""Lets the policy answer a few problems during training, with the local sampler.

probe.jsonl, one line per probe:

    {"step": 50, "problems": 16, "responses": 16, "accuracy": 0.81, "stop_ratio": 1.0,
     "mean_length": 43.2}

The sampler has its own random streams, so a run has the same losses with and without the probe.
Importing this module is cheap; MindSpore is imported when a Prober is created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.train.config import Probe

if TYPE_CHECKING:
    from pcl_reasoner.local_sampler.sampler import Drawn

PROBE = "probe.jsonl"
PROBLEMS = "probe_problems.jsonl"
_KEYS = {"id": ("id", "problem_id"), "problem": ("problem",), "answer": ("answer", "ground_truth")}

ProbeProblem = dict[str, str]
"""``id``, ``problem`` and ``answer``."""


def read_problems(path: Path, limit: int) -> list[ProbeProblem]:
    """Read the first problems of a stage's clean.parquet, or of a benchmark's JSON Lines file.

    Args:
        path: A folder with clean.parquet or with a .jsonl file, or the .jsonl file itself.
        limit: Largest number of problems.

    Raises:
        StageError: There are no problems, or one of them lacks its id, text or answer.
    """
    table = path / "clean.parquet"
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    files = [file for file in files if file.name != "quarantined.jsonl"]
    if table.is_file():
        import pyarrow.parquet as pq

        records = next(pq.ParquetFile(table).iter_batches(limit)).to_pylist()
    elif files:
        lines = files[0].read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()][:limit]
    else:
        raise StageError(
            f"{path}: no clean.parquet and no .jsonl. The input `probe` needs one of them."
        )
    if not records:
        raise StageError(f"{path}: no problems for the probe.")
    return [_problem(record, f"{path}, record {row}") for row, record in enumerate(records, 1)]


def _problem(record: Mapping[str, Any], where: str) -> ProbeProblem:
    found = {}
    for name, keys in _KEYS.items():
        value = next((record[key] for key in keys if record.get(key) not in (None, "")), None)
        if value is None:
            raise StageError(f"{where}: no {' or '.join(keys)}; it has {', '.join(record)}.")
        found[name] = str(value)
    return found


class Prober:
    """Answers the same problems in every probe, with the current weights of training.

    Args:
        settings: The settings of the probe, including its sampling settings.
        policy: The policy before training: a folder with the shape, tokenizer and template.
        problems: The problems, as read_problems returns them.
    """

    def __init__(self, settings: Probe, policy: Path, problems: Sequence[ProbeProblem]) -> None:
        from pcl_reasoner.inference.dialogue import Dialogue, Problem
        from pcl_reasoner.local_sampler.draw import stream_seed
        from pcl_reasoner.local_sampler.sampler import LocalSampler, Row

        self.problems, self.settings = problems, settings
        self.dialogue = Dialogue(policy, settings)
        self.sampler = LocalSampler(policy)
        prompts = [self.dialogue.prompt(Problem(item["id"], item["problem"])) for item in problems]
        longest = min(settings.max_model_len, self.sampler.shape.max_position_embedding)
        limits = [self.dialogue.response_limit(prompt, longest) for prompt in prompts]
        if min(limits) < 1:
            name = problems[limits.index(min(limits))]["id"]
            raise StageError(
                f"probe: the prompt of problem {name} leaves no tokens for a response."
            )
        self.prompts = [prompt.ids for prompt in prompts]
        self.rows = [
            Row(index, stream_seed(settings.seed, problem["id"], sample))
            for index, problem in enumerate(problems)
            for sample in range(settings.n)
        ]
        self.response_limits = [limits[row.prompt] for row in self.rows]
        self.sampler.prepare(self._layout())

    def _layout(self) -> Any:
        """Return one layout for all batches, so that all probes compile only two graphs."""
        from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout

        slots = -(-max(map(len, self.prompts)) // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
        rows = min(self.settings.batch, len(self.rows))
        return Layout(len(self.prompts), slots, rows, slots + max(self.response_limits))

    def ask(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Answer and grade every problem.

        Args:
            weights: Hugging Face name -> float32 array.

        Returns:
            The values of a line of probe.jsonl, without ``step``.
        """
        from pcl_reasoner.local_sampler.sampler import Model

        current = self.sampler.model.get_parameters()
        updated = Model(self.sampler.shape, dict(weights)).get_parameters()
        for old, new in zip(current, updated, strict=True):
            old.set_data(new)
        drawn: list[Drawn] = []
        for start in range(0, len(self.rows), self.settings.batch):
            part = slice(start, start + self.settings.batch)
            drawn += self.sampler.sample(
                self.prompts, self.rows[part], self.response_limits[part], self.settings
            )
        return self._graded(drawn)

    def _graded(self, drawn: Sequence[Drawn]) -> dict[str, Any]:
        from pcl_reasoner.grade.answers import grade_by_rule

        correct = stopped = tokens = 0
        for row, response in zip(self.rows, drawn, strict=True):
            text = self.dialogue.response(response.token_ids, response.finish_reason)
            answer = self.problems[row.prompt]["answer"]
            verdict = grade_by_rule(text, answer, response.finish_reason)
            correct += verdict.outcome == "correct"
            stopped += response.finish_reason == "stop"
            tokens += len(response.token_ids)
        count = len(drawn)
        return {
            "problems": len(self.problems),
            "responses": count,
            "accuracy": correct / count,
            "stop_ratio": stopped / count,
            "mean_length": tokens / count,
        }
