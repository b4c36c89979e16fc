"""The stage: rows in, clean rows and evidence out."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.stage import contamination
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate import problem_id

WALK = (
    "Every morning Ada walks 9 kilometers at a constant speed and stops at a bakery on her way. "
    "At 4 kilometers per hour the walk takes her 3 hours, the stop included. How many minutes "
    "does she spend in the bakery?"
)
GRID = (
    "A token starts in the lower left corner of a grid with 6 rows and 8 columns and moves only "
    "right or up. In how many ways can it reach the upper right corner with exactly 4 turns?"
)
CLEAN = [
    "The angles of a triangle are in arithmetic progression. Find the middle angle.",
    "Let $a$ and $b$ be coprime. Show how many pairs with $ab = 720$ there are.",
]
ROWS = [CLEAN[0], WALK.replace("9", "8"), None, CLEAN[1], f"Question: {GRID}\nAnswer:", CLEAN[0]]


def table(problems: list[str | None], first: int = 0) -> pa.Table:
    return pa.table(
        {
            "problem_id": [problem_id(problem or "") for problem in problems],
            "problem": problems,
            "ground_truth": [str(first + row) for row in range(len(problems))],
            "pass_rate": pa.array([0.25] * len(problems), pa.float32()),
        }
    )


def write_benchmark(path: Path, questions: dict[str, str], key: str = "problem") -> Path:
    lines = [json.dumps({"id": i, key: q, "answer": "1"}) for i, q in questions.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    problems = tmp_path / "unique"
    problems.mkdir()
    pq.write_table(table(ROWS), problems / "problems.parquet")
    benchmark = write_benchmark(tmp_path / "ours.jsonl", {"walk": WALK, "grid": GRID})
    return {"problems": problems, "benchmark": benchmark}


def run(
    inputs: dict[str, Path],
    output: Path,
    placement: dict[str, object] | None = None,
    **settings: object,
) -> Counts:
    output.mkdir()
    apart = output / "quarantined.jsonl"
    context = StageContext(
        name="contamination", quarantined=apart, placement=Placement(**(placement or {}))
    )
    config = ContaminationConfig(**settings)
    return contamination(config, inputs, output, context)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_removal_reaches_the_clean_rows(inputs: dict[str, Path], tmp_path: Path) -> None:
    # Defect 2: what is listed must not be in what the next stage reads.
    out = tmp_path / "out"
    counts = run(inputs, out)
    clean, hits = pq.read_table(out / "clean.parquet"), lines(out / "hits.jsonl")
    assert clean.schema == table(ROWS).schema
    assert clean.column("problem").to_pylist() == [CLEAN[0], CLEAN[1], CLEAN[0]]
    assert clean.column("ground_truth").to_pylist() == ["0", "3", "5"]
    assert [(hit["row"], hit["benchmark_id"]) for hit in hits] == [(1, "walk"), (4, "grid")]
    assert (counts.unit, counts.read, counts.kept) == ("problems", 6, 3)
    assert counts.dropped == {"contaminated": 2, "malformed_no_problem": 1}
    # The walk with another number is no rewrite; the grid is.
    assert counts.info["by_rule"] == {"embedding+ngrams+likeness": 1, "ngrams": 1}
    assert counts.info["benchmark_questions"] == 2
    assert counts.info["embedder"]["dimension"] == 384
    (apart,) = lines(out / "quarantined.jsonl")
    assert (apart["file"], apart["row"]) == ("problems.parquet", 2)


def test_kind_and_checks_are_carried_and_livecodebench_is_compared(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    """Its lines have the question as question_content; an id is the one that evaluate gives."""
    kinds = ["math", "code", "chat", None, "code", "math"]
    checks = ["", '{"tests": {}}', "", None, "{}", ""]
    source = table(ROWS).append_column("kind", pa.array(kinds, pa.string()))
    source = source.append_column("checks", pa.array(checks, pa.string()))
    pq.write_table(source, inputs["problems"] / "problems.parquet")
    line = {"question_id": "made_up_a", "question_content": WALK, "public_test_cases": "[]"}
    inputs["benchmark"].write_text(json.dumps(line) + "\n", encoding="utf-8")
    counts = run(inputs, tmp_path / "out")
    assert counts.dropped == {"contaminated": 1, "malformed_no_problem": 1}
    (hit,) = lines(tmp_path / "out" / "hits.jsonl")
    assert (hit["row"], hit["benchmark_id"]) == (1, "made_up_a")
    clean = pq.read_table(tmp_path / "out" / "clean.parquet")
    assert clean.schema == source.schema
    assert clean["kind"].to_pylist() == ["math", None, "code", "math"]
    assert clean["checks"].to_pylist() == ["", None, "{}", ""]


def test_a_hit_says_what_was_compared(inputs: dict[str, Path], tmp_path: Path) -> None:
    run(inputs, tmp_path / "out")
    hit = lines(tmp_path / "out" / "hits.jsonl")[0]
    cosine, log_odds = hit.pop("cosine"), hit.pop("log_odds")
    assert isinstance(cosine, float) and 0.95 < cosine < 1 and round(cosine, 4) == cosine
    assert isinstance(log_odds, float) and log_odds < -1 and round(log_odds, 4) == log_odds
    shared = hit.pop("shared")
    assert isinstance(shared, list) and "9" not in shared and ":speed" in shared
    assert hit == {
        "row": 1,
        "file": "problems.parquet",
        "problem_id": problem_id(str(ROWS[1])),
        "problem": ROWS[1],
        "benchmark": "benchmark",
        "benchmark_id": "walk",
        "benchmark_problem": WALK,
        "window": 0,
        "ngrams": 1.0,
        "rule": "ngrams",
    }
    misses = lines(tmp_path / "out" / "near_misses.jsonl")
    assert sorted(str(miss["problem"]) for miss in misses) == sorted(CLEAN)
    assert all(miss["rule"] is None for miss in misses)
    page = (tmp_path / "out" / "evidence.html").read_text(encoding="utf-8")
    assert "<mark>8</mark>" in page and "<mark>9</mark>" in page


def test_the_sweep_says_what_the_threshold_did(inputs: dict[str, Path], tmp_path: Path) -> None:
    counts = run(inputs, tmp_path / "out", threshold=0.9)
    sweep = json.loads((tmp_path / "out" / "sweep.json").read_text(encoding="utf-8"))
    assert counts.info["threshold"] == 0.9
    assert sweep["0.90"]["with_ngrams"] == counts.dropped["contaminated"] == 2


def test_the_rows_of_several_files_pass_through(inputs: dict[str, Path], tmp_path: Path) -> None:
    rows = tmp_path / "convert" / "rows"
    rows.mkdir(parents=True)
    pq.write_table(table([CLEAN[0], WALK]), rows / "00000.parquet")
    pq.write_table(table([WALK, CLEAN[1]], first=2), rows / "00001.parquet")
    counts = run(
        {**inputs, "problems": rows.parent}, tmp_path / "out", embedding=False, containment=0.5
    )
    assert (counts.unit, counts.read, counts.kept) == ("rows", 4, 2)
    clean = pq.read_table(tmp_path / "out" / "clean.parquet")
    assert clean.column("ground_truth").to_pylist() == ["0", "3"]
    hits = lines(tmp_path / "out" / "hits.jsonl")
    assert [(hit["row"], hit["file"]) for hit in hits] == [
        (1, "rows/00000.parquet"),
        (2, "rows/00001.parquet"),
    ]


def test_several_benchmarks(inputs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_benchmark(folder / "grid.jsonl", {"7": GRID}, key="question")
    several = {
        "problems": inputs["problems"],
        "benchmark.first": write_benchmark(tmp_path / "walk.jsonl", {"7": WALK}),
        "benchmark.second": folder,
    }
    counts = run(several, tmp_path / "out", embedding=False)
    hits = lines(tmp_path / "out" / "hits.jsonl")
    assert [(hit["row"], hit["benchmark"], hit["benchmark_id"]) for hit in hits] == [
        (1, "first", "7"),
        (4, "second", "7"),
    ]
    assert counts.info["benchmark_questions"] == 2


def test_the_same_bytes_again(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(inputs, tmp_path / name, near_duplicates=0.9)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [
        "clean.parquet",
        "evidence.html",
        "hits.jsonl",
        "near_duplicates.jsonl",
        "near_misses.jsonl",
        "quarantined.jsonl",
        "review.jsonl",
        "sweep.json",
    ]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.slow
def test_the_same_bytes_on_ray(inputs: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is an extra and is not installed")
    run(inputs, tmp_path / "here", near_duplicates=0.9)
    data = {"engine": "ray", "workers": 2}
    run(inputs, tmp_path / "ray", near_duplicates=0.9, placement={"data": data, "threads": 1})
    for file in sorted((tmp_path / "here").iterdir()):
        assert file.read_bytes() == (tmp_path / "ray" / file.name).read_bytes(), file.name


def test_near_duplicates_are_dropped_and_listed(inputs: dict[str, Path], tmp_path: Path) -> None:
    copy = CLEAN[1].replace("Show how", "Say how")
    pq.write_table(table([*CLEAN, copy, CLEAN[1]]), inputs["problems"] / "problems.parquet")
    counts = run(inputs, tmp_path / "out", near_duplicates=0.9)
    assert counts.dropped == {"near_duplicate": 1}
    (record,) = lines(tmp_path / "out" / "near_duplicates.jsonl")
    assert (record["row"], record["kept_problem"]) == (2, CLEAN[1])
    clean = pq.read_table(tmp_path / "out" / "clean.parquet")
    assert clean.column("ground_truth").to_pylist() == ["0", "1", "3"]


def test_nothing_left_is_still_a_file(inputs: dict[str, Path], tmp_path: Path) -> None:
    pq.write_table(table([WALK]), inputs["problems"] / "problems.parquet")
    assert run(inputs, tmp_path / "out", embedding=False).kept == 0
    assert pq.read_table(tmp_path / "out" / "clean.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "problem": "x"\n', "line 1: not JSON"),
        ('{"id": "1", "text": "x"}\n', r"record 0: no text .* got the keys \['id', 'text'\]"),
        ("[1]\n", "expected an object"),
        ("\n", "has no question"),
    ],
)
def test_a_bad_benchmark_is_an_error(
    inputs: dict[str, Path], tmp_path: Path, text: str, message: str
) -> None:
    inputs["benchmark"].write_text(text, encoding="utf-8")
    with pytest.raises(StageError, match=message):
        run(inputs, tmp_path / "out", embedding=False)


def test_bad_problems_are_an_error(inputs: dict[str, Path], tmp_path: Path) -> None:
    target = inputs["problems"] / "problems.parquet"
    pq.write_table(pa.table({"question": ["x"]}), target)
    with pytest.raises(InputError, match="expected a column problem, got the columns question"):
        run(inputs, tmp_path / "out", embedding=False)
    target.unlink()
    with pytest.raises(StageError, match="no problems.parquet and no rows"):
        run(inputs, tmp_path / "again", embedding=False)
