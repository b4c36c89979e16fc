"""What ``sample`` and ``evaluate`` share: draw n responses per problem with given settings.

    Problem("5c18d5f0a1b2c3d4", "Tom has 3 apples …"), n = 8
    -> keys ("5c18d5f0a1b2c3d4", 0) … ("5c18d5f0a1b2c3d4", 7), one record each (response_log.py)

Records are appended as they arrive, and a response that is recorded is not requested again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.response_log import ResponseLog, record
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.prompt.template import load_template
from pcl_reasoner.weights.model_config import end_tokens
from pcl_reasoner.weights.stream import weight_files

if TYPE_CHECKING:
    from pcl_reasoner.local_sampler.draw import Filters
    from pcl_reasoner.local_sampler.sampler import LocalSampler


def generate(
    problems: Sequence[Problem],
    settings: SamplingConfig,
    folder: Path,
    log: Path,
    context: StageContext,
) -> ResponseLog:
    """Draw every response that is not in the log yet.

    Args:
        problems: Distinct by id, in an order that is the same in every run.
        settings: The sampling fields.
        folder: The model's Hugging Face folder; with a server, for its template and tokenizer.
        log: The JSONL file to which records are appended.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says
            how to start one. Its output is logged to ``logs`` beside the stage's folder.

    Returns:
        The log with all ``len(problems) * settings.n`` responses.

    Raises:
        StageError: An engine cannot work; responses drawn so far stay in the log.
    """
    records = ResponseLog(log)
    dialogue = Dialogue(folder, settings)
    if dialogue.end_of_turn is not None and dialogue.end_of_turn not in dialogue.ends:
        context.warn(
            f"{folder}: eos_token_id {dialogue.ends} does not have the template's end of turn "
            f"{dialogue.template.end_of_turn!r} ({dialogue.end_of_turn}): responses may run on."
        )
    try:
        if len(records) < len(problems) * settings.n:
            prompts = [dialogue.prompt(problem) for problem in problems]
            if settings.engine == "server":
                from pcl_reasoner.inference.client import ask_servers

                words = log.parent.parent / "logs" / f"{_title(log.parent)}.server.log"
                ask_servers(prompts, settings, dialogue, records, context, folder, words)
            else:
                draw_locally(prompts, settings, folder, dialogue, records, context)
    except BaseException:
        records.close()
        raise
    if records.failed:
        context.warn(f"{records.failed} of {len(records)} responses failed and count as incorrect.")
    return records


def _title(output: Path) -> str:
    """The stage's title, e.g. ``sample-1a2b3c4d``, from the folder that it writes to."""
    return output.name.removesuffix(".partial")


def describe(settings: SamplingConfig, folder: Path) -> dict[str, Any]:
    """What was sampled and how, for sampling.json: model, template and every sampling field.

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
    prompts: list[Prompt],
    settings: SamplingConfig,
    folder: Path,
    dialogue: Dialogue,
    records: ResponseLog,
    context: StageContext,
) -> None:
    """Draw with the local sampler, in batches that are the same in every run.

    A batch that lacks any response is drawn completely, and only the missing responses are added.
    Therefore an interrupted run ends with the same bytes as an uninterrupted one.

    Args:
        prompts: All prompts, whether drawn already or not.
        settings: The sampling fields.
        folder: The model's Hugging Face folder.
        dialogue: The model's tokenizer and template.
        records: The log that receives the responses.
        context: Receives progress.
    """
    from pcl_reasoner.local_sampler.draw import Filters
    from pcl_reasoner.local_sampler.sampler import LocalSampler

    sampler = LocalSampler(folder)
    longest = min(settings.max_model_len, sampler.shape.max_position_embedding)
    rooms = {prompt.problem_id: dialogue.room(prompt, longest) for prompt in prompts}
    records.add(_too_long(rooms, settings.n))
    fitting = {p.problem_id: p for p in prompts if rooms[p.problem_id] > 0}
    keys = sorted((name, index) for name in fitting for index in range(settings.n))
    batches = [keys[at : at + settings.batch] for at in range(0, len(keys), settings.batch)]
    if not batches:
        return
    sampler.prepare(_layout(batches, fitting, rooms, settings.batch))
    filters = Filters(
        settings.temperature,
        settings.top_k,
        settings.top_p,
        settings.min_p,
        settings.repetition_penalty,
    )
    for batch in batches:
        if any(key not in records for key in batch):
            records.add(_draw_batch(sampler, batch, fitting, rooms, filters, settings, dialogue))
        context.progress.update(len(records), len(prompts) * settings.n, "responses")


def _too_long(rooms: dict[str, int], n: int) -> Iterator[Record]:
    """Records of prompts that leave no tokens for a response: failed, as a server refuses them."""
    for name, room in rooms.items():
        if room < 1:
            yield from (record((name, i), "", [], "error", 0, None, "local") for i in range(n))


def _layout(
    batches: list[list[Key]], prompts: dict[str, Prompt], rooms: dict[str, int], rows: int
) -> Any:
    """One layout for all batches, so that two graphs serve them all."""
    from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout

    longest = max(len(prompt.ids) for prompt in prompts.values())
    slots = -(-longest // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
    return Layout(
        prompts=max(len({name for name, _ in batch}) for batch in batches),
        prompt_slots=slots,
        rows=min(rows, len(batches[0])),
        slots=slots + max(rooms[name] for name in prompts),
    )


def _draw_batch(
    sampler: LocalSampler,
    batch: list[Key],
    prompts: dict[str, Prompt],
    rooms: dict[str, int],
    filters: Filters,
    settings: SamplingConfig,
    dialogue: Dialogue,
) -> list[Record]:
    from pcl_reasoner.local_sampler.draw import stream_seed
    from pcl_reasoner.local_sampler.sampler import Row

    names = sorted({name for name, _ in batch})
    seeds = [stream_seed(settings.seed, *key) for key in batch]
    rows = [Row(names.index(key[0]), seed) for key, seed in zip(batch, seeds, strict=True)]
    ids = [prompts[name].ids for name in names]
    drawn = sampler.sample(ids, rows, [rooms[name] for name, _ in batch], filters)
    return [
        record(
            key,
            dialogue.response(one.token_ids, one.finish_reason),
            one.token_ids,
            one.finish_reason,
            seed,
            None,
            "local",
        )
        for key, seed, one in zip(batch, seeds, drawn, strict=True)
    ]
