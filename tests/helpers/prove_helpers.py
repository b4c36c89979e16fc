"""A trained checkpoint, its exported folder, and folders with one seeded fault each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from log_prob_server import LogProbServer, answer_with
from safetensors.numpy import load_file, save_file
from train_helpers import VOCABULARY, write_policy

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.prove.stage import prove
from pcl_reasoner.weights.conversion import write_mindformers

LAYERS, LENGTH, BASE, EPSILON = 2, 128, 1e6, 1e-6
CONFIG = {
    "seq_length": LENGTH,
    "max_segments": 4,
    "segments": 4,
    "device": "CPU",
    "precision": "float32",
    "compressed_mask": False,
}


def edit(folder: Path, **config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def change(folder: Path, change_weights: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change_weights(weights)
    save_file(weights, file, metadata={"format": "pt"})


def drifted(folder: Path, seed: int, share: float) -> None:
    """Weights after some training: each has moved by a share of its size."""
    draw = np.random.default_rng(seed)

    def move(weights: dict[str, Any]) -> None:
        for name, value in weights.items():
            noise = draw.standard_normal(value.shape).astype(np.float32)
            weights[name] = value + share * np.abs(value).mean() * noise

    change(folder, move)


class Trained:
    """The inputs of the stage: a policy, what training made of it, and stored responses."""

    def __init__(self, root: Path, tied: bool = False) -> None:
        self.root = root
        # Four query heads in two groups, each of 32: vLLM on a CPU has no smaller ones.
        self.policy = write_policy(root / "policy", tied=tied, layers=LAYERS, hidden=128)
        edit(self.policy, rope_theta=BASE, rms_norm_eps=EPSILON)
        # Small hidden states: epsilon matters, as it does for the small norms of real models.
        change(self.policy, shrink_embedding)
        self.export = self.copy("export")
        drifted(self.export, seed=1, share=0.3)
        self.earlier = self.copy("earlier")
        drifted(self.earlier, seed=2, share=0.2)
        checkpoint = root / "train" / "checkpoint"
        checkpoint.mkdir(parents=True)
        write_mindformers(self.export, checkpoint / "model.safetensors")
        self.samples = write_stored(root / "tokenize", [5, 40, 90, LENGTH - 8])

    def copy(self, name: str, source: Path | None = None) -> Path:
        return Path(shutil.copytree(source or self.policy, self.root / name))

    def inputs(self, model: Path | None = None) -> dict[str, Path]:
        return {
            "samples": self.samples,
            "checkpoint": self.root / "train",
            "policy": self.policy,
            "model": model or self.export,
            "earlier": self.earlier,
        }

    def prove(self, output: Path, model: Path, config: dict[str, Any], **placement: Any) -> Counts:
        output.mkdir(parents=True)
        context = StageContext(
            name="prove",
            quarantined=output / "quarantined.jsonl",
            placement=Placement(**placement),
            cache=self.root / "cache",
        )
        settings = ProveConfig(**CONFIG | config)
        return prove(settings, self.inputs(model), output, context)

    def faulty(self, name: str, fault: Callable[[Trained, Path], None]) -> Path:
        folder = self.copy(name, self.export)
        fault(self, folder)
        return folder


def shrink_embedding(weights: dict[str, Any]) -> None:
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"] * 0.05


def write_stored(folder: Path, sizes: list[int]) -> Path:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(7)
    rows = []
    for index, size in enumerate(sizes):
        ids = draw.integers(3, VOCABULARY, size).tolist()
        labels = [-100, -100, *ids[2:]]
        row = {"problem_id": f"p{index}", "sample_index": 0, "input_ids": ids, "labels": labels}
        rows.append({**row, "length": size, "reward": 1.0, "pass_rate": 0.5})
    table = pa.Table.from_pylist(rows, schema=SEGMENTS)
    write_arrow_folder(folder, SEGMENTS, table.to_batches())
    (folder / "meta.json").write_text(json.dumps({"pad_token_id": 0}))
    return folder


def swap_heads(trained: Trained, folder: Path) -> None:
    """Query heads 0 and 2 in the place of each other, in every layer."""

    def swap(weights: dict[str, Any]) -> None:
        heads = json.loads((folder / "config.json").read_text())["num_attention_heads"]
        for name, value in weights.items():
            if ".q_proj." in name:
                parts = np.split(value, heads)
                parts[0], parts[2] = parts[2], parts[0]
                weights[name] = np.concatenate(parts)

    change(folder, swap)


def split_by_group(trained: Trained, folder: Path) -> None:
    """A joined matrix of queries, keys and values, split as if it was joined group by group."""
    config = json.loads((folder / "config.json").read_text())
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]

    def split(weights: dict[str, Any]) -> None:
        for layer in range(config["num_hidden_layers"]):
            for kind in ("weight", "bias"):
                names = [f"model.layers.{layer}.self_attn.{one}_proj.{kind}" for one in "qkv"]
                joined = np.split(
                    np.concatenate([weights[name] for name in names]), heads + 2 * groups
                )
                each = heads // groups
                grouped = [joined[g * (each + 2) : (g + 1) * (each + 2)] for g in range(groups)]
                weights[names[0]] = np.concatenate([one for part in grouped for one in part[:each]])
                weights[names[1]] = np.concatenate([part[each] for part in grouped])
                weights[names[2]] = np.concatenate([part[each + 1] for part in grouped])

    change(folder, split)


def tie_head(trained: Trained, folder: Path) -> None:
    """config.json ties the head; its own weights are not used."""
    edit(folder, tie_word_embeddings=True)
    change(folder, lambda weights: weights.pop("lm_head.weight"))


def tied_values(trained: Trained, folder: Path) -> None:
    """The same as weights: the head holds the embedding."""

    def tie(weights: dict[str, Any]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()

    change(folder, tie)


def untie_head(trained: Trained, folder: Path) -> None:
    """The head is a tensor of its own, which has not followed the embedding in training."""
    before = load_file(trained.policy / "model.safetensors")["model.embed_tokens.weight"]
    edit(folder, tie_word_embeddings=False)
    change(folder, lambda weights: weights.update({"lm_head.weight": before}))


def other_base(trained: Trained, folder: Path) -> None:
    edit(folder, rope_theta=1e4)


def other_epsilon(trained: Trained, folder: Path) -> None:
    edit(folder, rms_norm_eps=1e-5)


def one_layer_of_another_step(trained: Trained, folder: Path) -> None:
    other = load_file(trained.earlier / "model.safetensors")
    start = f"model.layers.{LAYERS - 1}."
    change(
        folder,
        lambda weights: weights.update({k: v for k, v in other.items() if k.startswith(start)}),
    )


def policy_before(trained: Trained, folder: Path) -> None:
    shutil.copyfile(trained.policy / "model.safetensors", folder / "model.safetensors")


FAULTS: dict[str, tuple[Callable[[Trained, Path], None], str]] = {
    "heads swapped": (swap_heads, "query heads 0 and 2 swapped"),
    "joined matrix": (split_by_group, "a joined matrix of queries, keys, values, split by groups"),
    "head tied": (tied_values, "the embedding as output head, where training has a head"),
    "rope": (other_base, r"rotary base 10000, where training has 1e\+06"),
    "epsilon": (other_epsilon, "rms_norm_eps 1e-05, where training has 1e-06"),
    "layer": (one_layer_of_another_step, f"model.layers.{LAYERS - 1} of the weights earlier"),
    "before": (policy_before, "the weights of the policy before training"),
}
"""Name -> (how the folder is spoiled, what the stage must name)."""


class ModelServer(LogProbServer):
    """Answers with the log-probs that transformers computes with a folder, in float32."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()

        def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
            ids = body["prompt"]
            with torch.no_grad():
                found = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            entries: list[Any] = [None]
            for place, token in enumerate(ids[1:]):
                entries.append({str(token): {"logprob": found[place, token].item(), "rank": 1}})
            return 200, answer_with(entries)

        super().__init__(reply)
        self.models = [{"id": "policy", "max_model_len": 512, "root": str(folder)}]
