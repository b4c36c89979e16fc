"""A small real tokenizer and model folder, samples of given lengths, and drawn lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pcl_reasoner.core.schemas import SEGMENTS

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXT = ["system user assistant <think> </think> <answer> \\boxed{12} 1 + 1 = 2 Ben has books."]


def write_model(folder: Path, template: str = CHATML, **config: Any) -> Path:
    """A base model's folder: its eos_token is not what ends a turn."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": template,
        "eos_token": "<|endoftext|>",
        "pad_token": {"__type": "AddedToken", "content": "<|endoftext|>", "special": True},
        **config,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "vocab_size": 320}))
    return folder


def samples(lengths: list[int], prompt: int = 1) -> pa.Table:
    """Samples as tokenize writes them; token j of sample i is 1000 i + j + 1."""
    rows = []
    for number, length in enumerate(lengths):
        ids = [1000 * number + place + 1 for place in range(length)]
        rows.append(
            {
                "problem_id": f"p{number}",
                "sample_index": number % 8,
                "input_ids": ids,
                "labels": [-100] * prompt + ids[prompt:],
                "length": length,
                "reward": (number % 4) / 4,
                "pass_rate": 0.5,
                "advantage": (number % 3) - 1.0,
            }
        )
    return pa.Table.from_pylist(rows, schema=SEGMENTS)


def log_normal(number: int, mean: float, sigma: float, seq_length: int) -> np.ndarray:
    """[number] lengths from 200 to a row; what falls outside is drawn again."""
    draws = np.random.default_rng(1)
    found = np.empty(0, np.int64)
    while len(found) < number:
        more = draws.lognormal(np.log(mean) - sigma**2 / 2, sigma, number).astype(np.int64)
        found = np.concatenate([found, more[(more >= 200) & (more <= seq_length)]])
    return found[:number]
