"""Published rounds: what changes in them afterwards is found before training goes on from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rounds.files import (
    Published,
    check_published,
    publish,
    published_rounds,
    round_folder,
)


def two_rounds(rounds: Path) -> None:
    for number in range(2):
        folder = round_folder(rounds, number)
        (folder / "rows").mkdir(parents=True)
        (folder / "rows" / "data.arrow").write_bytes(b"rows")
        (folder / "responses.parquet").write_bytes(b"responses")
        (folder / "tests.partial.jsonl").write_text("{}\n")
        publish(rounds, Published(number, 3, 126, 11))
        (folder / "tests.partial.jsonl").unlink()
        (folder / "weights.json").write_text("{}")


def test_published_rounds_are_as_they_were_written(tmp_path: Path) -> None:
    rounds = tmp_path / "rl-12345678.partial" / "rounds"
    two_rounds(rounds)
    check_published(rounds)
    assert published_rounds(rounds) == [Published(0, 3, 126, 11), Published(1, 3, 126, 11)]


@pytest.mark.parametrize("name", ["rows/data.arrow", "responses.parquet", "round.json"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_changed_file_is_named_with_the_folder_to_delete(
    tmp_path: Path, name: str, is_deleted: bool
) -> None:
    rounds = tmp_path / "rl-12345678.partial" / "rounds"
    two_rounds(rounds)
    file = round_folder(rounds, 1) / name
    if is_deleted:
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    if name == "round.json" and is_deleted:
        check_published(rounds)  # it is not published, so it is made again
        assert len(published_rounds(rounds)) == 1
        return
    with pytest.raises(StageError, match=f"{file}: .*delete {rounds.parent} to begin"):
        check_published(rounds)
