"""Draws n responses per problem, for the stages ``sample`` and ``evaluate``.

    Problem("5c18d5f0a1b2c3d4", "Tom has 3 apples …"), n = 8
    -> keys ("5c18d5f0a1b2c3d4", 0) … ("5c18d5f0a1b2c3d4", 7), one record each (response_log.py)

Records are appended as they arrive, and a response that is recorded is not requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.response_log import ResponseLog, record
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.draw import stream_seed
from pcl_reasoner.prompt.template import load_template
from pcl_reasoner.weights.model_config import end_tokens
from pcl_reasoner.weights.stream import weight_files

if TYPE_CHECKING:
    from pcl_reasoner.local_sampler.sampler import Layout, LocalSampler


def generate(
    problems: Sequence[Problem],
    settings: SamplingConfig,
    folder: Path,
    log: Path,
    context: StageContext,
) -> ResponseLog:
    """Draw every response that is not in the log yet.

    Args:
        problems: Problems with distinct ids, in an order that is the same in every run.
        settings: The sampling fields.
        folder: The model's Hugging Face folder; with a server, this process reads no weights.
        log: The JSONL file to which records are appended.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says
            how to start one, whose output is logged to ``logs`` beside the stage's folder.

    Returns:
        The log with all ``len(problems) * settings.n`` responses.

    Raises:
        StageError: The server or the local sampler fails; responses so far stay in the log.
    """
    records = ResponseLog(log)
    dialogue = Dialogue(folder, settings)
    if dialogue.end_of_turn is not None and dialogue.end_of_turn not in dialogue.ends:
        context.warn(
            f"{folder}: eos_token_id {dialogue.ends} lacks the template's end of turn "
            f"{dialogue.template.end_of_turn!r} ({dialogue.end_of_turn}): responses may not stop."
        )
    try:
        if len(records) < len(problems) * settings.n:
            prompts = [dialogue.prompt(problem) for problem in problems]
            if settings.engine == "server":
                from pcl_reasoner.inference.client import ask_servers

                ask_servers(prompts, dialogue, records, context, log_beside(log.parent, "server"))
            else:
                draw_locally(prompts, dialogue, records, context)
    except BaseException:
        records.close()
        raise
    if records.failed:
        context.warn(f"{records.failed} of {len(records)} responses failed and count as incorrect.")
    return records


def log_beside(output: Path, kind: str) -> Path:
    """Return the path of a stage's server log, e.g. ``logs/sample-1a2b3c4d.server.log``.

    Args:
        output: The folder that the stage writes to; ``logs`` is beside it.
        kind: ``server`` or ``judge``.
    """
    return output.parent / "logs" / f"{output.name.removesuffix('.partial')}.{kind}.log"


def describe(settings: SamplingConfig, folder: Path) -> dict[str, Any]:
    """Return all sampling fields, and hashes of model and template, for sampling.json.

    The model's fingerprint covers the SHA-256 of config.json and of the safetensors files.
    """
    files = [folder / "config.json", *weight_files(folder)]
    template = load_template(folder, settings.template)
    fields = settings.model_dump(mode="json", include=set(SamplingConfig.model_fields))
    return {
        **fields,
        "model_fingerprint": fingerprint({path.name: hash_file(path) for path in files}),
        "template_sha256": fingerprint(template.source),
        "end_tokens": end_tokens(folder),
    }


def draw_locally(
    prompts: list[Prompt], dialogue: Dialogue, records: ResponseLog, context: StageContext
) -> None:
    """Draw with the local sampler, in batches that are the same in every run.

    A batch with a missing response is drawn completely, and only the missing responses are added.
    Therefore an interrupted run ends with the same bytes as an uninterrupted one.

    Args:
        prompts: All prompts, including those whose responses are in the log already.
        dialogue: The model's tokenizer and template, with the sampling fields.
        records: The log that receives the responses.
        context: Receives progress.
    """
    from pcl_reasoner.local_sampler.sampler import LocalSampler

    settings = dialogue.settings
    sampler = LocalSampler(dialogue.folder)
    longest = min(settings.max_model_len, sampler.shape.max_position_embedding)
    limits = {prompt.problem_id: dialogue.response_limit(prompt, longest) for prompt in prompts}
    fitting = {p.problem_id: p for p in prompts if limits[p.problem_id] > 0}
    indices = range(settings.n)
    # A prompt that leaves no tokens for a response fails: a server would refuse it, too.
    refused = [(name, index) for name in limits if name not in fitting for index in indices]
    records.add(record(key, "", [], "error", 0, None, "local") for key in refused)
    keys = sorted((name, index) for name in fitting for index in indices)
    starts = range(0, len(keys), settings.batch)
    batches = [keys[start : start + settings.batch] for start in starts]
    if not batches:
        return
    sampler.prepare(_layout(batches, fitting, limits))
    for batch in batches:
        if any(key not in records for key in batch):
            records.add(_draw_batch(sampler, batch, fitting, limits, dialogue))
        context.progress.update(len(records), len(prompts) * settings.n, "responses")


def _layout(batches: list[list[Key]], prompts: dict[str, Prompt], limits: dict[str, int]) -> Layout:
    """Return array sizes large enough for every batch, so that only two graphs are compiled."""
    from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout

    longest = max(len(prompt.ids) for prompt in prompts.values())
    slots = -(-longest // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
    return Layout(
        prompts=max(len({name for name, _ in batch}) for batch in batches),
        prompt_slots=slots,
        rows=len(batches[0]),
        slots=slots + max(limits[name] for name in prompts),
    )


def _draw_batch(
    sampler: LocalSampler,
    batch: list[Key],
    prompts: dict[str, Prompt],
    limits: dict[str, int],
    dialogue: Dialogue,
) -> list[Record]:
    from pcl_reasoner.local_sampler.sampler import Row

    settings = dialogue.settings
    names = sorted({name for name, _ in batch})
    rows = [Row(names.index(key[0]), stream_seed(settings.seed, *key)) for key in batch]
    ids = [prompts[name].ids for name in names]
    row_limits = [limits[name] for name, _ in batch]
    drawn = sampler.sample(ids, rows, row_limits, settings)
    records = []
    for key, row, one in zip(batch, rows, drawn, strict=True):
        response = dialogue.response(one.token_ids, one.finish_reason)
        kept = (response, one.token_ids, one.finish_reason, row.seed)
        records.append(record(key, *kept, seconds=None, server="local"))
    return records
