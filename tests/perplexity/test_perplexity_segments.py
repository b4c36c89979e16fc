"""What is encoded of a response, what is dropped, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_prob_server import LogProbServer
from perplexity_helpers import PROBLEMS, SERVER, read, response, run, write_inputs
from train_helpers import VOCABULARY, write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import RESPONSES, REWARDED
from pcl_reasoner.pack.encoder import load_encoder


@pytest.fixture
def server() -> Iterator[LogProbServer]:
    one = LogProbServer()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def asked(
    rows: list[dict[str, Any]], policy: Path, folder: Path, server: LogProbServer, **settings: Any
) -> list[list[int]]:
    """The prompts of all requests, in the order of the rows."""
    inputs = write_inputs(folder / "in", policy, rows)
    config = {**SERVER, "concurrency": 1, **settings}
    run(inputs, folder / "out", config, server_urls=[server.url])
    return server.prompts


def test_the_prompt_is_the_one_that_the_stages_settings_render(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    settings = {"system": "Think.", "suffix": " Box it."}
    (found,) = asked([response("a", 0, [9, 2])], policy, tmp_path, server, **settings)
    turns = [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "12-3=9 Box it."},
    ]
    assert found == [*load_encoder(policy).prompt_ids(turns), 9, 2]


def test_responses_of_another_model_are_encoded_again(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    """With the end of turn, if they ended; the columns then have the policy's tokens."""
    text = "<think> 12-3=9 </think> <answer> \\boxed{9} </answer>"
    rows = [
        response("a", 0, [151000, 151001], response=text),
        response("a", 1, [151000], response=text, finish_reason="length"),
        response("b", 0, [151000], response=""),
    ]
    found = asked(rows, policy, tmp_path, server, encode_text=True)
    encoder = load_encoder(policy)
    prompt, ids = encoder.prompt_ids([{"role": "user", "content": "12-3=9"}]), encoder.ids(text)
    assert found == [[*prompt, *ids, 2], [*prompt, *ids]]
    after = read(tmp_path / "out")
    assert [row["token_ids"] for row in after] == [[*ids, 2], ids, []]
    assert [row["n_tokens"] for row in after] == [len(ids) + 1, len(ids), 0]
    assert [row["trained_tokens"] for row in after] == [len(ids) + 1, len(ids), 0]
    assert after[2]["perplexity"] is None


def test_a_text_without_token_ids_is_encoded(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    rows = [response("a", 0, None, response="12-3=9"), response("a", 1, [5, 2])]
    asked(rows, policy, tmp_path, server)
    after = read(tmp_path / "out")
    assert after[0]["token_ids"] == [*load_encoder(policy).ids("12-3=9"), 2]
    assert after[1]["token_ids"] == [5, 2]


def test_token_ids_that_the_policy_does_not_know_are_refused(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    for number, ids in enumerate(([5, VOCABULARY], [-1, 5])):
        found = f"has token ids from {min(ids)} to {max(ids)}, the policy knows 0 to"
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(StageError, match=f"response 0 of problem a: {found} .*encode_te"):
            asked([response("a", 0, ids)], policy, folder, server)


def test_a_longer_response_is_an_error_or_a_counted_drop(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    prompt = len(load_encoder(policy).prompt_ids([{"role": "user", "content": PROBLEMS["a"]}]))
    fits = SERVER["seq_length"] - prompt
    rows = [response("a", 0, [5] * fits), response("a", 1, [6] * (fits + 1)), response("b", 0, [])]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    with pytest.raises(StageError, match=r"response 1 of problem a: has 65 tokens .*is 64"):
        run(inputs, tmp_path / "error", SERVER, server_urls=[server.url])
    settings = {**SERVER, "over_length": "drop"}
    counts = run(inputs, tmp_path / "out", settings, server_urls=[server.url])
    assert (counts.read, counts.kept, counts.dropped) == (3, 2, {"over_length": 1})
    assert counts.info["without_tokens"] == 1
    assert [(row["problem_id"], row["n_tokens"]) for row in read(tmp_path / "out")] == [
        ("a", fits),
        ("b", 0),
    ]


def test_selected_responses_keep_their_columns_and_old_perplexities_are_replaced(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    schema = pa.schema([*RESPONSES, ("perplexity", pa.float32()), *REWARDED])
    more = {"reward": 1.0, "pass_rate": 0.5, "advantage": 1.5, "perplexity": 9000.0}
    inputs = write_inputs(tmp_path / "in", policy, [])
    table = pa.Table.from_pylist([response("a", 0, [5, 2], **more)], schema=schema)
    pq.write_table(table, tmp_path / "in" / "responses.parquet")
    inputs["responses"] = tmp_path / "in"
    run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    found = pq.read_table(tmp_path / "out" / "responses.parquet")
    assert found.column_names == [
        *RESPONSES.names,
        *REWARDED.names,
        "perplexity",
        "trained_tokens",
    ]
    (row,) = found.to_pylist()
    assert (row["reward"], row["advantage"], row["trained_tokens"]) == (1.0, 1.5, 2)
    assert row["perplexity"] < 2


def test_many_responses_keep_their_order_over_batches(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    rows = [response("a", number, [3 + number % 200] * (number % 3)) for number in range(700)]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    run(inputs, tmp_path / "out", {**SERVER, "concurrency": 8}, server_urls=[server.url])
    after = read(tmp_path / "out")
    assert [row["sample_index"] for row in after] == list(range(700))
    assert [row["token_ids"] for row in after] == [row["token_ids"] for row in rows]
    assert [row["trained_tokens"] for row in after] == [number % 3 for number in range(700)]
    assert [row["perplexity"] is None for row in after] == [
        number % 3 == 0 for number in range(700)
    ]


def test_a_problem_that_is_unknown_or_has_no_text_is_refused(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path / "in", policy, [response("z", 0, [5])])
    with pytest.raises(StageError, match="problem z has responses but is not in clean.parquet"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    problems = pa.table({"problem_id": ["z"], "problem": [""]})
    pq.write_table(problems, tmp_path / "in" / "problems" / "clean.parquet")
    with pytest.raises(StageError, match="problem z has no text"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])


def test_responses_without_any_token_need_no_engine(policy: Path, tmp_path: Path) -> None:
    rows = [response("a", 0, []), response("b", 0, [])]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    counts = run(inputs, tmp_path / "out", SERVER)
    assert (counts.kept, counts.info["without_tokens"]) == (2, 2)
    assert counts.info["log_prob_mean"] is None
