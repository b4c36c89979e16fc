"""Log-probs in chunks against full logits: bytes by count, peak memory and time on this CPU.

    python benchmarks/loss_memory.py [--tokens 2048] [--hidden 256] [--vocabulary 32768]
                                     [--chunk-tokens 512] [--rows 1] [--rounds 3] [--entropy]
                                     [--parts 1]

First the count for the published runs, at vocabulary 152 064, a rank. Then forward and backward of
the loss alone, each way in processes of its own that take turns: in chunks; with full logits as
the model does it without chunks; and MindFormers' own CrossEntropyLoss. Printed are the peak of
resident memory over what there was before the first step, and the fastest step, wall and CPU. Time
is a ratio of one run; the machine's load is in all. Chunks make the logits twice, so they have four
matrix products for the others' three. With ``--parts`` the vocabulary has that many parts, as on
tensor-parallel ranks, but all in this process. A CPU's graph mode frees few buffers between chunks,
so the measured ratio of memory is not the count's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from pcl_reasoner.losses.chunks import FLOAT32, chunk_length, chunked_bytes

PUBLISHED = {"V1": (32_768, 1_024), "V1.5": (51_200, 2_048)}
"""Tokens a row and a chunk; a rank has one row at a time."""
VOCABULARY, HIDDEN = 152_064, 5_120
STEPS = 5


def full_logits_bytes(tokens: int, vocabulary: int) -> int:
    """Return the bytes of all logits, [tokens, vocabulary] in float32, if each exists once."""
    return tokens * vocabulary * FLOAT32


def extra_bytes(
    chunk_tokens: int, vocabulary: int, hidden: int, compute_bytes: int = 2, entropy: bool = False
) -> int:
    """Return the bytes that chunks need in addition to the gradient of the output weights.

    The result is the largest of ``chunked_bytes`` minus the bytes that this gradient needs also
    with full logits: a matrix product in the compute type, and its copy in float32 (if that is
    another type). Args as in ``chunked_bytes``.
    """
    gradient = FLOAT32 + (compute_bytes if compute_bytes < FLOAT32 else 0)
    moments = chunked_bytes(chunk_tokens, vocabulary, hidden, compute_bytes, entropy)
    return max(moments.values()) - gradient * vocabulary * hidden


def count() -> None:
    """Print bytes a rank for the published runs, in bfloat16 or float16, entropies made."""
    print("by count, MiB a rank: all logits in float32 once, and what chunks take beyond the")
    print("weights' gradient as full logits have it")
    for name, (tokens, chunk_tokens) in PUBLISHED.items():
        for parallel in (1, 8):
            rows = VOCABULARY // parallel
            full = full_logits_bytes(tokens, rows)
            extra = extra_bytes(chunk_tokens, rows, HIDDEN, entropy=True)
            print(
                f"  {name:5} {parallel} tensor-parallel: full {full / 2**20:8,.0f}   "
                f"{chunk_tokens} tokens a chunk {extra / 2**20:6,.0f}   1/{full / extra:.1f}"
            )


def build(given: argparse.Namespace) -> Any:
    """A function that makes one forward and backward pass, and its arguments."""
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    from pcl_reasoner.losses.chunked import ChunkedLogProbs
    from pcl_reasoner.losses.segments import TokenLogProbs
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from mindformers.core.loss import CrossEntropyLoss

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")

    class Full(nn.Cell):
        """As the model does it without chunks."""

        def __init__(self) -> None:
            super().__init__()
            self.matmul, self.log_probs = ops.MatMul(transpose_b=True), TokenLogProbs()
            self.log_softmax, self.entropy = ops.LogSoftmax(-1), given.entropy

        def construct(self, hidden, weight, labels):
            logits = self.matmul(hidden.reshape((-1, hidden.shape[-1])), weight)
            log_probs = self.log_probs(logits, labels)
            if not self.entropy:
                return log_probs, ops.zeros_like(log_probs)
            shares = self.log_softmax(logits)
            entropies = -(ops.exp(shares) * shares).sum(-1).reshape(labels.shape)
            return log_probs, ops.stop_gradient(entropies)

    class Stock(nn.Cell):
        """MindFormers' loss, a weight a token: Σ weights · −log π / Σ weights. No entropies."""

        def __init__(self) -> None:
            super().__init__()
            self.matmul, self.loss = ops.MatMul(transpose_b=True), CrossEntropyLoss()

        def construct(self, hidden, weight, labels, weights):
            logits = self.matmul(hidden.reshape((-1, hidden.shape[-1])), weight)
            loss = self.loss(logits, labels.reshape((-1,)), weights)
            return -loss * weights.sum(), ops.zeros_like(weights)

    class Loss(nn.Cell):
        """A weight a token, as a loss's gradient by log-probs gives."""

        def __init__(self, log_probs: nn.Cell) -> None:
            super().__init__()
            self.log_probs = log_probs

        def construct(self, hidden, weight, labels, weights):
            log_probs, entropies = self.log_probs(hidden, weight, labels)
            return (log_probs * weights).sum(), entropies

    length = given.tokens // given.rows
    step = chunk_length(given.chunk_tokens, given.rows, length)
    chunked = ChunkedLogProbs(given.vocabulary, step, parts=given.parts, entropy=given.entropy)
    cells = {"chunked": lambda: Loss(chunked), "full": lambda: Loss(Full()), "stock": Stock}
    cell = cells[given.way]()
    rng = np.random.default_rng(0)
    shape = (given.rows, length)
    arguments = (
        Tensor(rng.standard_normal((*shape, given.hidden)), ms.float32),
        Tensor(0.05 * rng.standard_normal((given.vocabulary, given.hidden)), ms.float32),
        Tensor(rng.integers(0, given.vocabulary, shape), ms.int32),
        Tensor(rng.random(shape), ms.float32),
    )
    return ms.value_and_grad(cell, (0, 1), has_aux=True), arguments


def one_way(given: argparse.Namespace) -> None:
    """Measure in this process, and print one JSON line."""
    step, arguments = build(given)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    walls, processors, norms = [], [], []
    for _ in range(STEPS + 1):
        began, spent = time.perf_counter(), time.process_time()
        _, gradients = step(*arguments)
        norms = [float(np.linalg.norm(gradient.asnumpy())) for gradient in gradients]
        walls.append(time.perf_counter() - began)
        processors.append(time.process_time() - spent)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # The first step compiles.
    found = {"wall": min(walls[1:]), "cpu": min(processors[1:]), "peak": peak * 1024}
    print(json.dumps(found | {"norms": norms}))


def measure(given: argparse.Namespace) -> None:
    """All ways in turn, and their ratios."""
    found: dict[str, list[dict[str, Any]]] = {"chunked": [], "full": [], "stock": []}
    for _ in range(given.rounds):
        for way, results in found.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results.append(json.loads(out.splitlines()[-1]))
    print(
        f"\nmeasured, float32: {given.rows} rows, {given.tokens} tokens, hidden {given.hidden}, "
        f"vocabulary {given.vocabulary} in {given.parts} parts, {given.chunk_tokens} tokens a "
        f"chunk, entropies {'made' if given.entropy else 'not made'}; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    best = {
        way: {key: min(one[key] for one in results) for key in ("wall", "cpu", "peak")}
        for way, results in found.items()
    }
    for way, one in best.items():
        print(
            f"  {way:8} {1e3 * one['wall']:9.1f} ms wall  {1e3 * one['cpu']:9.1f} ms CPU  "
            f"peak +{one['peak'] / 2**20:7,.0f} MiB"
        )
    for way in ("full", "stock"):
        ratio = {key: best["chunked"][key] / best[way][key] for key in best[way]}
        norms = zip(found["chunked"][0]["norms"], found[way][0]["norms"], strict=True)
        print(
            f"  chunked : {way:5}  wall {ratio['wall']:.2f}, CPU {ratio['cpu']:.2f}, memory "
            f"{ratio['peak']:.2f}; norms of gradients agree to "
            f"{max(abs(ours / theirs - 1) for ours, theirs in norms):.0e}"
        )


def main() -> None:
    """Count, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=32_768)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--entropy", action="store_true")
    parser.add_argument("--way", choices=["chunked", "full", "stock"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        one_way(given)
        return
    count()
    measure(given)


if __name__ == "__main__":
    main()
