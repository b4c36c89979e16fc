"""What a person sees when the input, the disk or another runner is in the way; about 20 s.

Every case goes through the command as a process: exit code, words, and what is left on the disk.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from end_to_end_helpers import (
    call,
    command,
    environment,
    folder_of,
    manifests,
    payload,
    write_recipes,
)

RECIPE = """
name: small
sources: {{data: {{path: {data}}}}}
stages:
  convert: {{format: nemotron, max_malformed: 0.1, inputs: {{source: data}}}}
  difficulty: {{}}
"""


def nemotron(number: int, answer: str | None = "4") -> dict[str, Any]:
    """A row of the source; its problem is the number, its metadata lacks a missing answer."""
    metadata = {"problem_source": "here"} | ({"expected_answer": answer} if answer else {})
    turns = [("user", f"What is {number}?"), ("assistant", "<think>four</think>4")]
    return {
        "messages": [{"role": role, "content": content} for role, content in turns],
        "metadata": json.dumps(metadata),
    }


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Two stages over ``data/``, which holds 20 good rows."""
    write_parquet(tmp_path / "data" / "good.parquet", [nemotron(i) for i in range(20)])
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(data=tmp_path / "data"))
    return path


def run(recipe: Path, runs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return call("run", recipe, "--profile", "paper", "--runs", runs, *words)


def finished(runs: Path) -> set[str]:
    """The stages that are whole; their files are compared with their manifests."""
    payload(runs)
    return {title.split("/")[1] for title in manifests(runs)}


def test_good_input_runs(recipe: Path, tmp_path: Path) -> None:
    answer = run(recipe, tmp_path / "runs")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert finished(tmp_path / "runs") == {"convert", "difficulty"}


def test_a_missing_source_is_named_and_nothing_is_made(recipe: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    answer = run(recipe, tmp_path / "runs", f"sources.data.path={absent}")
    assert answer.returncode == 2
    assert f"source data: {absent}: no such files." in answer.stderr
    assert "sources.data.path=PATH" in answer.stderr
    assert not (tmp_path / "runs" / "small").exists()


def garbage(folder: Path) -> str:
    (folder / "bad.parquet").write_bytes(b"this is no Parquet file at all")
    return "bad.parquet"


def cut(folder: Path) -> str:
    whole = (folder / "good.parquet").read_bytes()
    (folder / "bad.parquet").write_bytes(whole[: len(whole) // 2])
    return "bad.parquet"


def other_columns(folder: Path) -> str:
    write_parquet(folder / "bad.parquet", [{"question": "1+1?", "answer": "2"}])
    return "messages"


def emptied(folder: Path) -> str:
    (folder / "good.parquet").write_bytes(b"")
    return "good.parquet"


@pytest.mark.parametrize("spoil", [garbage, cut, other_columns, emptied])
def test_a_bad_file_is_named_and_no_artifact_is_made_of_it(
    recipe: Path, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    named = spoil(tmp_path / "data")
    answer = run(recipe, tmp_path / "runs")
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: stage small/convert: ")
    assert named in answer.stderr
    assert "Traceback" not in answer.stderr
    assert finished(tmp_path / "runs") == set()
    (tmp_path / "data" / "bad.parquet").unlink(missing_ok=True)
    write_parquet(tmp_path / "data" / "good.parquet", [nemotron(1)])
    assert run(recipe, tmp_path / "runs").returncode == 0


def test_too_many_malformed_rows_fail_and_stay_to_be_looked_at(
    recipe: Path, tmp_path: Path
) -> None:
    """3 of 23 are 13.0 %, the limit is 10 %; it is lifted to 15 %."""
    write_parquet(tmp_path / "data" / "no_answer.parquet", [nemotron(i, None) for i in range(3)])
    answer = run(recipe, tmp_path / "runs")
    assert answer.returncode == 1
    assert "3 of 23 rows are malformed (13.0%), the limit is 10.0%" in answer.stderr
    assert "convert.max_malformed" in answer.stderr
    apart = Path(answer.stderr.split("See ")[1].split(", fix the source")[0])
    records = [json.loads(line) for line in apart.read_text().splitlines()]
    assert [record["file"] for record in records] == ["no_answer.parquet"] * 3
    assert finished(tmp_path / "runs") == set()
    assert run(recipe, tmp_path / "runs", "convert.max_malformed=0.15").returncode == 0
    dropped = manifests(tmp_path / "runs")["small/convert"]["counts"]["dropped"]
    assert dropped == {"malformed_metadata": 3}


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; skips where mounting is not allowed."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here: only root may")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_a_read_only_runs_folder(recipe: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "size=1m") as disk:
        remount(disk, "ro")
        answer = run(recipe, disk / "runs")
    assert answer.returncode == 1
    assert f"{disk / 'runs'}" in answer.stderr
    assert "cannot be written" in answer.stderr
    assert "--runs" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_runs_folder_without_permission(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o500)
    answer = run(recipe, tmp_path / "runs")
    assert answer.returncode == 1
    assert "cannot be written" in answer.stderr


def test_a_full_disk_and_then_room(recipe: Path, tmp_path: Path) -> None:
    """Numbers of 4000 digits do not shrink below 1.6 KB: 2000 of them need over 3 MB."""
    rng = random.Random(0)
    rows = [nemotron(rng.getrandbits(13000)) for _ in range(2000)]
    write_parquet(tmp_path / "data" / "big.parquet", rows)
    with tmpfs(tmp_path / "disk", "size=1m") as disk:
        answer = run(recipe, disk / "runs")
        assert answer.returncode == 1
        assert answer.stderr.startswith("error: stage small/convert: ")
        assert "the disk is full. Free space and run again" in answer.stderr
        assert finished(disk / "runs") == set()
        remount(disk, "size=64m")
        assert run(recipe, disk / "runs").returncode == 0
        assert finished(disk / "runs") == {"convert", "difficulty"}


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """One checkpoint of 560 KB fits beside the sources' 600 KB, a second does not. About 25 s."""
    recipe = write_recipes(tmp_path)
    words = ["run", recipe, "--until", "lengths"]
    with tmpfs(tmp_path / "disk", "size=1400k") as disk:
        answer = call(*words, "--runs", disk / "runs")
        assert answer.returncode == 1
        assert answer.stderr.startswith("error: stage v1_sft/train: ")
        assert "the disk is full. Free space and run again" in answer.stderr
        remount(disk, "size=64m")
        answer = call(*words, "--runs", disk / "runs")
        assert (answer.returncode, answer.stderr) == (0, "")
        steps = (folder_of(disk / "runs", "v1_sft/train") / "metrics.jsonl").read_text()
        assert [json.loads(line)["step"] for line in steps.splitlines()] == [1, 2, 3, 4, 5, 6]


def test_a_second_runner_says_who_is_at_work(tmp_path: Path) -> None:
    recipe, runs = write_recipes(tmp_path), tmp_path / "runs"
    words = ["run", recipe, "--runs", runs, "--until", "difficulty"]
    first = subprocess.Popen(command(*words), env=environment(), stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not any(runs.glob("*/*.partial")):
            assert time.monotonic() < deadline, "the first runner never started a stage"
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)
        second = call(*words)
        assert second.returncode == 1
        assert f"in use by process {first.pid} on " in second.stderr
        assert "Wait until it has finished" in second.stderr
        first.send_signal(signal.SIGCONT)
        assert first.wait(timeout=60) == 0
    finally:
        first.kill()
        first.wait()
    assert finished(runs) == {"synthetic", "convert", "difficulty"}
    assert "nothing to do" in call(*words).stdout
