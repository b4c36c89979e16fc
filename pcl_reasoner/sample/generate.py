"""Draws n responses per problem, for the stages ``sample`` and ``evaluate``.

    Problem("5c18d5f0a1b2c3d4", "Tom has 3 apples …"), n = 8
    -> keys ("5c18d5f0a1b2c3d4", 0) … ("5c18d5f0a1b2c3d4", 7), one record each (response_log.py)

Records are appended as they arrive, and a response that is recorded is not requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.prompt.template import load_template
from pcl_reasoner.weights.identity import weights_hash
from pcl_reasoner.weights.model_config import end_tokens


def generate(
    problems: Sequence[Problem],
    settings: SamplingConfig,
    folder: Path,
    log: Path,
    context: StageContext,
    proof: Path | None = None,
) -> ResponseLog:
    """Draw every response that is not in the log yet.

    Args:
        problems: Problems with distinct ids, in an order that is the same in every run.
        settings: The sampling fields.
        folder: The model's Hugging Face folder; with a server, this process reads no weights.
        log: The JSONL file to which records are appended.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says
            how to start one, whose output is logged to ``logs`` beside the stage's folder.
        proof: What a stage `prove` of this model wrote; every start of a server is compared with
            it before the first request. None: nothing is compared.

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
                _ask(prompts, dialogue, records, context, proof)
            else:
                from pcl_reasoner.sample.local import draw_locally

                draw_locally(prompts, dialogue, records, context)
                _check_room(records, len(prompts) * settings.n, settings)
    except BaseException:
        records.close()
        raise
    if records.failed:
        context.warn(f"{records.failed} of {len(records)} responses failed and count as incorrect.")
    return records


def _check_room(records: ResponseLog, total: int, settings: SamplingConfig) -> None:
    """Check the share of responses that have no room; the client checks those of servers.

    Raises:
        StageError: It is above ``max_failed``.
    """
    if records.failed > settings.max_failed * total:
        raise StageError(
            f"{records.failed} of {total} responses have no room after their prompts within "
            f"max_model_len {settings.max_model_len} and the model's context, the limit is "
            f"max_failed {settings.max_failed:.0%}. Raise max_model_len, or leave these problems "
            "out, or raise max_failed: each then counts as wrong."
        )


def _ask(
    prompts: list[Prompt],
    dialogue: Dialogue,
    records: ResponseLog,
    context: StageContext,
    proof: Path | None,
) -> None:
    from pcl_reasoner.inference.client import ask_servers
    from pcl_reasoner.recheck.starts import recheck_of

    weights = recheck_of(proof, dialogue.folder, dialogue.settings, records.add_compared)
    log = log_beside(records.path.parent, "server")
    ask_servers(prompts, dialogue, records, context, log, weights)


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
    model_fingerprint = weights_hash(folder)
    template = load_template(folder, settings.template)
    fields = settings.model_dump(mode="json", include=set(SamplingConfig.model_fields))
    return {
        **fields,
        "model_fingerprint": model_fingerprint,
        "template_sha256": fingerprint(template.source),
        "end_tokens": end_tokens(folder),
    }
