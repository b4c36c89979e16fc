"""The synthetic sources: equal seeds, what is planted, and a base model like any other."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.convert import ConvertConfig, convert
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.unique import UniqueConfig, unique
from pcl_reasoner.synthetic import base_model
from pcl_reasoner.synthetic.stage import SyntheticConfig, synthetic

PLANTED = 6
SMALL: dict[str, Any] = {
    "benchmark_problems": 40,
    "sft_problems": 120,
    "rl_problems": 30,
    "planted": PLANTED,
    "vocab_size": 320,
    "hidden_size": 64,
}


def make(folder: Path, seed: int, **settings: Any) -> Path:
    folder.mkdir(parents=True)
    context = StageContext("synthetic", folder.with_suffix(".apart"))
    counts = synthetic(SyntheticConfig(seed=seed, **settings), {}, folder, context)
    assert counts.read == counts.kept
    return folder


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("synthetic") / "small", seed=0, **SMALL)


@pytest.fixture(scope="module")
def planted(small: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((small / "planted.json").read_text())
    return found


def nemotron_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "nemotron").glob("*.parquet"))
    assert len(files) > 1
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def questions(folder: Path) -> list[str]:
    """Of the benchmark."""
    lines = (folder / "benchmark.jsonl").read_text().splitlines()
    return [json.loads(line)["problem"] for line in lines]


class Walk:
    """Runs curation's stages one after another, each on what the one before left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, function: Any, config: Any, **inputs: Path) -> tuple[Path, Counts]:
        output = self.folder / function.__name__
        output.mkdir(parents=True)
        apart = output / "quarantined.jsonl"
        context = StageContext(
            function.__name__, apart, Placement(duckdb_memory="256MB", threads=1)
        )
        return output, function(config, inputs, output, context)


def test_equal_seeds_give_equal_bytes_and_others_do_not(small: Path, tmp_path: Path) -> None:
    expected = hashes(small)
    assert hashes(make(tmp_path / "again", seed=0, **SMALL)) == expected
    other = hashes(make(tmp_path / "other", seed=1, **SMALL))
    assert other.keys() == expected.keys()
    same = {name for name in expected if expected[name] == other[name]}
    # Sizes and settings do not depend on the seed; all that is drawn does.
    assert same <= {
        "base_model/config.json",
        "base_model/generation_config.json",
        "base_model/tokenizer_config.json",
        "base_model/chat_template.jinja",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"benchmark_problems": 17}, "benchmark_problems is 17, expected at least 18. .*planted"),
        (
            {"data": "am_thinking", "benchmark_problems": 5, "math_problems": 17},
            "benchmark_problems is 5, expected at least 6; math_problems is 17, expected at least",
        ),
        ({"data": "am_thinking", "math_problems": 11, "planted": 0}, "11, expected at least 12"),
        ({"data": "am_thinking", "code_problems": 8}, "code_problems is 8, expected at least 9"),
    ],
)
def test_too_few_problems_for_the_special_cases(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        make(tmp_path / "x", seed=0, **{**SMALL, **settings})


def test_a_problem_has_one_change_per_day_at_most() -> None:
    for changes in ([], [0], [8], [3, 8]):
        with pytest.raises(ValidationError, match="changes"):
            SyntheticConfig(seed=0, changes=changes)


def test_what_is_planted_is_what_curation_drops(
    small: Path, planted: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    expected = planted["nemotron"]
    walk = Walk(tmp_path)
    config = ConvertConfig(format="nemotron", max_malformed=0.1)
    rows, counts = walk(convert, config, source=small / "nemotron")
    assert counts.read == len(nemotron_rows(small))
    assert sum(counts.dropped.values()) == expected["malformed_rows"]
    assert {"malformed_metadata", "malformed_messages", "malformed_problem"} <= set(counts.dropped)

    rows, counts = walk(difficulty, DifficultyConfig(), rows=rows)
    solved = ("solved_16_times_rows", "solved_32_times_rows")
    assert counts.dropped == {"all_correct": sum(expected[kind] for kind in solved)}

    everything = LengthsConfig(min_mean_tokens=0)
    rows, _ = walk(lengths, everything, rows=rows, tokenizer=small / "base_model")
    rows, counts = walk(unique, UniqueConfig(), rows=rows)
    assert counts.dropped["blank_ground_truth"] == expected["blank_ground_truth_rows"] == PLANTED
    kinds = ("partial", "solved_20_times", "short_cot", "copied", "wrapped", "paraphrased")
    with_a_good_row = PLANTED - expected["blank_ground_truth_only_problems"]
    problems = sum(expected[f"{kind}_problems"] for kind in kinds) + with_a_good_row
    assert counts.kept == problems
    assert counts.dropped["repeated_problem"] == counts.read - problems - PLANTED


def test_all_short_chains_and_no_others_are_under_the_laptops_limit(tmp_path: Path) -> None:
    folder = make(tmp_path / "full", seed=0)
    expected = json.loads((folder / "planted.json").read_text())["nemotron"]
    walk = Walk(tmp_path)
    rows, _ = walk(convert, ConvertConfig(format="nemotron"), source=folder / "nemotron")
    rows, _ = walk(difficulty, DifficultyConfig(), rows=rows)
    config = LengthsConfig(min_mean_tokens=44)
    _, counts = walk(lengths, config, rows=rows, tokenizer=folder / "base_model")
    short = expected["short_cot_rows"]
    assert counts.dropped == {"short_mean_cot": short}


def test_malformed_lines_of_the_conversations_are_all_refused(
    small: Path, planted: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    config = ConvertConfig(format="conversations", max_malformed=0.1)
    rows, counts = Walk(tmp_path)(convert, config, source=small / "conversations")
    assert sum(counts.dropped.values()) == planted["conversations"]["malformed_rows"] == 4
    assert set(counts.dropped) == {"malformed_json", "malformed_utf8", "malformed_messages"}
    assert counts.kept == SMALL["sft_problems"] + PLANTED
    kept = [path.read_text().count("\n") for path in rows.glob("quarantined.jsonl")]
    assert kept == [4]


def test_held_out_questions_are_in_the_data_only_where_they_are_planted(small: Path) -> None:
    held_out = set(questions(small))
    assert len(held_out) == SMALL["benchmark_problems"]
    found = Counter(
        row["messages"][0]["content"] for row in nemotron_rows(small) if row["messages"]
    )
    copied = held_out & set(found)
    wrapped = {
        question
        for question in held_out - copied
        if any(question in text and question != text for text in found)
    }
    assert (len(copied), len(wrapped)) == (PLANTED, PLANTED)

    lines = (small / "conversations" / "math.jsonl").read_bytes().splitlines()
    asked = []
    for line in lines:
        try:
            asked.append(json.loads(line)["conversations"][0]["value"])
        except (ValueError, KeyError):
            continue
    repeated = [question for question in asked if question in held_out]
    assert len(repeated) == len(set(repeated)) == PLANTED
    # Nor do the two training sets share a question.
    assert not (set(asked) - held_out) & set(found)


def test_the_tokenizer_gives_every_text_back(small: Path) -> None:
    tokenizer = Tokenizer.from_file(str(small / "base_model" / "tokenizer.json"))
    texts = [turn["content"] for row in nemotron_rows(small) for turn in row["messages"]]
    texts += questions(small) + ["naïve – 数学 \\frac{1}{2}\n\n  two  spaces\t"]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    special = (base_model.PAD, base_model.TURN_START, base_model.TURN_END)
    assert [tokenizer.token_to_id(token) for token in special] == [0, 1, 2]
    assert all(len(tokenizer.encode(tag).ids) == 1 for tag in base_model.TAGS)
    # One token a digit, as Qwen2's tokenizer has it.
    assert len(tokenizer.encode("2048").ids) == 4
    assert tokenizer.get_vocab_size() <= SMALL["vocab_size"]


def test_the_base_model_opens_in_transformers(small: Path) -> None:
    folder = small / "base_model"
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.vocab_size % 16 == 0
    theirs = AutoTokenizer.from_pretrained(folder)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    question = questions(small)[0]
    assert theirs(question)["input_ids"] == own.encode(question).ids
    assert theirs.eos_token_id == model.config.eos_token_id == 2
    assert theirs.pad_token_id == model.config.pad_token_id == 0
    rendered = theirs.apply_chat_template(
        [{"role": "user", "content": "How many?"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"


def test_a_head_of_the_base_model_looks_at_the_token_before(small: Path) -> None:
    """Half of what copying needs; without it, learning starts at a step that chance decides."""
    folder = small / "base_model"
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.randint(3, 300, (1, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        attention = model(ids, output_attentions=True).attentions[0][0, 0]
    back = [float(attention.diagonal(-places)[8:].mean()) for places in range(5)]
    assert back[1] > 0.6
    assert max(back[0], *back[2:]) < 0.2
