"""Encodes samples into token ids and labels.

    problem   "1 + 1?"        response  "<think>…</think><answer>\\\\boxed{2}</answer>"
    input_ids [<|im_start|>, user, …, <|im_start|>, assistant, \\n, <think>, …, <|im_end|>]
    labels    [        −100, −100, …,         −100,      −100, −100, <think>, …, <|im_end|>]

Labels are unshifted: ``labels[i]`` is ``input_ids[i]`` where token i is trained on, −100 elsewhere.
The chat template determines where the assistant's part begins; no token id is hard-coded here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.curate import problem_id
from pcl_reasoner.grade.rewards import checked_reward
from pcl_reasoner.pack.config import OverLength
from pcl_reasoner.pack.encoder import Encoder, Sample, sample_of

IGNORED = -100
"""The label of a token that is not trained on."""


RECORD_KEYS = (
    *("conversations", "prompt", "problem", "response", "cot", "token_ids", "finish_reason"),
    *("problem_id", "sample_index", "reward", "pass_rate", "advantage"),
)
"""The columns that a record can have."""


@dataclass
class Segmenter:
    """Encodes records into segments, batch by batch, and counts dropped and truncated records.

    Args:
        encoder: The encoder of the model.
        max_segment_tokens: Limit on the tokens per segment: prompt, response and end of turn.
        over_length: Handling of longer segments.
        dropped: Reason -> number of records that gave no segment.
        malformed: (row, reason) of each record that cannot be read.
        truncated: Number of truncated segments.
        seen: Problem id -> number of segments so far, the ``sample_index`` of records without one.
    """

    encoder: Encoder
    max_segment_tokens: int
    over_length: OverLength
    dropped: Counter[str] = field(default_factory=Counter)
    malformed: list[tuple[int, str]] = field(default_factory=list)
    truncated: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def encode(
        self, columns: Mapping[str, list[Any]], rows: Sequence[int], where: str
    ) -> dict[str, list[Any]]:
        """Encode a batch of records.

        Args:
            columns: Some of RECORD_KEYS -> one value per record.
            rows: The row number of each record, for ``malformed`` and for errors.
            where: The origin of the records, for errors.

        Returns:
            The columns of SEGMENTS, one value per segment.

        Raises:
            StageError: A reward is missing or outside of [0, 1], or a segment is too long and
                ``over_length`` is ``error``.
        """
        segments = []
        for index, row in enumerate(rows):
            record = {key: values[index] for key, values in columns.items()}
            if "reward" in record:
                checked_reward(record["reward"], f"{where}: {_name(record, row)}")
            segments.append(self._segment(record, row))
        kept = [segment for segment in segments if segment is not None]
        return {name: [one[place] for one in kept] for place, name in enumerate(SEGMENTS.names)}

    def encode_dataset(self, dataset: Any, names: Mapping[str, str], where: str) -> Any:
        """Encode a datasets.Dataset of records into a datasets.Dataset of segments.

        Args:
            dataset: The records.
            names: Name in RECORD_KEYS -> name of the dataset's column, if it differs.
            where: The origin of the records, for errors.
        """
        from datasets import Features

        def encode(batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
            renamed = {key: batch[column] for key, column in names.items()}
            return self.encode({**batch, **renamed}, rows, where)

        return dataset.map(
            encode,
            batched=True,
            batch_size=64,
            with_indices=True,
            remove_columns=dataset.column_names,
            features=Features.from_arrow_schema(SEGMENTS),
            load_from_cache_file=False,
            new_fingerprint=self._cache_name(dataset, names),
        )

    def _cache_name(self, dataset: Any, names: Mapping[str, str]) -> str:
        # Depends on the settings, so that a cache with other settings is never used.
        settings = [self.encoder.identity, self.max_segment_tokens, self.over_length, dict(names)]
        return fingerprint([dataset._fingerprint, settings])[:16]

    def _segment(self, record: Mapping[str, Any], row: int) -> tuple[Any, ...] | None:
        """Return one segment's values in the order of SEGMENTS; None if the record gives none."""
        try:
            sample = sample_of(record, self.encoder.system, self.encoder.suffix)
        except ValueError as error:
            self.malformed.append((row, str(error)))
            return self._drop(str(error))
        prompt = self.encoder.prompt_ids(sample.messages)
        response = self.encoder.response_ids(sample)
        if not response:
            return self._drop("empty_response")
        length = len(prompt) + len(response)
        if length > self.max_segment_tokens:
            if self.over_length == "error":
                raise StageError(
                    f"{_name(record, row)} has {length} tokens with its prompt, the limit is "
                    f"{self.max_segment_tokens}. Raise max_segment_tokens, or set "
                    "over_length to drop or truncate."
                )
            if self.over_length == "drop" or len(prompt) >= self.max_segment_tokens:
                return self._drop("over_length")
            response = response[: self.max_segment_tokens - len(prompt)]
            self.truncated += 1
        return self._values(record, sample, prompt, response)

    def _values(
        self, record: Mapping[str, Any], sample: Sample, prompt: list[int], response: list[int]
    ) -> tuple[Any, ...]:
        """Return one segment's values in the order of SEGMENTS.

        A record without a reward (SFT data) gets the reward 1.0 and the pass rate 1.0.
        """
        name = record.get("problem_id") or problem_id(sample.problem)
        index = record.get("sample_index")
        if index is None:
            index = self.seen[name]
        self.seen[name] += 1
        return (
            name,
            index,
            prompt + response,
            [IGNORED] * len(prompt) + response,
            len(prompt) + len(response),
            record.get("reward", 1.0),
            record.get("pass_rate", 1.0),
            record.get("advantage"),
        )

    def _drop(self, reason: str) -> tuple[Any, ...] | None:
        self.dropped[reason] += 1
        return None


def _name(record: Mapping[str, Any], row: int) -> str:
    """Return ``response 3 of problem 9f0c…``; ``row 7`` for a record without a problem id."""
    if record.get("problem_id") is None:
        return f"row {row}"
    return f"response {record.get('sample_index')} of problem {record['problem_id']}"
