"""Draws responses with the local sampler, in batches that are the same in every run.

    keys ("5c18…", 0) … ("5c18…", 7), ("9f0c…", 0) …, 400 at a time

A batch with a missing response is drawn completely, and only the missing responses are added.
Therefore an interrupted run ends with the same bytes as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.response_log import LOG_PROBS, ResponseLog, record
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.draw import stream_seed
from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout, LocalSampler, Row
from pcl_reasoner.weights.float32 import read_weights


def draw_locally(
    prompts: list[Prompt], dialogue: Dialogue, records: ResponseLog, context: StageContext
) -> None:
    """Draw every response that is missing.

    Args:
        prompts: All prompts, including those whose responses are in the log already.
        dialogue: The model's tokenizer and template, with the sampling fields.
        records: The log that receives the responses.
        context: Receives progress.
    """
    settings = dialogue.settings
    rows = min(settings.batch, len(prompts) * settings.n)
    drawer = LocalDrawer(dialogue, prompts, rows, problems_in(rows, settings.n), context.progress)
    drawer.draw(prompts, settings, records)


def problems_in(rows: int, n: int) -> int:
    """Return the largest number of problems to which ``rows`` consecutive sorted keys belong."""
    return rows // n if rows % n == 0 else -(-rows // n) + 1


class LocalDrawer:
    """Draws responses to any subset of some prompts, any number of times.

    Args:
        dialogue: The model's tokenizer and template, with the sampling fields.
        prompts: All prompts that will ever be asked: their lengths decide the array sizes, so that
            only two graphs are compiled.
        rows: Responses that are decoded together.
        problems: The largest number of problems to which they belong.
        progress: Receives the number of responses.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        prompts: Sequence[Prompt],
        rows: int,
        problems: int,
        progress: Progress,
    ) -> None:
        self.dialogue, self.rows, self.progress = dialogue, rows, progress
        self.sampler = LocalSampler(dialogue.folder)
        settings = dialogue.settings
        longest = min(settings.max_model_len, self.sampler.shape.max_position_embedding)
        limits = {one.problem_id: dialogue.response_limit(one, longest) for one in prompts}
        self.limits = {name: limit for name, limit in limits.items() if limit > 0}
        """Problem -> largest number of response tokens; a prompt that leaves none is absent."""
        fitting = [prompt for prompt in prompts if prompt.problem_id in self.limits]
        if fitting:
            slots = max(len(prompt.ids) for prompt in fitting)
            slots = -(-slots // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
            longest_row = slots + max(self.limits.values())
            self.sampler.prepare(Layout(min(problems, len(fitting)), slots, rows, longest_row))

    def load(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder with the same model."""
        self.sampler.load(read_weights(folder))

    def draw(
        self,
        prompts: Sequence[Prompt],
        settings: SamplingConfig,
        records: ResponseLog,
        log_probs: bool = False,
    ) -> None:
        """Draw every response that is missing.

        Args:
            prompts: The prompts to answer.
            settings: The sampling fields; they may differ from the dialogue's in seed and n.
            records: The log that receives the responses.
            log_probs: Whether records get the drawn tokens' log-probs.
        """
        named = {prompt.problem_id: prompt for prompt in prompts}
        indices = range(settings.n)
        # A prompt that leaves no tokens for a response fails: a server would refuse it, too.
        refused = [(name, i) for name in named if name not in self.limits for i in indices]
        records.add(record(key, "", [], "error", 0, None, "local") for key in refused)
        keys = sorted((name, i) for name in named if name in self.limits for i in indices)
        for start in range(0, len(keys), self.rows):
            batch = keys[start : start + self.rows]
            if any(key not in records for key in batch):
                records.add(self._draw_batch(batch, named, settings, log_probs))
            self.progress.update(len(records), len(prompts) * settings.n, "responses")

    def _draw_batch(
        self,
        batch: list[Key],
        prompts: dict[str, Prompt],
        settings: SamplingConfig,
        log_probs: bool,
    ) -> list[Record]:
        names = sorted({name for name, _ in batch})
        rows = [Row(names.index(key[0]), stream_seed(settings.seed, *key)) for key in batch]
        ids = [prompts[name].ids for name in names]
        limits = [self.limits[name] for name, _ in batch]
        drawn = self.sampler.sample(ids, rows, limits, settings, log_probs)
        records = []
        for key, row, one in zip(batch, rows, drawn, strict=True):
            response = self.dialogue.response(one.token_ids, one.finish_reason)
            kept = (response, one.token_ids, one.finish_reason, row.seed)
            found = record(key, *kept, seconds=None, server="local")
            if log_probs:
                found[LOG_PROBS] = one.log_probs
            records.append(found)
        return records
