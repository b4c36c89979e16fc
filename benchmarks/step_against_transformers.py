"""A training step's time and peak memory: ours, transformers with sdpa, and TRL's packed SFT.

    python benchmarks/step_against_transformers.py [--length 512] [--rounds 5] [--shape small|0.5b]

The same weights, the same packed row, SFT, AdamW with clipping, float32 on a CPU. Each side has a
process of its own, which compiles and warms up, and then makes a step whenever this one asks: the
sides take turns, round after round, and the medians are compared. TRL's side calls the loss of its
own SFTTrainer on a batch of its own collator (padding-free, which packing with "bfd" uses); it is
left out where trl is not installed (requirements/benchmarks.txt).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import QWEN_05B, SMALL, drawn_lengths, machine, samples_of, write_job

from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.trainer.rows import model_row, trained_counts

PLACES = 16
RATE = 1e-5
Step = Callable[[], float]


def settings(length: int) -> TrainConfig:
    """SFT on one row a step."""
    return TrainConfig(
        loss="sft",
        seed=0,
        epochs=1,
        learning_rate=RATE,
        learning_rate_end=0.0,
        warmup_ratio=0.0,
        global_batch_size=1,
        seq_length=length,
        max_segments=PLACES,
        weight_decay=0.1,
        device="CPU",
        precision="float32",
        compressed_mask=False,
    )


def packed_row(vocabulary: int, length: int) -> dict[str, Any]:
    """The fullest row of a pack of drawn samples."""
    samples = samples_of(drawn_lengths(40, length / 5, length), vocabulary)
    packing = plan_packing(samples, length, PLACES, 0, 0)
    rows = [row for batch in packing.batches() for row in batch.to_pylist()]
    return max(rows, key=lambda row: (row["actual_seq_len"][-1], len(row["rewards"])))


def our_step(work: Path, row: dict[str, Any]) -> Step:
    """MindFormers' model and step with our loss, in graph mode."""
    from gradient_step import network_of, step_of, tensors
    from mindformers_side import prepare

    config = prepare(str(work / "mindformers.yaml"))
    step = step_of(config, network_of(config, work / "model.safetensors"))
    values = model_row(row, PLACES, 1.0, 1.0 / trained_counts(row)[1], False)
    named = {name: value[None] for name, value in values.items()}
    columns = tensors(named, list(config.train_dataset.construct_args_key))
    return lambda: float(step(*columns)[0].asnumpy())


def torch_step(work: Path, row: dict[str, Any]) -> Step:
    """transformers with sdpa and the mask of the row's segments; PyTorch's AdamW."""
    import torch
    from torch_replay import clip, loss_of, optimizer_of, read_model

    model = read_model(work / "policy")
    config = {"optimizer": {"learning_rate": RATE, "betas": (0.9, 0.95), "eps": 1e-8}}
    config["optimizer"]["weight_decay"] = 0.1
    optimizer = optimizer_of(config, model)
    values = model_row(row, PLACES, 1.0, 1.0 / trained_counts(row)[1], False)
    batch = {name: torch.from_numpy(value[None]) for name, value in values.items()}

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of("sft", model, batch)
        loss.backward()
        clip(list(model.parameters()), 1.0)
        optimizer.step()
        return loss.item()

    return step


def trl_step(work: Path, row: dict[str, Any]) -> Step:
    """TRL's SFTTrainer: its collator makes the padding-free batch, its loss is what is trained."""
    import torch
    from datasets import Dataset
    from torch_replay import clip, optimizer_of, read_model
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    model = read_model(work / "policy")
    ends = row["actual_seq_len"]
    starts = [0, *ends[:-1]]
    whole = {
        "input_ids": row["input_ids"][: ends[-1]],
        "labels": row["labels"][: ends[-1]],
        "seq_lengths": [end - start for start, end in zip(starts, ends, strict=True)],
    }
    arguments = SFTConfig(
        output_dir=str(work / "trl"),
        max_length=None,
        padding_free=True,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
    )
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([whole]),
        processing_class=_tokenizer(PreTrainedTokenizerFast, model.config.vocab_size),
    )
    batch = trainer.data_collator([whole])
    settings = {"learning_rate": RATE, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    optimizer = optimizer_of({"optimizer": settings}, model)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = trainer.compute_loss(model, dict(batch))
        loss.backward()
        clip(list(model.parameters()), 1.0)
        optimizer.step()
        return float(loss.detach())

    if not isinstance(batch["input_ids"], torch.Tensor):
        raise SystemExit("TRL's collator gave no tensors")
    return step


def _tokenizer(kind: Any, size: int) -> Any:
    """A tokenizer that is never asked: TRL wants one for its padding token."""
    from tokenizers import Tokenizer, models

    words = {"<pad>": 0, "<eos>": size - 1}
    return kind(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )


SIDES = {"ours": our_step, "transformers": torch_step, "trl": trl_step}


def serve(side: str, work: Path) -> None:
    """Make a step for each line on standard input; answer its loss, seconds and peak GiB."""
    import resource

    row = json.loads((work / "row.json").read_text(encoding="utf-8"))
    answers, sys.stdout = sys.stdout, sys.stderr
    step = SIDES[side](work, row)
    for _ in sys.stdin:
        started = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps([loss, seconds, peak]), file=answers, flush=True)


def ask(process: subprocess.Popen[str]) -> list[float]:
    """Have a side make one step: loss, seconds, peak GiB."""
    assert process.stdin and process.stdout
    process.stdin.write("step\n")
    process.stdin.flush()
    # Libraries write lines of their own before ours.
    for line in process.stdout:
        if line.startswith("[") and line.rstrip().endswith("]") and "INFO" not in line:
            return list(json.loads(line))
    raise SystemExit(f"{process.args!r}: ended before it answered")


def measure(work: Path, sides: list[str], rounds: int) -> dict[str, npt.NDArray[np.float64]]:
    """[rounds, 3] of each side: loss, seconds, peak GiB; the first two steps are left out."""
    started = {
        side: subprocess.Popen(
            [sys.executable, __file__, "--serve", side, "--work", str(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for side in sides
    }
    try:
        # One after the other: a side that compiles would slow the others.
        first = {side: [ask(process), ask(process)] for side, process in started.items()}
        for side, answers in first.items():
            print(f"{side:13} first losses {answers[0][0]:.6f}, {answers[1][0]:.6f}", flush=True)
        found: dict[str, list[list[float]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, process in started.items():
                found[side].append(ask(process))
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    return {side: np.array(values) for side, values in found.items()}


def main() -> None:
    """Measure and print a table; or be one side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512, help="tokens of the row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=["small", "0.5b"], default="small")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--serve", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.work)
        return
    shape = dict(SMALL if given.shape == "small" else QWEN_05B)
    shape["num_hidden_layers"] = given.layers or shape["num_hidden_layers"]
    sides = [side for side in SIDES if side != "trl" or importlib.util.find_spec("trl")]
    names = ["mindspore", "mindformers", "torch", "transformers"]
    print(machine(*names, *(["trl"] if "trl" in sides else [])))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_job(work, shape, settings(given.length))
        row = packed_row(shape["vocab_size"], given.length)
        (work / "row.json").write_text(json.dumps(row), encoding="utf-8")
        print(f"{shape}; one row of {given.length} tokens, {len(row['rewards'])} segments, float32")
        found = measure(work, sides, given.rounds)
    base = np.median(found["transformers"][:, 1])
    for side, values in found.items():
        seconds, peak = np.median(values[:, 1]), values[:, 2].max()
        spread = f"{values[:, 1].min():.2f} to {values[:, 1].max():.2f}"
        print(
            f"{side:13} {seconds:6.2f} s a step ({spread}), {seconds / base:.2f} times "
            f"transformers'; peak {peak:.2f} GiB, "
            f"{peak / found['transformers'][:, 2].max():.2f} times"
        )


if __name__ == "__main__":
    main()
