"""What a person sees of a row is what is trained on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pack_helpers import write_model
from tokenizers import Tokenizer

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.schemas import PACKED_ROWS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.preview import Span, preview_rows
from pcl_reasoner.pack.rows import plan_packing


def sample(tokenizer: Tokenizer, name: str, prompt: str, response: str, reward: float):  # type: ignore[no-untyped-def]
    head, tail = tokenizer.encode(prompt).ids, tokenizer.encode(response).ids
    return {
        "problem_id": name,
        "sample_index": 0,
        "input_ids": head + tail,
        "labels": [-100] * len(head) + tail,
        "length": len(head) + len(tail),
        "reward": reward,
        "pass_rate": 0.5,
    }


def test_spans_of_both_kinds_of_folder(tmp_path: Path) -> None:
    file = write_model(tmp_path / "model") / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    first = sample(tokenizer, "a", "1 + 1?", "it is 2<|im_end|>", 1.0)
    second = sample(tokenizer, "b", "9?", "ü<|im_end|>", 0.25)
    second["labels"][-1] = -100
    table = pa.Table.from_pylist([first, second], schema=SEGMENTS)
    (tmp_path / "segments").mkdir()
    write_arrow_folder(tmp_path / "segments", SEGMENTS, table.to_batches())
    expected_second = [
        Span("9?", "prompt", 0, 0.25),
        Span("ü", "trained", 0, 0.25),
        Span("<|im_end|>", "masked", 0, 0.25),
    ]
    assert preview_rows(tmp_path / "segments", file, [1]) == [expected_second]
    packing = plan_packing(table, first["length"] + second["length"] + 2, 128, 0, pad_token_id=0)
    (tmp_path / "rows").mkdir()
    write_arrow_folder(tmp_path / "rows", PACKED_ROWS, packing.batches())
    assert preview_rows(tmp_path / "rows", file, [0]) == [
        [
            Span("1 + 1?", "prompt", 0, 1.0),
            Span("it is 2<|im_end|>", "trained", 0, 1.0),
            Span("9?", "prompt", 1, 0.25),
            Span("ü", "trained", 1, 0.25),
            Span("<|im_end|>", "masked", 1, 0.25),
            Span("<|endoftext|>" * 2, "padding", 2, None),
        ]
    ]
    with pytest.raises(InputError, match="no row 1; it has rows 0 to 0"):
        preview_rows(tmp_path / "rows", file, [1])
