"""The texts of a proof: what a stage `prove` compared, with the checkpoint's log-probs.

    texts.parquet: problem_id 9f0c…, sample_index 3, input_ids [151644, …, 27], log_probs [-0.4, …]

A text has one log-prob less than tokens: no token predicts the first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import parsed
from pcl_reasoner.core.schemas import PROVED_TEXTS
from pcl_reasoner.curate.parts import read_parquet
from pcl_reasoner.recheck.difference import Values
from pcl_reasoner.recheck.limits import Limits

PROOF, TEXTS = "proof.json", "texts.parquet"
FEWEST_TEXTS = 4
"""Texts that are compared at a server's start, at least; the shortest ones."""
FEWEST_TOKENS = 200
"""Log-probs that these texts must have together; if they have fewer, further texts are taken."""


@dataclass(frozen=True)
class Text:
    """A stored text.

    Args:
        token_ids: Its tokens.
        log_probs: The trained checkpoint's log π of every token but the first, in nats.
    """

    token_ids: list[int]
    log_probs: NDArray[np.float32]

    def cut(self, longest: int) -> "Text":
        """Return the first tokens; later ones do not change their log-probs."""
        return Text(self.token_ids[:longest], self.log_probs[: longest - 1])


@dataclass(frozen=True)
class Proof:
    """What a finished stage `prove` says.

    Args:
        folder: Its artifact.
        weights: The hash of the exported folder (`weights.identity`).
        limits: The largest differences that it accepted.
        texts: The texts that are sent to a server, the shortest first.
    """

    folder: Path
    weights: str
    limits: Limits
    texts: list[Text]


def write_texts(folder: Path, segments: pa.Table, values: Values) -> None:
    """Write texts.parquet.

    Args:
        folder: The proof's artifact.
        segments: The texts, with problem_id, sample_index and input_ids.
        values: The checkpoint's log-probs, one array per text.
    """
    names = ["problem_id", "sample_index", "input_ids"]
    rows = segments.select(names).to_pylist()
    filled = [{**row, "log_probs": found.tolist()} for row, found in zip(rows, values, strict=True)]
    pq.write_table(pa.Table.from_pylist(filled, schema=PROVED_TEXTS), folder / TEXTS)


def read_proof(folder: Path, longest: int) -> Proof:
    """Read what is compared at a server's start.

    Args:
        folder: What a stage `prove` wrote.
        longest: Tokens that a server can take as a prompt.

    Raises:
        StageError: A file is missing, or is not one that this version's `prove` writes.
    """
    file = folder / PROOF
    if not file.is_file() or not (folder / TEXTS).is_file():
        raise StageError(
            f"{folder}: has no {PROOF} with {TEXTS}. The role proof needs a stage `prove`."
        )
    found = parsed(file.read_bytes(), str(file))
    rows = read_parquet(folder / TEXTS, ["input_ids", "log_probs"]).to_pylist()
    texts = [Text(row["input_ids"], np.array(row["log_probs"], np.float32)) for row in rows]
    chosen = few([text.cut(longest) for text in texts])
    return Proof(folder, found["weights"], Limits(**found["limits"]), chosen)


def few(texts: Sequence[Text]) -> list[Text]:
    """Return the shortest texts: at least FEWEST_TEXTS, with at least FEWEST_TOKENS log-probs.

    All are returned if there are fewer.
    """
    chosen: list[Text] = []
    for text in sorted(texts, key=lambda one: len(one.token_ids)):
        tokens = sum(len(one.log_probs) for one in chosen)
        if len(chosen) >= FEWEST_TEXTS and tokens >= FEWEST_TOKENS:
            break
        chosen.append(text)
    return chosen
