"""The stage ``rl`` on a policy that chooses its next token by the last one, and problems for it.

The policy's answers begin with ``<think></think>``, whatever the problem is. Then they are, at
random, a boxed 8 or 7, two animals with or without a comma, a greeting, or a program that adds 1 or
2. So each response to each problem is right or wrong by chance, and all weights have a gradient.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from rl_helpers import Row, rl_settings, write_clean
from safetensors.numpy import load_file, save_file
from sandbox_helpers import PYTHON

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.rl.stage import rl
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.sandbox.pool import problem_of
from pcl_reasoner.synthetic.base_model import write_model_folder
from pcl_reasoner.synthetic.bigrams import write_scorer

HAS_SANDBOX = problem_of("unshare", PYTHON) is None
CASES = [{"args": [3], "out": 4}, {"args": [5], "out": 6}]
CODE = {"tests": {"format": "functional", "entry": "f", "cases": CASES}}
WORDS = {"instructions": [{"id": "punctuation:no_comma", "kwargs": {}}]}
FORMS = {
    "\\boxed{8}": 4,
    "\\boxed{7}": 2,
    "dog cat": 2,
    "dog, cat": 4,
    "dog cat cat": 1,
    " hello Ben": 2,
    # Other tokens begin and end a block: after one token there is one way on.
    "```python\r\ndef f(x): return x+1\n\n````": 5,
    "```python\r\ndef f(x): return x+2\n\n````": 2,
}
"""What follows the think part, and how often."""
REPEATS = 20
"""So often are the forms counted: then other pairs of tokens are rare."""
NOISE = 0.003


def write_policy(folder: Path, seed: int = 0) -> Path:
    """The policy's Hugging Face folder."""
    texts = [f"\n<think></think>{form}<|im_end|>" for form in FORMS for _ in range(FORMS[form])]
    problems = ["Add 7 and 1. Name two animals. Write f. Greet Ben."]
    base = folder.with_name(f"{folder.name}_base")
    write_model_folder(base, [*texts, *problems] * 9, 320, hidden=32, layers=1, seed=0)
    write_scorer(folder, base, texts * REPEATS)
    file = folder / "model.safetensors"
    rng = np.random.default_rng(seed)
    noisy = {
        name: (one + NOISE * rng.normal(size=one.shape)).astype(np.float32)
        for name, one in load_file(file).items()
    }
    save_file(noisy, file, metadata={"format": "pt"})
    return folder


def problems_of(*kinds: str, count: int, first: int = 0) -> list[Row]:
    """As many problems of each kind."""
    made = {
        "math": ("Add 7 and 1, for pupil {}.", "8", None),
        "instruction": ("Name two animals, without commas, for pupil {}.", "", WORDS),
        "code": ("Write f, which adds 1, for pupil {}.", "", CODE),
        "chat": ("Greet pupil {}.", "", None),
    }
    return [
        Row(f"{kind}-{number:02d}", text.format(number), kind, truth, checks)
        for kind in kinds
        for text, truth, checks in [made[kind]]
        for number in range(first, first + count)
    ]


KINDS = ("math", "instruction", "code") if HAS_SANDBOX else ("math", "instruction")


def write_inputs(folder: Path, kinds: tuple[str, ...] = KINDS, count: int = 3) -> dict[str, Path]:
    """Problems, a policy, and other problems of the same kinds that are held out."""
    return {
        "problems": write_clean(folder / "problems", problems_of(*kinds, count=count)),
        "policy": write_policy(folder / "policy"),
        "held_out": write_clean(folder / "held_out", problems_of(*kinds, count=2, first=50)),
    }


def stage_settings(**changes: Any) -> dict[str, Any]:
    """Rounds of 4 x 4 responses of at most 24 tokens, with two checkpoints in four rounds."""
    settings = rl_settings(
        queries=4,
        n=4,
        max_rounds=4,
        max_new_tokens=24,
        max_model_len=96,
        row_tokens=96,
        rows=2,
        micro_batch_size=2,
        batch=6,
        probe={"every": 2, "problems": 6, "n": 2},
        checkpoint_rounds=2,
        eps=1e-6,
        grade={"reward_model": {"engine": "local"}},
    )
    return settings | changes


def run_rl(
    output: Path, inputs: dict[str, Path], **changes: Any
) -> tuple[Counts, StageContext, RlConfig]:
    """Run the stage in this process."""
    output.mkdir(parents=True, exist_ok=True)
    config = RlConfig.model_validate(stage_settings(**changes))
    context = StageContext("rl", output / "quarantined.jsonl", Placement())
    return rl(config, inputs, output, context), context, config


def payload_of(output: Path) -> dict[str, str]:
    """Every file's hash, but for seconds.jsonl, which differs between equal runs."""
    return {
        path.relative_to(output).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.name != "seconds.jsonl"
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
