from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.evaluate.benchmark import read_benchmark
from pcl_reasoner.evaluate.stage import EvaluateConfig, evaluate
from pcl_reasoner.synthetic.base_model import write_model_folder
from pcl_reasoner.verifiers.kept_checks import KeptChecks

CONFIG = EvaluateConfig(n=4, max_new_tokens=40, max_model_len=200, suffix=" Box it.")


def boxed(answer: str) -> tuple[str, str]:
    return f"<think>so</think><answer>\\boxed{{{answer}}}</answer>", "stop"


# What the server answers to each problem, by sample.
ANSWERS = {
    # 8, 008 and +8 are one answer and win 3 to 1; as spelled 9 would win, which came first
    "3 + 5?": [boxed("9"), boxed("8"), boxed("008"), boxed("+8")],
    # cut off while thinking, though the last number is correct (no credit); then incorrect
    "2 + 2?": [("<think>it is \\boxed{4}", "length"), boxed("5"), boxed("5"), boxed("4")],
    "1 + 1?": [boxed("2")] * 4,
    "hard": [("<think></think>no idea", "stop")] * 4,
    "refused": [],
}


class Handler(BaseHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.reply(200, {"data": [{"id": "policy"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        problem = body["messages"][-1]["content"].removesuffix(" Box it.")
        self.asked.append(problem)
        if problem == "refused":
            self.reply(400, {"error": {"message": "too long"}})
            return
        choices = [
            {"index": i, "message": {"content": text}, "finish_reason": reason}
            for i, (text, reason) in enumerate(ANSWERS[problem])
        ]
        self.reply(200, {"choices": choices})

    def reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model_folder(folder, ["3 + 5? 2 + 2?"], vocab_size=270, hidden=32, layers=1, seed=0)
    return folder


def context(folder: Path, *urls: str) -> StageContext:
    return StageContext("evaluate", folder / "quarantined.jsonl", Placement(server_urls=list(urls)))


def write_benchmark(file: Path, *records: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_an_answer_that_failed_is_an_error_and_no_zero(
    url: str, model: Path, tmp_path: Path
) -> None:
    records = [{"id": str(i), "problem": "3 + 5?", "answer": "8"} for i in range(40)]
    records.append({"id": "d", "problem": "refused", "answer": "3"})
    inputs = {"model": model, "benchmark": write_benchmark(tmp_path / "b.jsonl", *records)}
    with pytest.raises(StageError) as caught:
        evaluate(CONFIG, inputs, tmp_path, context(tmp_path, url))
    # 4 of 164 are 2.4 %: less than the 5 % of the stage sample.
    assert "4 of 164 responses failed, the limit is max_failed 0%" in str(caught.value)
    assert "and run again: nothing is lost" in str(caught.value)
    assert not (tmp_path / "scores.json").exists()


def test_a_question_without_room_for_an_answer_is_an_error_of_the_local_sampler_too(
    model: Path, tmp_path: Path
) -> None:
    records = [{"id": "a", "problem": "3 + 5? " * 80, "answer": "8"}]
    inputs = {"model": model, "benchmark": write_benchmark(tmp_path / "b.jsonl", *records)}
    config = EvaluateConfig(engine="local", n=2, max_new_tokens=8, max_model_len=64)
    with pytest.raises(StageError, match="2 of 2 responses have no room after their prompts"):
        evaluate(config, inputs, tmp_path, context(tmp_path))


def test_two_benchmarks_end_to_end(url: str, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    easy = write_benchmark(
        tmp_path / "easy.jsonl",
        {"id": "a", "problem": "3 + 5?", "answer": "8"},
        {"id": "b", "problem": "2 + 2?", "answer": 4},
    )
    folder = tmp_path / "other"
    folder.mkdir()
    rows = [
        {"id": "a", "question": "1 + 1?", "answer": "2"},
        {"id": "c", "question": "hard", "answer": "3"},
        {"id": "d", "question": "refused", "answer": "3"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
    inputs = {"model": model, "benchmark.easy": easy, "benchmark.other": folder}
    counts = evaluate(
        CONFIG.model_copy(update={"max_failed": 0.2}), inputs, output, context(output, url)
    )

    scores = json.loads((output / "scores.json").read_text())["benchmarks"]
    first = scores["easy"]
    # Correct 3 of 4 and 1 of 4: mean 0.5, std (ddof 1) 0.3535534, / sqrt(2) = 0.25.
    assert (first["problems"], first["n"]) == (2, 4)
    assert first["avg_at_n"] == pytest.approx(0.5)
    assert first["standard_error"] == pytest.approx(0.25)
    assert first["interval"] == pytest.approx([0.01, 0.99])  # 0.5 ± 0.49
    assert first["pass_at_n"] == 1.0
    # 8 wins the first problem; in the second 5 has two votes, 4 one: the cut-off one is none.
    assert first["maj_at_n"] == 0.5
    assert first["finish_reasons"] == {"length": 1, "stop": 7}
    assert first["unfinished"] == 1 / 8
    assert first["outcomes"] == {"correct": 4, "unfinished": 1, "incorrect": 3}
    # Means 1, 0, 0: a failed request counts as incorrect, not as absent.
    second = scores["other"]
    assert second["avg_at_n"] == pytest.approx(1 / 3)
    assert second["outcomes"] == {"error": 4, "no_box": 4, "correct": 4}
    assert second["standard_error"] == pytest.approx(1 / 3)  # variance 1/3, / 3 problems
    assert (counts.read, counts.kept, counts.dropped) == (20, 20, {})
    assert counts.info["scores"] == scores
    assert counts.info["failed"] == 4

    lines = [json.loads(line) for line in (output / "generations.jsonl").read_text().splitlines()]
    assert [(line["benchmark"], line["id"]) for line in lines] == [
        ("easy", "a"),
        ("easy", "b"),
        ("other", "a"),
        ("other", "c"),
        ("other", "d"),
    ]
    assert lines[1] == {
        "id": "b",
        "benchmark": "easy",
        "prompt": "2 + 2? Box it.",
        "answer": "4",
        "gen": [text for text, _ in ANSWERS["2 + 2?"]],
        "accuracy": [0.0, 0.0, 0.0, 1.0],
        "finish_reason": ["length", "stop", "stop", "stop"],
    }
    table = pq.read_table(output / "per_problem.parquet").to_pylist()
    assert table[1] == {"benchmark": "easy", "id": "b", "n": 4, "correct": 1, "avg": 0.25}
    assert [row["correct"] for row in table] == [3, 1, 4, 0, 0]
    assert sorted(path.name for path in output.iterdir()) == [
        "generations.jsonl",
        "per_problem.parquet",
        "scores.json",
    ]


def test_scores_without_the_questions_that_the_training_data_held(
    url: str, model: Path, tmp_path: Path
) -> None:
    output, check = tmp_path / "out", tmp_path / "check"
    output.mkdir()
    check.mkdir()
    easy = write_benchmark(
        tmp_path / "easy.jsonl",
        {"id": "a", "problem": "3 + 5?", "answer": "8"},
        {"id": "b", "problem": "2 + 2?", "answer": 4},
    )
    # Of another benchmark's "b" nothing is said.
    hits = [{"benchmark": "easy", "benchmark_id": "a"}, {"benchmark": "x", "benchmark_id": "b"}]
    (check / "hits.jsonl").write_text("".join(json.dumps(hit) + "\n" for hit in hits))
    inputs = {"model": model, "benchmark.easy": easy, "contamination": check}
    evaluate(CONFIG, inputs, output, context(output, url))
    found = json.loads((output / "scores.json").read_text())["benchmarks"]["easy"]
    # Correct 3 of 4 and 1 of 4; without the first, 1 of 4.
    assert (found["problems"], found["avg_at_n"]) == (2, pytest.approx(0.5))
    assert found["contaminated_problems"] == 1
    without = found["without_contaminated"]
    assert (without["problems"], without["avg_at_n"]) == (1, pytest.approx(0.25))


def test_a_resumed_evaluation_asks_for_the_rest_and_is_the_same(
    url: str, model: Path, tmp_path: Path
) -> None:
    records = [
        {"id": "a", "problem": "3 + 5?", "answer": "8"},
        {"id": "b", "problem": "1 + 1?", "answer": "2"},
    ]
    inputs = {"model": model, "benchmark": write_benchmark(tmp_path / "b.jsonl", *records)}
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pcl_reasoner.inference.response_log.ResponseLog.delete", lambda self: self.close()
        )
        evaluate(CONFIG, inputs, tmp_path / "whole", context(tmp_path / "whole", url))
    log = (tmp_path / "whole" / "generations.partial.jsonl").read_text().splitlines(keepends=True)
    first = [line for line in log if '"benchmark/a"' in line]
    (tmp_path / "cut" / "generations.partial.jsonl").write_text("".join(first) + '{"problem_id"')
    Handler.asked.clear()
    evaluate(CONFIG, inputs, tmp_path / "cut", context(tmp_path / "cut", url))
    assert Handler.asked == ["1 + 1?"]
    for file in ("generations.jsonl", "scores.json", "per_problem.parquet"):
        assert hash_file(tmp_path / "cut" / file) == hash_file(tmp_path / "whole" / file)
    # Killed between the last write and the commit: nothing is asked again.
    Handler.asked.clear()
    counts = evaluate(CONFIG, inputs, tmp_path / "cut", context(tmp_path / "cut", url))
    assert (counts.kept, counts.info["failed"], Handler.asked) == (8, 0, [])


def test_the_embedded_engine_evaluates_too(model: Path, tmp_path: Path) -> None:
    benchmark = write_benchmark(tmp_path / "b.jsonl", {"problem": "3 + 5?", "answer": "8"})
    config = CONFIG.model_copy(update={"engine": "local", "max_new_tokens": 4})
    inputs = {"model": model, "benchmark": benchmark}
    results = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        evaluate(config, inputs, tmp_path / name, context(tmp_path / name))
        results.append((tmp_path / name / "generations.jsonl").read_bytes())
    assert results[0] == results[1]
    line = json.loads(results[0])
    assert (line["id"], len(line["gen"])) == ("b:0", 4)
    # Random weights answer nothing: what is cut at four tokens is unfinished, never correct.
    score = json.loads((tmp_path / "one" / "scores.json").read_text())["benchmarks"]["benchmark"]
    assert score["avg_at_n"] == 0.0
    assert score["standard_error"] is None
    assert score["interval"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "problem": "?", "answer": "1"}\n{"id": ', "b.jsonl, line 2: not JSON"),
        ('{"id": "a", "problem": "?"}\n', "record 1: answer must be text or a number"),
        ('{"id": "a", "prompt": "?", "answer": "1"}\n', "record 1: no text in problem"),
        ('{"id": "a", "problem": "?", "answer": "1"}\n' * 2, "record 2: id 'a' occurs twice"),
        ("[1]\n", "record 1: must be an object, got list"),
        ("\n", "no questions"),
    ],
)
def test_a_benchmark_that_is_not_whole_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "b.jsonl").write_text(text)
    with pytest.raises(StageError, match=message), KeptChecks(tmp_path) as kept:
        read_benchmark("b", tmp_path / "b.jsonl", kept)


def test_a_folder_without_a_benchmark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quarantined.jsonl").write_text("{}")
    with pytest.raises(StageError, match=r"no \.jsonl or \.parquet"), KeptChecks(tmp_path) as kept:
        read_benchmark("b", tmp_path, kept)
