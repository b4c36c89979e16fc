from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_helpers import PROBLEMS, context, problems_folder

from pcl_reasoner.core.artifact import hash_file, payload_files
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate import problem_id
from pcl_reasoner.inference.dialogue import Problem
from pcl_reasoner.sample import generate
from pcl_reasoner.sample.local import LocalDrawer
from pcl_reasoner.sample.stage import SampleConfig, read_problems, sample

CONFIG = SampleConfig(engine="local", n=3, max_new_tokens=8, batch=4, seed=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Path:
    output = tmp_path_factory.mktemp("whole")
    counts = sample(CONFIG, inputs, output, context(output))
    assert (counts.read, counts.kept, counts.dropped) == (9, 9, {})
    assert counts.info["failed"] == 0
    return output


def hashes(folder: Path) -> dict[str, str]:
    files = [file for file in payload_files(folder) if file.name != "quarantined.jsonl"]
    return {file.relative_to(folder).as_posix(): hash_file(file) for file in files}


def test_columns_order_and_text(whole: Path, inputs: dict[str, Path]) -> None:
    from tokenizers import Tokenizer

    table = pq.read_table(whole / "responses" / "part-00000.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types.items()) == [
        ("problem_id", "string"),
        ("sample_index", "int32"),
        ("response", "string"),
        ("token_ids", "list<element: int32>"),
        ("finish_reason", "string"),
        ("n_tokens", "int32"),
        ("seed", "int64"),
        ("seconds", "float"),
        ("server", "string"),
    ]
    rows = table.to_pylist()
    keys = [(row["problem_id"], row["sample_index"]) for row in rows]
    assert keys == [(name, i) for name in sorted(map(problem_id, PROBLEMS)) for i in range(3)]
    tokenizer = Tokenizer.from_file(str(inputs["policy"] / "tokenizer.json"))
    for row in rows:
        ids = row["token_ids"]
        assert row["n_tokens"] == len(ids) <= 8
        assert (row["finish_reason"] == "stop") == (ids[-1] == 2)
        kept = ids[:-1] if ids[-1] == 2 else ids
        assert row["response"] == tokenizer.decode(kept, skip_special_tokens=False)
        assert row["seconds"] is None
        assert row["server"] == "local"
    assert len({row["seed"] for row in rows}) == len({tuple(row["token_ids"]) for row in rows}) == 9


def test_sampling_says_how_it_was_sampled(whole: Path, inputs: dict[str, Path]) -> None:
    written = json.loads((whole / "sampling.json").read_text())
    assert {key: written[key] for key in ("engine", "n", "temperature", "top_k", "seed")} == {
        "engine": "local",
        "n": 3,
        "temperature": 0.6,
        "top_k": 40,
        "seed": 5,
    }
    other = SampleConfig(**{**CONFIG.model_dump(), "template": str(inputs["policy"] / "t.jinja")})
    (inputs["policy"] / "t.jinja").write_text("{{ messages[0].content }}<|im_end|>")
    described = generate.describe(other, inputs["policy"])
    assert described["template_sha256"] != written["template_sha256"]
    assert described["model_fingerprint"] == written["model_fingerprint"]


def test_a_killed_run_goes_on_to_the_same_bytes(
    whole: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    rows = pq.read_table(whole / "responses" / "part-00000.parquet").to_pylist()
    lines = [json.dumps(row, ensure_ascii=False) for row in rows[:6]]
    # SIGKILL tore the last line.
    log = tmp_path / "responses.partial.jsonl"
    log.write_text("\n".join(lines) + "\n" + json.dumps(rows[6])[:25])
    drawn: list[int] = []
    real = LocalDrawer._draw_batch

    def count(*arguments: object) -> object:
        drawn.append(len(arguments[1]))  # type: ignore[arg-type]
        return real(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalDrawer, "_draw_batch", count)
        counts = sample(CONFIG, inputs, tmp_path, context(tmp_path))
    assert counts.kept == 9
    assert hashes(tmp_path) == hashes(whole)
    # Batches are 4, 4 and 1 whatever is there; the whole ones are not drawn again.
    assert drawn == [4, 1]
    assert not log.exists()


def test_a_kill_after_the_last_write_loses_nothing(
    whole: Path, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "cut")
    monkeypatch.setattr(generate, "generate", lambda *arguments: pytest.fail("asked again"))
    counts = sample(CONFIG, inputs, tmp_path / "cut", context(tmp_path / "cut"))
    assert (counts.read, counts.kept, counts.info["failed"]) == (9, 9, 0)
    assert hashes(tmp_path / "cut") == hashes(whole)


def test_another_seed_is_another_sample(
    whole: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    sample(CONFIG.model_copy(update={"seed": 6}), inputs, tmp_path, context(tmp_path))
    name = "responses/part-00000.parquet"
    assert hashes(tmp_path)[name] != hashes(whole)[name]


def test_a_prompt_without_room_is_a_failed_response(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    folder = problems_folder(tmp_path / "p", [PROBLEMS[0], "apples " * 600])
    given = {**inputs, "problems": folder}
    with pytest.raises(StageError, match=r"3 of 6 responses have no room .* max_failed 5%"):
        sample(CONFIG, given, tmp_path, context(tmp_path))
    config = CONFIG.model_copy(update={"max_failed": 0.5})
    counts = sample(config, given, tmp_path, context(tmp_path))
    rows = pq.read_table(tmp_path / "responses" / "part-00000.parquet").to_pylist()
    failed = [row for row in rows if row["finish_reason"] == "error"]
    assert {row["problem_id"] for row in failed} == {problem_id("apples " * 600)}
    assert [(row["response"], row["token_ids"]) for row in failed] == [("", [])] * 3
    assert (counts.kept, counts.info["failed"]) == (6, 3)


def test_max_tokens_none_is_the_rest_of_the_context(inputs: dict[str, Path]) -> None:
    config = CONFIG.model_copy(update={"max_new_tokens": None})
    dialogue = generate.Dialogue(inputs["policy"], config)
    prompt = dialogue.prompt(Problem("x", PROBLEMS[0]))
    assert dialogue.response_limit(prompt, 100) == 100 - len(prompt.ids)
    assert generate.Dialogue(inputs["policy"], CONFIG).response_limit(prompt, 100) == 8
    assert (
        generate.Dialogue(inputs["policy"], CONFIG).response_limit(prompt, len(prompt.ids) + 3) == 3
    )


def test_a_repeated_problem_is_read_once_and_counted(tmp_path: Path) -> None:
    folder = problems_folder(tmp_path, [PROBLEMS[2], PROBLEMS[0], PROBLEMS[2]])
    problems, repeated = read_problems(folder / "clean.parquet")
    assert {problem.text for problem in problems} == {PROBLEMS[0], PROBLEMS[2]}
    assert [problem.id for problem in problems] == sorted(problem.id for problem in problems)
    assert repeated == 1


def test_the_text_leaves_out_the_end_token_and_nothing_else(inputs: dict[str, Path]) -> None:
    dialogue = generate.Dialogue(inputs["policy"], CONFIG)
    ids = dialogue.encode("<think>3</think><|im_start|>8")
    assert dialogue.response([*ids, 2], "stop") == "<think>3</think><|im_start|>8"
    assert dialogue.response(ids, "length") == "<think>3</think><|im_start|>8"
    assert dialogue.response([*ids, 2], "length") == "<think>3</think><|im_start|>8<|im_end|>"


def test_missing_inputs_are_named(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"clean\.parquet: does not exist"):
        sample(CONFIG, {**inputs, "problems": tmp_path}, tmp_path, context(tmp_path))
    with pytest.raises(StageError, match=r"no safetensors file"):
        sample(CONFIG, {**inputs, "policy": tmp_path}, tmp_path, context(tmp_path))


def test_importing_the_stage_is_cheap() -> None:
    code = (
        "import sys, pcl_reasoner.sample.stage, pcl_reasoner.evaluate.stage;"
        "heavy = {'numpy', 'pyarrow', 'httpx', 'mindspore', 'tokenizers', 'jinja2', 'torch'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_only_problems_of_the_kinds_that_are_named_are_sampled(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    rows = pq.read_table(inputs["problems"] / "clean.parquet").to_pylist()
    kinds = ["math", "code", None]
    rows = [{**row, "kind": kind} for row, kind in zip(rows, kinds, strict=True)]
    (tmp_path / "problems").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "problems" / "clean.parquet")
    given = {**inputs, "problems": tmp_path / "problems"}
    chosen = CONFIG.model_copy(update={"kinds": ["math"]})
    counts = sample(chosen, given, tmp_path, context(tmp_path))
    # 3 problems x 3 responses; a problem without a kind is of math.
    assert (counts.read, counts.kept, counts.dropped) == (9, 6, {"other_kind": 3})
    asked = pq.read_table(tmp_path / "responses" / "part-00000.parquet")["problem_id"].to_pylist()
    assert set(asked) == {rows[0]["problem_id"], rows[2]["problem_id"]}
    none = CONFIG.model_copy(update={"kinds": ["chat", "science"]})
    with pytest.raises(StageError, match="no problem is of kind chat or science; it has code, m"):
        sample(none, given, tmp_path / "none", context(tmp_path))
