"""A stage `prove`'s artifact, and servers that answer both its texts and a stage's questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from completion_server import CompletionServer
from log_prob_server import answer_with, entries_of, log_prob

from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.recheck.texts import write_texts
from pcl_reasoner.weights.identity import weights_hash

LIMITS = {"mean": 1e-4, "p99": 1e-3, "largest": 1e-2}
LENGTHS = (5, 60, 70, 80, 90)
"""The four shortest have 4 + 59 + 69 + 79 = 211 log-probs."""


def write_proof(folder: Path, model: Path, lengths: tuple[int, ...] = LENGTHS) -> Path:
    """What `prove` writes; the checkpoint's log-probs are those that a sound server answers."""
    folder.mkdir(parents=True)
    rows, values = [], []
    for index, length in enumerate(lengths):
        ids = [(3 + 5 * index + place) % 97 for place in range(length)]
        rows.append({"problem_id": f"p{index}", "sample_index": 0, "input_ids": ids})
        found = [log_prob(token, place) for place, token in enumerate(ids)]
        values.append(np.array(found[1:], np.float32))
    write_texts(folder, pa.Table.from_pylist(rows, schema=SEGMENTS), values)
    proof = {"proved": True, "weights": weights_hash(model), "limits": LIMITS}
    (folder / "proof.json").write_text(json.dumps(proof))
    return folder


def shifted(prompt: list[int], shift: float) -> dict[str, Any]:
    """An answer whose log-probs are lower by ``shift``."""
    entries = entries_of(prompt)
    for entry in entries[1:]:
        for one in (entry or {}).values():
            one["logprob"] -= shift
    return answer_with(entries)


class ProvedServer(CompletionServer):
    """Args: started: the start time that it reports; None: it reports none."""

    def __init__(self, started: float | None = 1.0, **keys: Any) -> None:
        super().__init__(**keys)
        self.shift = 0.0
        self.pages["/metrics"] = self.metrics
        self.start(started)

    def start(self, time: float | None, shift: float = 0.0) -> None:
        """What is seen of a restart, with other weights if ``shift`` is not 0."""
        self.started, self.shift = time, shift

    def metrics(self) -> str:
        return "" if self.started is None else f"process_start_time_seconds {self.started}\n"

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt_logprobs" in body:
            return shifted(body["prompt"], self.shift)
        return super().completion(body)

    @property
    def texts(self) -> list[int]:
        """Lengths of the texts whose log-probs it was asked for, in order."""
        return [len(one["prompt"]) for one in self.asked if "prompt" in one]

    @property
    def questions(self) -> int:
        return sum("messages" in one for one in self.asked)
