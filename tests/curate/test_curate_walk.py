"""The four stages one after the other: order, shards and engines change no problem."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from curate_helpers import NEMOTRON, RAY, Folder, Rows, payload, read, record, walk, write

from pcl_reasoner.core.schema import DataEngine, Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import problem_id
from pcl_reasoner.curate.convert import convert
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.unique import UniqueConfig, unique
from pcl_reasoner.data_engine.tasks import connected


def some_records() -> Rows:
    """300 problems of 1 to 6 rows, two spellings each, scattered; every fifth lacks an answer."""
    records: Rows = []
    for i in range(300):
        for k in range(1 + i % 6):
            spelling = f"Café {i}" if k % 2 else f" Cafe\u0301 {i}\n"
            answer = None if i % 5 == 0 else str(i)
            records.append(record(spelling, " ".join(["w"] * (1 + (7 * i + k) % 13)), answer))
    return sorted(records, key=lambda r: hashlib.sha256(json.dumps(r).encode()).digest())


def scattered(folder: Path, records: Rows, files: int) -> Path:
    """The records in so many files, in their order."""
    for index in range(files):
        start, stop = (len(records) * i // files for i in (index, index + 1))
        write(folder / f"{index:02d}.parquet", records[start:stop])
    return folder


def test_walk_again_is_byte_identical(folder: Folder, tmp_path: Path, tokenizer: Path) -> None:
    source = scattered(folder("source"), some_records(), 3)
    once = payload(walk(source, tmp_path / "elsewhere" / "one [1]", tokenizer, threads=1))
    again = payload(walk(source, tmp_path / "two", tokenizer, threads=4))
    assert len(once) == 3 + 6 + 4 + 1 + len(["apart.jsonl"])
    assert once == again


def texts_of(runs: Path, stage: str) -> Rows:
    """A stage's rows without what names the file that they came from."""
    return [{k: v for k, v in r.items() if k != "row_id"} for r in read(runs / stage)]


def test_rows_do_not_depend_on_the_files(
    folder: Folder, tmp_path: Path, byte_tokenizer: Path
) -> None:
    """In 1, 2 and 16 files: the same rows and problems in the same order, but for their row_id."""
    records = some_records()
    found = {}
    for files in (1, 2, 16):
        source = scattered(folder(f"in_{files}"), records, files)
        runs = walk(source, tmp_path / f"of_{files}", byte_tokenizer)
        stages = ("convert/rows", "difficulty/partial", "difficulty/all_correct", "lengths/rows")
        problems = pq.read_table(runs / "unique" / "problems.parquet").drop_columns("source_row_id")
        histogram = (runs / "lengths" / "histogram.json").read_text()
        found[files] = [*(texts_of(runs, stage) for stage in stages), problems, histogram]
        assert len(list((runs / "convert" / "rows").iterdir())) == files
    assert len(found[1][0]) == len(records)
    assert found[1] == found[2] == found[16]


def test_the_set_of_problems_is_of_the_set_of_rows(
    folder: Folder, tmp_path: Path, byte_tokenizer: Path
) -> None:
    """Any order, in any files: the same problems, with the same rates and lengths."""
    records, drawn = some_records(), random.Random(0)
    sets = []
    for attempt in range(5):
        drawn.shuffle(records)
        source = scattered(folder(f"in_{attempt}"), records, drawn.randint(1, 9))
        runs = walk(source, tmp_path / f"of_{attempt}", byte_tokenizer)
        problems = pq.read_table(runs / "unique" / "problems.parquet").to_pylist()
        named = ("problem_id", "ground_truth", "pass_rate", "mean_cot_tokens")
        sets.append({tuple(p[name] for name in named) for p in problems})
    assert len(sets[0]) > 50
    assert all(found == sets[0] for found in sets)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for several walks: a stage would start its own."""
    with connected(DataEngine(**RAY)):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 2, 16])
def test_ray_gives_the_same_bytes(
    folder: Folder, tmp_path: Path, byte_tokenizer: Path, cluster: None, files: int
) -> None:
    """Of rows, problems and what is kept apart, whichever process made them."""
    records = some_records()
    for number in (3, 500, 1000):
        records[number]["metadata"] = "{"
    source = scattered(folder("source"), records, files)
    local = payload(walk(source, tmp_path / "local", byte_tokenizer))
    assert local == payload(walk(source, tmp_path / "ray", byte_tokenizer, data=RAY))
    assert local["apart.jsonl"].count(b"malformed_metadata") == 3


def kill_one_worker(stop: threading.Event, killed: list[int]) -> None:
    """Kill the first process that is seen at a task."""
    while not stop.is_set() and not killed:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.name() == "ray::_call" or process.cmdline()[:1] == ["ray::_call"]:
                    process.kill()
                    killed.append(process.pid)
                    break
        stop.wait(0.001)


@pytest.mark.slow
def test_a_killed_worker_costs_no_row(folder: Folder, tmp_path: Path) -> None:
    records = [record(f"p{i}", "w " * 5000) for i in range(16 * 200)]
    source = scattered(folder("source"), records, 16)
    local, ray = folder("local"), folder("ray")
    stop, killed = threading.Event(), list[int]()
    thread = threading.Thread(target=kill_one_worker, args=(stop, killed))
    for output, placement in ((local, {}), (ray, {"data": RAY})):
        context = StageContext("convert", tmp_path / f"{output.name}.jsonl", Placement(**placement))
        if placement:
            thread.start()
        counts = convert(NEMOTRON, {"source": source}, output, context)
        assert (counts.read, counts.kept) == (3200, 3200)
    stop.set()
    thread.join()
    assert len(killed) == 1
    assert payload(local) == payload(ray)
    assert len(payload(ray)) == 16


def test_problems_do_not_depend_on_the_order(
    folder: Folder, tmp_path: Path, tokenizer: Path
) -> None:
    """The set of problems is that worked out here, whichever way the rows lie."""
    records = some_records()
    expected = set()
    for i in range(300):
        count = 1 + i % 6
        tokens = [1 + (7 * i + k) % 13 for k in range(count)]
        if count % 4 and sum(tokens) / count >= 6 and i % 5:
            rate = count / (4 * math.ceil(count / 4))
            expected.add((problem_id(f"Café {i}"), str(i), rate))
    assert 50 < len(expected) < 250
    for name, order in (("forth", records), ("back", records[::-1])):
        source = folder(f"{name}_source")
        write(source / "a.parquet", order[:500])
        write(source / "b.parquet", order[500:])
        runs = walk(source, tmp_path / name, tokenizer, threads=2)
        problems = pq.read_table(runs / "unique" / "problems.parquet").to_pylist()
        assert len(problems) == len(expected)
        found = {(p["problem_id"], p["ground_truth"], p["pass_rate"]) for p in problems}
        assert found == expected
        row_ids = [p["source_row_id"].split(":") for p in problems]
        positions = [(file, int(number)) for file, number in row_ids]
        assert positions == sorted(positions)
        texts = {("a.parquet", i): r for i, r in enumerate(order[:500])}
        texts |= {("b.parquet", i): r for i, r in enumerate(order[500:])}
        for problem, position in zip(problems, positions, strict=True):
            assert problem["problem"] == texts[position]["messages"][0]["content"]


def test_parts_without_rows_go_through(
    folder: Folder, tmp_path: Path, tokenizer: Path, context: StageContext
) -> None:
    """A source file of refused records only leaves an empty part, and the walk goes on."""
    source = folder("source")
    write(source / "a.parquet", [{**record("p"), "metadata": "{"}])
    write(source / "b.parquet", [record("p", "w w w w w w")])
    write(source / "c.parquet", [record("q", "w")])
    runs = walk(source, tmp_path / "some", tokenizer, threads=2)
    problems = pq.read_table(runs / "unique" / "problems.parquet").to_pylist()
    assert [p["source_row_id"] for p in problems] == ["b.parquet:0"]
    rest = {"rows": runs / "convert"}
    difficulty(DifficultyConfig(divisor=1), rest, folder("none"), context)
    inputs = {"rows": tmp_path / "none", "tokenizer": tokenizer}
    counts = lengths(LengthsConfig(min_mean_tokens=0), inputs, folder("long"), context)
    assert (counts.read, counts.kept, counts.dropped) == (0, 0, {})
    counts = unique(UniqueConfig(), {"rows": tmp_path / "long"}, folder("last"), context)
    assert (counts.read, counts.kept, counts.dropped) == (0, 0, {})
    assert len(context.warnings) == 3
