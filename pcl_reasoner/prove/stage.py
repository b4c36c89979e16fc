"""Stage ``prove``: the servers compute what the trained checkpoint computes.

Stored prompts and responses go to every server, which returns the log-probs of all their tokens.
They are compared, token by token, with a pass of the checkpoint that ``train`` wrote, through
MindFormers. The exported folder is what the servers load; our pass never reads it.

    prove: {inputs: {samples: tokenize, checkpoint: train, policy: policy, model: export}}
    -> proof.json {"proved": true, "checkpoint": "9f86d0…", "weights": "1c8a44…", "limits": {…},
        "servers": [
           {"url": "http://a:8000/v1", "version": "0.32.0", "model": "/runs/…/export-1a2b3c4d",
            "difference": {"tokens": 1834, "mean": 2.1e-06, "p99": 9.3e-06, "largest": 3e-05, …}}]}

    -> texts.parquet    the texts, with the checkpoint's log-probs: later stages of this model
                        compare every start of their servers with them (recheck)

If they differ, each suspect (suspects.py) is applied to our pass, and the one that gives the
server's numbers is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.prove.config import ProveConfig

if TYPE_CHECKING:
    from pcl_reasoner.inference.dialogue import Dialogue, Prompt
    from pcl_reasoner.prove.by_server import Served
    from pcl_reasoner.prove.passes import Passes
    from pcl_reasoner.prove.suspects import Suspect

QUESTION = "Tom has 3 apples. He gets 5 more. How many apples has he now?"
"""The problem of the prompt with which chat templates are compared."""


def prove(
    config: ProveConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Compare what servers compute with the trained checkpoint; write proof.json, texts.parquet.

    Args:
        config: The settings.
        inputs: ``samples`` (tokenize), ``checkpoint`` (train or rl), ``policy`` (the Hugging Face
            folder that training started from), ``model`` (export). Optional: ``earlier``, other
            weights that a server may have by mistake, one or several.
        output: The stage's folder.
        context: ``placement.server_urls`` or ``placement.sampling``, for the engine ``server``.

    Raises:
        StageError: A server serves another folder, has another chat template, or computes other
            log-probs; the message names the cause if a suspect reproduces them.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.prove.message import figures
    from pcl_reasoner.prove.suspects import AS_TRAINED
    from pcl_reasoner.recheck.difference import difference
    from pcl_reasoner.recheck.texts import PROOF, write_texts
    from pcl_reasoner.sample.generate import log_beside
    from pcl_reasoner.train.worker import remove_tree
    from pcl_reasoner.weights.identity import weights_hash

    passes = _passes(config, inputs, output, context)
    (ours,) = passes.values([AS_TRAINED])
    limits = config.accepted()
    proved = []
    for served in _served(config, passes, inputs, context, log_beside(output, "server")):
        found = difference(served.values, ours)
        if not found.within(limits):
            _fail(config, passes, served, inputs, log_beside(output, "proof"))
        proved.append(figures(served.facts, found, [], limits))
    remove_tree(passes.work)
    count, weights = len(passes.segments), weights_hash(inputs["model"])
    facts = {"proved": True, "checkpoint": passes.identity, "weights": weights, "segments": count}
    facts |= {"limits": limits.model_dump(), "servers": proved}
    write_json(output / PROOF, facts)
    write_texts(output, passes.segments, ours)
    worst = max((one["difference"] for one in proved), key=lambda one: one["mean"])
    info = {name: worst[name] for name in ("tokens", "mean", "p99", "largest")}
    info |= {"engine": config.engine, "servers": len(proved)}
    return Counts(unit="responses", read=count, kept=count, info=info)


def _passes(
    config: ProveConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Passes:
    from pcl_reasoner.core.artifact import fingerprint, hash_file
    from pcl_reasoner.prove.passes import Passes
    from pcl_reasoner.prove.stored import stored_segments
    from pcl_reasoner.sample.generate import log_beside
    from pcl_reasoner.weights.conversion import shape_in
    from pcl_reasoner.weights.names import match, styled
    from pcl_reasoner.weights.slices import complete_files, open_checkpoint

    checkpoint, policy = inputs["checkpoint"], inputs["policy"]
    found = open_checkpoint(checkpoint)
    names = match(found, shape_in(policy), "mindformers", checkpoint).names
    tensors = {styled(name, "mindformers"): found[stored] for name, stored in names.items()}
    hashes = [hash_file(file) for file in complete_files(checkpoint)]
    return Passes(
        config=config,
        tensors=tensors,
        identity=fingerprint(hashes),
        policy=policy,
        segments=stored_segments(inputs["samples"], config.segments, config.seq_length),
        work=output / "work",
        log=log_beside(output, "model"),
        context=context,
    )


def _served(
    config: ProveConfig,
    passes: Passes,
    inputs: Mapping[str, Path],
    context: StageContext,
    log: Path,
) -> list[Served]:
    """Return what every server computed, or the local sampler."""
    from pcl_reasoner.prove.by_server import Asking, Served

    passes.work.mkdir(parents=True, exist_ok=True)
    if config.engine == "local":
        from pcl_reasoner.local_sampler.given_tokens import log_probs_of_given

        tokens = passes.segments["input_ids"].to_pylist()
        found = log_probs_of_given(inputs["model"], tokens)
        return [Served({"url": "local", "model": str(inputs["model"])}, found)]
    trained = trained_prompt(inputs["checkpoint"], inputs["policy"], passes.work)
    asking = Asking(config, passes.segments, inputs["model"], trained, passes.work, context)
    return asking.ask_all(log)


def trained_prompt(checkpoint: Path, policy: Path, folder: Path) -> tuple[Prompt, Dialogue]:
    """Return a prompt as training rendered it, by the checkpoint's prompt.json.

    Args:
        checkpoint: Has prompt.json; without one, the policy's own template holds.
        policy: Has the tokenizer and the template.
        folder: Folder for a template that training used instead.
    """
    from pcl_reasoner.inference.dialogue import Dialogue, Problem
    from pcl_reasoner.inference.settings import SamplingConfig
    from pcl_reasoner.prompt.model_files import read_json
    from pcl_reasoner.prompt.trained import PROMPT

    known = checkpoint / PROMPT
    prompt = read_json(known) if known.is_file() else {"system": None, "suffix": ""}
    template = folder / "trained.jinja" if prompt.get("template") else None
    if template:
        template.write_text(str(prompt["template"]), encoding="utf-8")
    words = {"system": prompt["system"], "suffix": prompt["suffix"]}
    settings = SamplingConfig(**words, template=str(template) if template else None)
    dialogue = Dialogue(policy, settings)
    return dialogue.prompt(Problem("proof", QUESTION)), dialogue


def _fail(
    config: ProveConfig, passes: Passes, served: Served, inputs: Mapping[str, Path], file: Path
) -> None:
    """Find the cause of a difference, write all figures, and raise the error."""
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.prove.cause import find_cause
    from pcl_reasoner.prove.message import failure, figures
    from pcl_reasoner.prove.suspects import AS_TRAINED
    from pcl_reasoner.recheck.difference import difference

    limits = config.accepted()
    trained = difference(served.values, passes.values([AS_TRAINED])[0])
    suspects = _suspects(served, inputs) if config.suspects else ()
    tried, untried = [], "suspects: false"
    try:
        tried = find_cause(passes, served.values, trained, limits, suspects)
    except StageError as error:  # e.g. servers hold the devices that a pass needs
        untried = f"a pass failed: {error}"
    details = file.with_suffix(".json")
    details.parent.mkdir(parents=True, exist_ok=True)
    write_json(details, {"proved": False, **figures(served.facts, trained, tried, limits)})
    name = served.facts["url"]
    name = f"the local sampler with {served.facts['model']}" if name == "local" else name
    facts = (name, trained, len(passes.segments), limits, tried, details, untried)
    raise StageError(failure(*facts))


def _suspects(served: Served, inputs: Mapping[str, Path]) -> Iterable[list[Suspect]]:
    from pcl_reasoner.prompt.model_files import read_json
    from pcl_reasoner.prove.cause import other_weights
    from pcl_reasoner.prove.suspects import groups
    from pcl_reasoner.stages import inputs_of
    from pcl_reasoner.weights.conversion import shape_in

    earlier = {
        f"the weights {name}" if name == "earlier" else name: path
        for name, path in inputs_of(inputs, "earlier").items()
    }
    # The server's own folder, if this machine has it: its settings may not be the export's.
    root = Path(str(served.facts.get("model"))) / "config.json"
    config: dict[str, Any] = read_json(root if root.is_file() else inputs["model"] / "config.json")
    policy = inputs["policy"]
    return groups(shape_in(policy), config, other_weights(policy, earlier))
