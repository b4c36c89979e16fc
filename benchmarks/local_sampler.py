"""The local sampler beside transformers' ``generate`` with a static cache, on the same weights.

    python benchmarks/local_sampler.py [--policy FOLDER] [--prompts 50] [--n 8] [--tokens 80]

Both draw n responses to the same prompts, in one batch, float32, on this machine's cores: greedy,
and at temperature 0.6, top-k 40, top-p 0.95. The first call of each, with what it compiles, is told
apart; then the sides take turns. Greedy responses are compared token for token.

Printed: tokens/s and tokens a CPU-second, of responses up to and with their end token, medians of
the rounds; and ours over transformers', pair by pair.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sampling_client import texts

Ids = list[list[int]]
Side = Callable[[bool, int], Ids]
"""Greedy or not, and a seed -> the responses' ids."""
TEMPERATURE, TOP_K, TOP_P = 0.6, 40, 0.95


def write_policy(folder: Path, hidden: int, layers: int) -> Path:
    from pcl_reasoner.synthetic.base_model import write_model_folder

    write_model_folder(folder, texts(256), vocab_size=2048, hidden=hidden, layers=layers, seed=0)
    return folder


def ours(folder: Path, prompts: Ids, given: argparse.Namespace) -> Side:
    from pcl_reasoner.inference.settings import SamplingConfig
    from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout, LocalSampler, Row

    sampler = LocalSampler(folder)
    slots = -(-max(map(len, prompts)) // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
    rows = len(prompts) * given.n
    sampler.prepare(Layout(len(prompts), slots, rows, slots + given.tokens))

    def run(greedy: bool, seed: int) -> Ids:
        temperature = 0.0 if greedy else TEMPERATURE
        settings = SamplingConfig(temperature=temperature, top_k=TOP_K, top_p=TOP_P)
        wanted = [Row(index // given.n, seed * rows + index) for index in range(rows)]
        drawn = sampler.sample(prompts, wanted, [given.tokens] * rows, settings)
        return [one.token_ids for one in drawn]

    return run


def transformers_side(folder: Path, prompts: Ids, given: argparse.Namespace) -> Side:
    import torch
    from transformers import AutoModelForCausalLM

    from pcl_reasoner.weights.model_config import end_tokens

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ends, longest = end_tokens(folder), max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(one)) + one for one in prompts])
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])

    def run(greedy: bool, seed: int) -> Ids:
        torch.manual_seed(seed)
        drawing = {"temperature": TEMPERATURE, "top_k": TOP_K, "top_p": TOP_P}
        found = model.generate(
            ids.repeat_interleave(given.n, 0),
            attention_mask=mask.repeat_interleave(given.n, 0),
            max_new_tokens=given.tokens,
            do_sample=not greedy,
            cache_implementation="static",
            eos_token_id=ends,
            pad_token_id=0,
            **({} if greedy else drawing),
        )[:, longest:]
        return [cut(row, ends) for row in found.tolist()]

    return run


def cut(row: list[int], ends: list[int]) -> list[int]:
    """Up to the first end token, and with it."""
    place = next((index for index, token in enumerate(row) if token in ends), len(row))
    return row[: place + 1]


def clocked(side: Side, greedy: bool, seed: int) -> tuple[Ids, float, float]:
    """Ids, tokens a second, tokens a CPU-second."""
    cpu, began = time.process_time(), time.perf_counter()
    found = side(greedy, seed)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    tokens = sum(map(len, found))
    return found, tokens / seconds, tokens / cpu


def compare(sides: dict[str, Side], greedy: bool, rounds: int) -> None:
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    same = 0
    for number in range(rounds):
        found = {}
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            found[name], *rate = clocked(sides[name], greedy, number)
            rates[name].append((rate[0], rate[1]))
        same = sum(a == b for a, b in zip(*found.values(), strict=True))
    for name, own in rates.items():
        second, cpu = (statistics.median(one[place] for one in own) for place in (0, 1))
        print(f"  {name:14}{second:10,.0f} tokens/s {cpu:10,.0f} a CPU-second")
    mine, theirs = rates.values()
    for place, unit in enumerate(("tokens/s", "a CPU-second")):
        ratios = [a[place] / b[place] for a, b in zip(mine, theirs, strict=True)]
        print(
            f"  ours / transformers, {unit}: median {statistics.median(ratios):.2f} of {rounds} "
            f"pairs, {min(ratios):.2f} to {max(ratios):.2f}"
        )
    if greedy:
        print(f"  responses that are the same, token for token: {same} of {len(found['ours'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", type=Path, help="a Hugging Face folder of a small Qwen2")
    parser.add_argument("--hidden", type=int, default=128, help="of drawn weights")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=80, help="most of a response")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    os.environ.update(GLOG_v="3", TRANSFORMERS_VERBOSITY="error")
    from workload import machine

    print(machine("mindspore", "torch", "transformers"))
    from pcl_reasoner.inference.dialogue import Dialogue, Problem
    from pcl_reasoner.sample.stage import SampleConfig

    with tempfile.TemporaryDirectory() as work:
        folder = given.policy or write_policy(Path(work) / "policy", given.hidden, given.layers)
        dialogue = Dialogue(folder, SampleConfig())
        prompts = [dialogue.prompt(Problem("", text)).ids for text in texts(given.prompts)]
        builders: dict[str, Any] = {"ours": ours, "transformers": transformers_side}
        sides: dict[str, Side] = {}
        for name, build in builders.items():
            sides[name] = build(folder, prompts, given)
            cpu, began = time.process_time(), time.perf_counter()
            sides[name](True, 0)
            took = time.perf_counter() - began
            print(f"{name}: first call {took:.1f} s, {time.process_time() - cpu:.1f} CPU-s")
        print(f"{given.prompts} prompts x {given.n}, up to {given.tokens} tokens")
        for greedy in (True, False):
            print("greedy:" if greedy else "sampled:", flush=True)
            compare(sides, greedy, given.rounds)


if __name__ == "__main__":
    main()
