"""Encodes responses with their prompts, for both engines.

    row 12 (the thirteenth response), problem_id 9f0c…, sample_index 3,
    input_ids [151644, …, 27, …, 151645], labels [−100, …, 27, …, 151645], length 913

These are tokenize's columns and ``row``. A response without tokens has no segment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.reading import value_of
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.pack.encoder import Encoder, sample_of
from pcl_reasoner.pack.rows import list_at
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.tidy.reading import ResponseFiles

_SCHEMA = pa.schema([*SEGMENTS, ("row", pa.int64())])
_COLUMNS = ["problem_id", "sample_index", "response", "token_ids", "finish_reason"]
_BATCH_ROWS = 64
"""Segments written at a time."""


@dataclass
class Segmenting:
    """Writes the segments of responses.

    Args:
        config: Uses ``seq_length``, ``over_length`` and ``encode_text``.
        encoder: The policy's.
        vocabulary: Number of token ids that the policy knows.
        problems: What a prompt needs: column -> (problem_id -> value).
        too_long: Rows of the responses that are dropped because they are too long.
    """

    config: PerplexityConfig
    encoder: Encoder
    vocabulary: int
    problems: Mapping[str, Mapping[str, Any]]
    too_long: set[int] = field(default_factory=set)

    def write(self, responses: ResponseFiles, folder: Path, context: StageContext) -> pa.Table:
        """Write the segments of all responses as an Arrow folder, and map it into memory.

        Raises:
            StageError: A problem is unknown or has no text, a token id is unknown, or a response
                is too long and ``over_length`` is ``error``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        write_arrow_folder(folder, _SCHEMA, self._batches(responses, context))
        return read_arrow_folder(folder)

    def _batches(self, responses: ResponseFiles, context: StageContext) -> Iterator[pa.RecordBatch]:
        row = 0
        for file, _, batch in responses.batches(_COLUMNS):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                records = batch.slice(start, _BATCH_ROWS).to_pylist()
                found = [self._segment(record, row + at) for at, record in enumerate(records)]
                segments = [segment for segment in found if segment is not None]
                yield pa.RecordBatch.from_pylist(segments, _SCHEMA)
                row += len(records)
                context.progress.update(row, responses.total, "responses", file)

    def _segment(self, record: Mapping[str, Any], row: int) -> dict[str, Any] | None:
        """Return the segment of one response; None if it has no tokens or is too long."""
        name = f"response {record['sample_index']} of problem {record['problem_id']}"
        prompt, response = self._token_ids(record)
        if not response:
            return None
        if max(response) >= self.vocabulary or min(response) < 0:
            raise StageError(
                f"{name}: has token ids from {min(response)} to {max(response)}, the policy knows "
                f"0 to {self.vocabulary - 1}. Another model sampled it: set encode_text to true."
            )
        length = len(prompt) + len(response)
        if length > self.config.seq_length:
            if self.config.over_length == "error":
                raise StageError(
                    f"{name}: has {length} tokens with its prompt, seq_length is "
                    f"{self.config.seq_length}. Raise it, or set over_length to drop."
                )
            self.too_long.add(row)
            return None
        # Rewards do not affect log-probs; the packed rows need them.
        return {
            "problem_id": record["problem_id"],
            "sample_index": record["sample_index"],
            "input_ids": prompt + response,
            "labels": [IGNORED] * len(prompt) + response,
            "length": length,
            "reward": 1.0,
            "pass_rate": 1.0,
            "row": row,
        }

    def _token_ids(self, record: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """Return the token ids of prompt and response, as tokenize encodes them."""
        name = record["problem_id"]
        prompt = {column: value_of(name, values) for column, values in self.problems.items()}
        given = {**record, **prompt}
        if self.config.encode_text:
            given["token_ids"] = None
        try:
            sample = sample_of(given, self.encoder.system, self.encoder.suffix)
        except ValueError as error:
            raise StageError(
                f"problem {record['problem_id']} has no text, so the perplexity of its responses "
                "is not defined. The stage `unique` drops such problems."
            ) from error
        return self.encoder.prompt_ids(sample.messages), self.encoder.response_ids(sample)


def response_ids(segments: pa.Table, index: int) -> npt.NDArray[np.int32]:
    """Return the token ids of one segment's response, without its prompt."""
    token_ids: npt.NDArray[np.int32] = list_at(segments["input_ids"], index)
    return token_ids[list_at(segments["labels"], index) != IGNORED]


def trained_tokens(segments: pa.Table) -> npt.NDArray[np.int64]:
    """Return the number of tokens of each segment's response, [segments]."""
    return np.array([len(response_ids(segments, index)) for index in range(len(segments))], int)
