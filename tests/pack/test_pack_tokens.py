"""Samples to tokens and labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from pack_helpers import write_model

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.curate import problem_id
from pcl_reasoner.pack.encoder import Encoder, load_encoder, sample_of, with_newlines
from pcl_reasoner.pack.tokens import Segmenter


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return load_encoder(write_model(tmp_path / "model"), system="Think.", suffix=" Box it.")


def encode(encoder: Encoder, *records: dict[str, object], limit: int = 1000, policy: str = "drop"):  # type: ignore[no-untyped-def]
    segmenter = Segmenter(encoder, limit, policy)  # type: ignore[arg-type]
    found = {name: [] for name in SEGMENTS.names}  # type: ignore[var-annotated]
    for row, record in enumerate(records):
        one = segmenter.encode({name: [value] for name, value in record.items()}, [row], "here")
        found = {name: [*values, *one[name]] for name, values in found.items()}
    return found, segmenter


def test_a_taught_response_is_text_and_end_of_turn(encoder: Encoder) -> None:
    columns, _ = encode(encoder, {"problem": "1 + 1?", "cot": "<think>x</think>2"})
    prompt = (
        "<|im_start|>system\nThink.<|im_end|>\n<|im_start|>user\n1 + 1? Box it.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    head, tail = encoder.ids(prompt), encoder.ids("<think>x</think>2<|im_end|>")
    assert columns["input_ids"] == [head + tail]
    assert columns["labels"] == [[-100] * len(head) + tail]  # unshifted
    assert columns["length"] == [len(head) + len(tail)]
    assert encoder.tokenizer.id_to_token(columns["labels"][0][-1]) == "<|im_end|>"
    assert (columns["reward"], columns["pass_rate"]) == ([1.0], [1.0])
    assert columns["problem_id"] == [problem_id("1 + 1?")]


def test_sampled_ids_are_kept_as_drawn(encoder: Encoder) -> None:
    drawn = [70, 71, 72, 2]  # not how the tokenizer would write this text
    record = {
        "problem": "1 + 1?",
        "problem_id": "p",
        "sample_index": 5,
        "response": "2",
        "token_ids": drawn,
        "finish_reason": "stop",
        "reward": 0.25,
        "pass_rate": 0.5,
    }
    columns, _ = encode(encoder, record)
    assert columns["input_ids"][0][-4:] == drawn
    assert [label for label in columns["labels"][0] if label != -100] == drawn
    assert (columns["problem_id"], columns["sample_index"]) == (["p"], [5])
    assert (columns["reward"], columns["pass_rate"]) == ([0.25], [0.5])


def test_the_assistants_start_is_the_templates(tmp_path: Path) -> None:
    # Defect 9: another template, in which ChatML's assistant marker is never written.
    template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }} ~ {% endfor %}"
        "{% if add_generation_prompt %}[reply] {% endif %}"
    )
    encoder = load_encoder(write_model(tmp_path / "model", template))
    problem = "what is <|im_start|>assistant"
    columns, _ = encode(encoder, {"problem": problem, "cot": "2"})
    head = encoder.ids(f"[user] {problem} ~ [reply] ")
    assert columns["labels"][0][: len(head)] == [-100] * len(head)
    assert columns["labels"][0][len(head) :] == encoder.ids("2") + encoder.ids("~")


def test_training_reads_what_serving_renders(encoder: Encoder) -> None:
    columns, _ = encode(encoder, {"problem": "1 + 1?", "cot": "2"})
    turns = [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "1 + 1? Box it."},
        {"role": "assistant", "content": "2"},
    ]
    rendered = encoder.template.render(turns, add_generation_prompt=False)
    text = encoder.tokenizer.decode(columns["input_ids"][0], skip_special_tokens=False)
    assert rendered == text + "\n"


def test_newlines_of_v1() -> None:
    text = "<think>a</think><answer>b <think></answer>"
    once = "<think>\na</think><answer>b <think>\n</answer>"
    assert with_newlines(text) == once
    assert with_newlines(once) == once
    assert with_newlines("plain") == "plain"


def test_newlines_are_for_taught_text_only(tmp_path: Path) -> None:
    encoder = load_encoder(write_model(tmp_path / "model"), think_newline=True)
    taught = sample_of({"problem": "p", "cot": "<think>a</think>"}, None, "")
    assert encoder.response_ids(taught) == encoder.ids("<think>\na</think><|im_end|>")
    sampled = {"problem": "p", "response": "<think>", "token_ids": [9], "finish_reason": "stop"}
    assert encoder.response_ids(sample_of(sampled, None, "")) == [9]


def test_a_response_that_was_cut_off_gets_no_end_of_turn(encoder: Encoder) -> None:
    record = {"problem": "p", "response": "abc", "token_ids": None, "finish_reason": "length"}
    assert encoder.response_ids(sample_of(record, None, "")) == encoder.ids("abc")


def test_conversations_of_v1(encoder: Encoder) -> None:
    turns = [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}]
    columns, _ = encode(encoder, {"conversations": turns}, {"prompt": "1 + 1?", "response": "2"})
    assert columns["input_ids"][0] == columns["input_ids"][1]
    assert columns["labels"][0] == columns["labels"][1]
    # Two responses to one problem are two samples of it.
    assert columns["problem_id"][0] == columns["problem_id"][1]
    assert columns["sample_index"] == [0, 1]
    own = [{"from": "system", "value": "Mine."}, *turns]
    assert sample_of({"conversations": own}, "Think.", "").messages[0]["content"] == "Mine."


def test_malformed_records_are_counted_by_row(encoder: Encoder) -> None:
    _, tally = encode(
        encoder,
        {"problem": "", "cot": "2"},
        {"problem": "p", "cot": "2"},
        {"problem": "p", "cot": None},
        {"conversations": [{"from": "human", "value": "p"}]},
        {"conversations": [{"from": "human", "value": "p"}, {"from": "human", "value": "q"}]},
    )
    assert tally.malformed == [
        (0, "malformed_no_problem"),
        (2, "malformed_no_response"),
        (3, "malformed_conversation"),
        (4, "malformed_no_response"),
    ]
    assert tally.dropped.total() == 4


def test_a_failed_sample_is_dropped_and_not_malformed(encoder: Encoder) -> None:
    record = {"problem": "p", "response": "", "token_ids": [], "finish_reason": "error"}
    columns, tally = encode(encoder, record)
    assert columns["length"] == []
    assert (tally.dropped, tally.malformed) == ({"empty_response": 1}, [])


def test_over_length(encoder: Encoder) -> None:
    # Defect 4: what is too long is cut, dropped or an error, and counted.
    long, short = {"problem": "p", "cot": "a b c d e f"}, {"problem": "p", "cot": "a"}
    whole, _ = encode(encoder, long)
    limit = whole["length"][0] - 2
    columns, tally = encode(encoder, long, short, limit=limit)
    assert (len(columns["length"]), tally.dropped) == (1, {"over_length": 1})
    columns, tally = encode(encoder, long, short, limit=limit, policy="truncate")
    assert columns["input_ids"][0] == whole["input_ids"][0][:limit]
    assert columns["labels"][0] == whole["labels"][0][:limit]
    assert (columns["length"][0], tally.truncated, tally.dropped) == (limit, 1, {})
    with pytest.raises(StageError, match=f"has {limit + 2} tokens.*the limit is {limit}"):
        encode(encoder, short, long, limit=limit, policy="error")
    exact, tally = encode(encoder, long, limit=limit + 2, policy="error")
    assert exact["input_ids"] == whole["input_ids"]


def test_a_prompt_that_leaves_no_room_is_dropped_even_when_cutting(encoder: Encoder) -> None:
    record = {"problem": "p", "cot": "a"}
    prompt = len(encoder.prompt_ids(sample_of(record, None, "").messages))
    _, tally = encode(encoder, record, limit=prompt, policy="truncate")
    assert (tally.dropped, tally.truncated) == ({"over_length": 1}, 0)
