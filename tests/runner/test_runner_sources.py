"""Sources: identified by content, found again at once, missing ones named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Source
from pcl_reasoner.runner import sources


def data(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    (folder / "c.csv").write_text("c")
    return folder


def identify(tmp_path: Path, path: Path, files: str | None = None) -> str | None:
    memory = sources.HashCache(tmp_path / ".hashes.json")
    return sources.fingerprint_of(Source(path=str(path), files=files), memory)


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


class TestHashCache:
    def test_a_known_file_is_not_read_again(self, tmp_path: Path) -> None:
        file = data(tmp_path / "one") / "a.txt"
        memory = sources.HashCache(tmp_path / "memory.json")
        right = memory.sha256(file)
        memory.save()
        known = json.loads((tmp_path / "memory.json").read_text())
        known[str(file.resolve())][3] = "remembered"
        (tmp_path / "memory.json").write_text(json.dumps(known))
        assert sources.HashCache(tmp_path / "memory.json").sha256(file) == "remembered"
        file.write_text("longer than before")
        changed = sources.HashCache(tmp_path / "memory.json").sha256(file)
        assert changed not in ("remembered", right)

    @pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"null"])
    def test_a_broken_memory_is_forgotten(self, tmp_path: Path, content: bytes) -> None:
        file = data(tmp_path / "one") / "a.txt"
        (tmp_path / "memory.json").write_bytes(content)
        memory = sources.HashCache(tmp_path / "memory.json")
        assert memory.sha256(file) == artifact.hash_file(file)

    def test_a_broken_entry_is_forgotten(self, tmp_path: Path) -> None:
        file = data(tmp_path / "one") / "a.txt"
        (tmp_path / "memory.json").write_text(json.dumps({str(file.resolve()): 3}))
        memory = sources.HashCache(tmp_path / "memory.json")
        assert memory.sha256(file) == artifact.hash_file(file)


class TestHub:
    hub = Source(hub="someone/data", revision="abc", files="*.txt")

    def test_identified_by_repository_revision_and_files(self, tmp_path: Path) -> None:
        memory = sources.HashCache(tmp_path / "memory.json")
        others = [
            self.hub,
            self.hub.model_copy(update={"revision": "abd"}),
            self.hub.model_copy(update={"files": "*.csv"}),
            self.hub.model_copy(update={"kind": "model"}),
        ]
        assert len({sources.fingerprint_of(one, memory) for one in others}) == 4
        # Neither may two of them share a folder: the first one's files would pass for both's.
        assert len({sources.hub_folder(one, tmp_path) for one in others}) == 4

    def test_without_the_hub_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(StageError) as caught:
            sources.fetch("data", self.hub, tmp_path)
        assert "source data: someone/data at abc could not be fetched" in str(caught.value)
        assert "sources.data.path=PATH" in str(caught.value)
        assert not sources.fetched(sources.hub_folder(self.hub, tmp_path))

    def test_a_fetched_one_is_not_fetched_again(self, tmp_path: Path) -> None:
        folder = sources.hub_folder(self.hub, tmp_path)
        folder.mkdir(parents=True)
        (folder / ".complete").touch()
        assert sources.fetch("data", self.hub, tmp_path) == folder
