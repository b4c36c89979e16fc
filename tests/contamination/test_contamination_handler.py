"""The handler and the stage are one check: they keep the same rows."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.stage import contamination
from pcl_reasoner.core.stage import StageContext

QUESTIONS = [
    "A token moves right or up on a grid of 6 rows and 8 columns. How many ways are there?",
    "Find the least prime $p$ such that $n^4+1$ is divisible by $p^2$ for some integer $n$.",
]
PROBLEMS = [
    "The angles of a triangle are in arithmetic progression. Find the middle angle.",
    QUESTIONS[0].replace("6", "7"),
    "",
    "User: " + QUESTIONS[1],
    "How many subsets of a set of ten elements have three elements?",
]


def handler_module() -> ModuleType:
    """The file by itself: importing the package of handlers needs MindFormers' side too."""
    path = Path(__file__).parents[2] / "handlers" / "decontamination.py"
    spec = importlib.util.spec_from_file_location("decontamination_handler", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_handler_and_stage_agree(tmp_path: Path) -> None:
    benchmarks = []
    for name, question in zip(("a", "b"), QUESTIONS, strict=True):
        (tmp_path / name).mkdir()
        benchmarks.append(tmp_path / name / "test.jsonl")
        benchmarks[-1].write_text(json.dumps({"id": name, "problem": question}) + "\n")
    output = tmp_path / "out"
    output.mkdir()
    table = pa.table({"problem": PROBLEMS, "reward": [0.0, 1.0, 0.5, 0.25, 0.75]})
    pq.write_table(table, tmp_path / "problems.parquet")
    contamination(
        ContaminationConfig(threshold=0.8),
        {"problems": tmp_path, "benchmark.a": benchmarks[0], "benchmark.b": benchmarks[1]},
        output,
        StageContext(name="contamination", quarantined=output / "quarantined.jsonl"),
    )
    handler = handler_module().DecontaminationHandler(
        benchmark=[str(path) for path in benchmarks], threshold=0.8
    )
    clean = handler(datasets.Dataset(table))
    assert clean.to_list() == pq.read_table(output / "clean.parquet").to_pylist()
    assert clean["reward"][:] == [0.0, 0.75]


def test_the_compared_column_can_have_another_name(tmp_path: Path) -> None:
    benchmark = tmp_path / "one.jsonl"
    benchmark.write_text(json.dumps({"id": 1, "problem": QUESTIONS[0]}) + "\n")
    handler = handler_module().DecontaminationHandler(
        benchmark=str(benchmark), field="question", embedding=False
    )
    data = datasets.Dataset.from_dict({"question": [PROBLEMS[1], PROBLEMS[0]]})
    assert handler(data)["question"][:] == [PROBLEMS[0]]
