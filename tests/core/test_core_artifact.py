"""Artifacts: whole or not there; logs that survive a kill."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from artifact_helpers import verify

from pcl_reasoner.core import artifact

MANIFEST = {"counts": {"unit": "rows", "read": 1, "kept": 1}, "fingerprint": "f"}


def written(folder: Path) -> Path:
    (folder / "rows").mkdir(parents=True)
    (folder / "rows" / "a.txt").write_text("abc")
    (folder / "quarantined.jsonl").touch()
    return folder


def committed(tmp_path: Path) -> Path:
    artifact.commit(written(tmp_path / "pack-1.partial"), tmp_path / "pack-1", dict(MANIFEST))
    return tmp_path / "pack-1"


def test_fingerprint_is_sha256_of_sorted_compact_json() -> None:
    text = '{"a":[1,2.5,"é"],"b":null}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert artifact.fingerprint({"b": None, "a": [1, 2.5, "é"]}) == expected
    assert artifact.fingerprint({"a": 1}) != artifact.fingerprint({"a": "1"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_what_json_cannot_say_has_no_fingerprint(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        artifact.fingerprint(value)


def test_commit_moves_the_folder_and_records_every_file(tmp_path: Path) -> None:
    folder = committed(tmp_path)
    assert not (tmp_path / "pack-1.partial").exists()
    manifest = artifact.read_manifest(folder)
    assert manifest is not None
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["files"]["rows/a.txt"] == {"sha256": abc, "bytes": 3}
    assert set(manifest["files"]) == {"rows/a.txt", "quarantined.jsonl"}
    assert manifest["counts"] == MANIFEST["counts"]
    assert verify(folder) == []


def test_commit_takes_the_place_of_an_older_artifact(tmp_path: Path) -> None:
    (committed(tmp_path) / "rows" / "old.txt").touch()
    folder = committed(tmp_path)
    assert not (folder / "rows" / "old.txt").exists()
    assert verify(folder) == []


def test_discard_takes_the_manifest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = committed(tmp_path)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        artifact.discard(folder)
    assert (folder / "rows" / "a.txt").exists()
    assert artifact.read_manifest(folder) is None


def test_a_payload_file_may_be_called_manifest(tmp_path: Path) -> None:
    partial = written(tmp_path / "pack-1.partial")
    (partial / "rows" / "manifest.json").write_text("{}")
    artifact.commit(partial, tmp_path / "pack-1", dict(MANIFEST))
    manifest = artifact.read_manifest(tmp_path / "pack-1")
    assert manifest is not None
    assert "rows/manifest.json" in manifest["files"]


def test_verify_names_what_is_missing_added_and_changed(tmp_path: Path) -> None:
    folder = committed(tmp_path)
    (folder / "rows" / "a.txt").write_text("abd")
    (folder / "quarantined.jsonl").unlink()
    (folder / "b.txt").touch()
    assert verify(folder) == [
        "quarantined.jsonl: missing",
        "b.txt: not in the manifest",
        "rows/a.txt: content differs from the manifest",
    ]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"counts": {}}\x00', b"null"]
)
def test_a_broken_manifest_is_none(tmp_path: Path, content: bytes) -> None:
    folder = committed(tmp_path)
    (folder / "manifest.json").write_bytes(content)
    assert artifact.read_manifest(folder) is None


def test_write_atomically_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    artifact.write_atomically(path, "old")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        artifact.write_atomically(path, "new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("x.json", "old")]


def test_fresh_partial_keeps_only_what_resumes(tmp_path: Path) -> None:
    partial = written(tmp_path / "a.partial")
    (partial / "manifest.json").write_text("{}")
    (partial / ".manifest.json.77.tmp").write_text("{")
    (partial / ".metrics.jsonl.78.tmp").write_text('{"st')
    (partial / "rows" / "log.jsonl").symlink_to("nothing")
    artifact.fresh_partial(partial, keep=True)
    assert artifact.payload_files(partial) == [
        partial / "quarantined.jsonl",
        partial / "rows" / "a.txt",
    ]
    assert not (partial / "manifest.json").exists()
    artifact.fresh_partial(partial, keep=False)
    assert list(partial.iterdir()) == []
