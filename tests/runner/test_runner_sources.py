"""Sources: identified by content, found again at once, missing ones named."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hub_server import HubServer

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.schema import Source
from pcl_reasoner.runner import sources


def data(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    (folder / "c.csv").write_text("c")
    return folder


def identify(tmp_path: Path, path: Path, files: str | None = None) -> str | None:
    hashes = FileHashes(tmp_path / ".hashes.json")
    return sources.fingerprint_of(Source(path=str(path), files=files), hashes)


def test_content_and_names_count_and_the_place_does_not(tmp_path: Path) -> None:
    first, second = data(tmp_path / "one"), data(tmp_path / "two")
    assert identify(tmp_path, first) == identify(tmp_path, second) is not None
    (second / "a.txt").write_text("A")
    assert identify(tmp_path, first) != identify(tmp_path, second)
    (second / "a.txt").write_text("a")
    (second / "a.txt").rename(second / "z.txt")
    assert identify(tmp_path, first) != identify(tmp_path, second)


def test_only_the_files_asked_for_count(tmp_path: Path) -> None:
    folder = data(tmp_path / "one")
    before = identify(tmp_path, folder, "**/*.txt")
    (folder / "c.csv").write_text("changed")
    assert identify(tmp_path, folder, "**/*.txt") == before
    (folder / "sub" / "b.txt").write_text("changed")
    assert identify(tmp_path, folder, "**/*.txt") != before


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    folder = data(tmp_path / ".hidden" / "one")
    before = identify(tmp_path, folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "when.txt").write_text("Tuesday")
    assert identify(tmp_path, folder) == before is not None


def test_a_file_is_a_source(tmp_path: Path) -> None:
    folder = data(tmp_path / "one")
    expected = artifact.fingerprint([["a.txt", artifact.hash_file(folder / "a.txt")]])
    assert identify(tmp_path, folder / "a.txt") == expected


def test_missing_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (
        Source(path=str(tmp_path / "absent")),
        Source(path=str(tmp_path / "empty"), files="*.parquet"),
    ):
        said = sources.missing("data", source)
        assert str(source.path) in said
        assert "sources.data.path=PATH" in said


class TestHub:
    hub = Source(hub="someone/data", revision="abc", files="*.txt")

    def test_identified_by_repository_revision_and_files(self, tmp_path: Path) -> None:
        hashes = FileHashes(tmp_path / "hashes.json")
        others = [
            self.hub,
            self.hub.model_copy(update={"revision": "abd"}),
            self.hub.model_copy(update={"files": "*.csv"}),
            self.hub.model_copy(update={"kind": "model"}),
        ]
        assert len({sources.fingerprint_of(one, hashes) for one in others}) == 4
        # Neither may two of them share a folder: the first one's files would pass for both's.
        assert len({sources.hub_folder(one, tmp_path) for one in others}) == 4

    def test_without_the_hub_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(StageError) as caught:
            sources.fetch("data", self.hub, tmp_path, FileHashes(tmp_path / "hashes.json"))
        assert "source data: someone/data at abc could not be fetched" in str(caught.value)
        assert "sources.data.path=PATH" in str(caught.value)
        assert not sources.fetched(sources.hub_folder(self.hub, tmp_path))

    def test_a_fetched_one_is_not_fetched_again(self, tmp_path: Path) -> None:
        folder = sources.hub_folder(self.hub, tmp_path)
        folder.mkdir(parents=True)
        artifact.write_checked(folder / sources.COMPLETE, {})
        hashes = FileHashes(tmp_path / "hashes.json")
        assert sources.fetch("data", self.hub, tmp_path, hashes) == folder


class TestHubServer:
    FILES: ClassVar = {"a.txt": b"abc", "b.txt": b"12345", "c.csv": b"no", ".hidden/d.txt": b"no"}
    PROGRAM = """
import sys
from pathlib import Path
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.schema import Source
from pcl_reasoner.runner import sources
runs = Path(sys.argv[1])
hub = Source(hub="someone/data", revision="abc", files="*.txt")
print(sources.fetch("data", hub, runs, FileHashes(runs / "hashes.json")))
"""

    @pytest.fixture
    def hub(self) -> Iterator[HubServer]:
        server = HubServer("someone/data", "abc", dict(self.FILES))
        yield server
        server.stop()

    def fetch(self, tmp_path: Path, hub: HubServer) -> str:
        """Fetch in a process of its own, because libraries read the variables on import."""
        done = subprocess.run(
            [sys.executable, "-c", self.PROGRAM, str(tmp_path)],
            env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    def test_a_fetched_one_has_the_hash_of_every_file(self, tmp_path: Path, hub: HubServer) -> None:
        hub.sha256["a.txt"] = hashlib.sha256(b"abc").hexdigest()
        folder = sources.hub_folder(TestHub.hub, tmp_path)
        assert str(folder) in self.fetch(tmp_path, hub)
        files = sources.fetched_files(folder)
        assert files is not None
        assert {name: one["bytes"] for name, one in files.items()} == {"a.txt": 3, "b.txt": 5}
        assert files["b.txt"]["sha256"] == hashlib.sha256(b"12345").hexdigest()
        assert sources.fetched(folder)
        (folder / "b.txt").unlink()
        assert not sources.fetched(folder)

    def test_other_bytes_than_the_hub_has_are_refused(self, tmp_path: Path, hub: HubServer) -> None:
        hub.sha256["a.txt"] = hashlib.sha256(b"abd").hexdigest()
        assert "a.txt: its SHA-256 is not the hub's; it was removed" in self.fetch(tmp_path, hub)
        folder = sources.hub_folder(TestHub.hub, tmp_path)
        assert not sources.fetched(folder)
        assert not (folder / "a.txt").exists()

    def test_a_hub_that_is_gone_leaves_no_half_source(self, tmp_path: Path, hub: HubServer) -> None:
        """Its client returns a folder that is already there without a word."""
        self.fetch(tmp_path, hub)
        folder = sources.hub_folder(TestHub.hub, tmp_path)
        assert sources.fetched(folder)
        sources.refetch(folder, [Damage(folder / "b.txt", "damaged")])
        hub.stop()
        assert "could not be fetched" in self.fetch(tmp_path, hub)
        assert not sources.fetched(folder)


class TestUsedPart:
    def test_a_stage_reads_only_the_files_that_are_named(self, tmp_path: Path) -> None:
        folder = data(tmp_path / "one")
        source = Source(path=str(folder), files="**/*.txt")
        part = sources.used_part(source, tmp_path / "runs", "0123456789abcdef")
        found = {one.relative_to(part).as_posix() for one in part.rglob("*") if one.is_file()}
        assert found == {"a.txt", "sub/b.txt"}
        assert (part / "sub" / "b.txt").read_text() == "b"

    def test_without_files_it_is_the_path_itself(self, tmp_path: Path) -> None:
        folder = data(tmp_path / "one")
        assert sources.used_part(Source(path=str(folder)), tmp_path, "0") == folder
