"""A train stage's run made again by transformers and PyTorch, from its YAML and its batches.

    python benchmarks/torch_replay.py mindformers.yaml batches.npz POLICY out.json [logits.npy]

The batches are those that MindFormers' own data pipeline gave to the model (see
mindformers_side.py). Nothing else is shared with our code: mask, schedule, losses, decay groups,
clipping and AdamW are written anew or PyTorch's own.

One JSON record a step: loss, learning rate, gradient norm, seconds.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import yaml
from transformers import AutoModelForCausalLM

Batch = dict[str, torch.Tensor]


def read_batches(path: Path) -> list[Batch]:
    """Batches as mindformers_side.py saved them: every column [steps, rows, …]."""
    with np.load(path) as stored:
        columns = {name: torch.from_numpy(stored[name]) for name in stored.files}
    steps = len(columns["input_ids"])
    return [{name: values[step] for name, values in columns.items()} for step in range(steps)]


def allowed(segment_ids: torch.Tensor) -> torch.Tensor:
    """[B, S] -> [B, 1, S, S], true where a token may look: not later, and in its own segment."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return same.tril()[:, None]


def label_log_probs(model: Any, batch: Batch) -> torch.Tensor:
    """log π of each label, [B, S]; 0 where none is trained."""
    mask = allowed(batch["segment_ids"])
    if "attention_mask" in batch and not torch.equal(batch["attention_mask"] == 0, mask):
        raise ValueError("the batch's mask is not the mask of its segments")
    logits = model(
        input_ids=batch["input_ids"].long(),
        attention_mask=mask,
        position_ids=batch["position_ids"].long(),
        use_cache=False,
    ).logits
    labels = batch["labels"].long()
    chosen = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0] - logits.logsumexp(-1)
    return chosen * (labels != -100)


def loss_of(name: str, model: Any, batch: Batch) -> torch.Tensor:
    """SFT or OPG of a batch, by the weights that the batch brings."""
    log_probs = label_log_probs(model, batch)
    if name == "sft":
        return -(batch["token_weights"] * log_probs).sum()
    if name != "opg":
        raise ValueError(f"loss {name}: only sft and opg are written down here")
    total = log_probs.new_zeros(())
    for row in range(len(log_probs)):
        for place in batch["segment_weights"][row].nonzero()[:, 0]:
            inside = (batch["segment_ids"][row] == place) & (batch["labels"][row] != -100)
            p = log_probs[row][inside].mean().exp()
            reward = batch["rewards"][row, place]
            loss = reward * (1 - p) + (1 - reward) * p
            total = total + batch["segment_weights"][row, place] * loss
    return total


def learning_rate(config: dict[str, Any], step: int, steps: int) -> float:
    """Linear warm-up from 0, then half a cosine; the step counts from 0."""
    schedule = config["lr_schedule"]
    top, end = schedule["learning_rate"], schedule["lr_end"]
    warm = int(steps * schedule["warmup_ratio"])
    if step < warm:
        return float(top * step / warm)
    progress = (step - warm) / max(1, steps - warm)
    return float(end + (top - end) * 0.5 * (1 + math.cos(math.pi * progress)))


def optimizer_of(config: dict[str, Any], model: Any) -> torch.optim.AdamW:
    """AdamW; vectors (biases, norms) do not decay."""
    settings = config["optimizer"]
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for value in model.parameters():
        groups[value.ndim > 1].append(value)
    return torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": settings["weight_decay"]},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=settings["learning_rate"],
        betas=tuple(settings["betas"]),
        eps=settings["eps"],
        fused=False,
    )


def clip(parameters: list[Any], largest: float) -> float:
    """Scale gradients so that their global norm is at most this; the norm before.

    As torch.nn.utils.clip_grad_norm_, but summed in float64: of 136 million float32 numbers (this
    vocabulary's embedding) PyTorch's own norm on a CPU is 1.5 % too small.
    """
    norms = [torch.linalg.vector_norm(it.grad, dtype=torch.float64) for it in parameters]
    norm = torch.stack(norms).norm().item()
    for parameter in parameters:
        parameter.grad.mul_(min(1.0, largest / (norm + 1e-6)))
    return norm


def replay(config: dict[str, Any], model: Any, batches: list[Batch]) -> Iterator[dict[str, float]]:
    """Train the model on the batches; a record a step.

    Args:
        config: The rendered MindFormers YAML.
        model: transformers' model, changed in place.
        batches: Of all steps.
    """
    optimizer = optimizer_of(config, model)
    wrapper = config["runner_wrapper"]
    largest = wrapper["max_grad_norm"] if wrapper["use_clip_grad"] else math.inf
    for step, batch in enumerate(batches):
        started = time.perf_counter()
        rate = learning_rate(config, step, len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(config["model"]["model_config"]["loss"], model, batch)
        loss.backward()
        norm = clip(list(model.parameters()), largest)
        optimizer.step()
        record = {"step": step + 1, "loss": loss.item(), "learning_rate": rate}
        yield record | {"grad_norm": norm, "seconds": time.perf_counter() - started}


def read_model(policy: Path) -> Any:
    """The policy in float32, with PyTorch's own attention."""
    model = AutoModelForCausalLM.from_pretrained(
        policy, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.train()


def logits_of(model: Any, batch: Batch) -> npt.NDArray[np.float32]:
    """[B, S, V] float32 of a batch."""
    with torch.no_grad():
        found = model(
            input_ids=batch["input_ids"].long(),
            attention_mask=allowed(batch["segment_ids"]),
            position_ids=batch["position_ids"].long(),
            use_cache=False,
        )
    return found.logits.numpy()


def main(config_file: str, batch_file: str, policy: str, output: str, logits: str = "") -> None:
    """Replay a run in this process."""
    config = yaml.safe_load(Path(config_file).read_text(encoding="utf-8"))
    batches = read_batches(Path(batch_file))
    model = read_model(Path(policy))
    records = list(replay(config, model, batches))
    Path(output).write_text(json.dumps(records), encoding="utf-8")
    if logits:
        np.save(logits, logits_of(model, batches[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
