"""Reads and writes safetensors files as bytes, one chunk at a time, so that memory stays small.

A file is 8 bytes (the header's length), a JSON header

    {"name": {"dtype": "BF16", "shape": [272, 64], "data_offsets": [begin, end]}, …}

and the tensors' bytes. Every data type is copied unchanged: NumPy has no bfloat16, so values are
never interpreted here.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.model_files import read_json, refuse_code, refuse_pickles

CHUNK_BYTES = 1 << 24
INDEX = "model.safetensors.index.json"
"""File name of the index for Hugging Face's libraries: tensor -> file."""
NAME_MAP = "param_name_map.json"
"""File name of MindSpore's index, with the same content."""
_FILE_NAME = re.compile(r"[^/\\\0]+\.safetensors")
Style = Literal["huggingface", "mindformers"]
"""The framework whose names the tensors have."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor whose values are not in memory.

    Args:
        dtype: Data type by safetensors' name, e.g. ``BF16``.
        shape: Its dimensions.
        size: Its size in bytes.
        chunks: Returns an iterator over its bytes; each call starts from the beginning.
    """

    dtype: str
    shape: tuple[int, ...]
    size: int
    chunks: Callable[[], Iterator[bytes | memoryview]]

    @property
    def item_bytes(self) -> int:
        """Bytes per value."""
        return self.size // max(1, math.prod(self.shape))


def weight_files(folder: Path) -> list[Path]:
    """Return a folder's safetensors files: those of its index, else model.safetensors, else all.

    Raises:
        StageError: There is no such file, a file of the index is missing or lacks a tensor that
            the index names, or the folder asks for code of its own.
    """
    refuse_code(folder)
    index = folder / INDEX if (folder / INDEX).is_file() else folder / NAME_MAP
    if index.is_file():
        return _indexed_files(index)
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        refuse_pickles(folder)
        raise StageError(
            f"{folder}: no safetensors file; the weights must be complete safetensors files."
        )
    return files


def _indexed_files(index: Path) -> list[Path]:
    """Return the files that an index names, after a check that they have its tensors."""
    value = read_json(index)
    file_of = value.get("weight_map", value)
    if not isinstance(file_of, dict) or not file_of:
        raise StageError(f"{index}: names no files of tensors. Fetch the model again.")
    for name, file in file_of.items():
        if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
            raise StageError(
                f"{index}: {name} is in {file!r}, expected the name of a safetensors file in the "
                "same folder. Fetch the model again."
            )
    files = [index.parent / name for name in sorted(set(file_of.values()))]
    if absent := [path.name for path in files if not path.is_file()]:
        raise StageError(
            f"{index.parent}: missing {', '.join(absent)}; the weights must be complete "
            "safetensors files."
        )
    held = {path.name: _read_header(path)[1] for path in files}
    if lacking := sorted(name for name, file in file_of.items() if name not in held[file]):
        first = lacking[0]
        raise StageError(
            f"{index}: {len(lacking)} tensors are not in their files, e.g. {first} in "
            f"{file_of[first]}. Index and files belong to different models: fetch the model again."
        )
    return files


def _read_header(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Read the offset of the tensors' bytes, and the header's entries, from a complete file.

    The safetensors library checks the header first: its length, JSON, data types and shapes, and
    that the tensors fill the file without gaps and overlaps.

    Raises:
        StageError: The file cannot be read, or is truncated or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
        with path.open("rb") as handle:
            length = struct.unpack("<Q", handle.read(8))[0]
            entries: dict[str, dict[str, Any]] = json.loads(handle.read(length))
    except (SafetensorError, OSError) as error:
        raise StageError(
            f"{path}: not a complete safetensors file ({error}). It is truncated or damaged: copy "
            "it again."
        ) from error
    entries.pop("__metadata__", None)
    return 8 + length, entries


def is_complete(path: Path) -> bool:
    """True if a safetensors file exists and is complete."""
    try:
        _read_header(path)
    except StageError:
        return False
    return True


def read_files(files: list[Path]) -> dict[str, StoredTensor]:
    """Open all tensors of the files, by name; only the headers are read now.

    Raises:
        StageError: A file is truncated or damaged, or two files have a tensor of the same name.
    """
    found: dict[str, StoredTensor] = {}
    for path in files:
        start, entries = _read_header(path)
        for name, entry in entries.items():
            if name in found:
                raise StageError(f"{path}: {name} is also in another file. Keep one of them.")
            begin, end = entry["data_offsets"]
            chunks = partial(_file_chunks, path, start + begin, start + end)
            found[name] = StoredTensor(entry["dtype"], tuple(entry["shape"]), end - begin, chunks)
    return found


def _file_chunks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as handle:
        handle.seek(begin)
        while begin < end:
            data = handle.read(min(CHUNK_BYTES, end - begin))
            if not data:
                raise StageError(f"{path}: ended at byte {begin}; it changed during reading.")
            yield data
            begin += len(data)


def digest(tensor: StoredTensor) -> str:
    """SHA-256 of a tensor's bytes, in hexadecimal."""
    sha256 = hashlib.sha256()
    for chunk in tensor.chunks():
        sha256.update(chunk)
    return sha256.hexdigest()


def write_file(path: Path, tensors: Mapping[str, StoredTensor], style: Style) -> dict[str, str]:
    """Write one safetensors file, with one chunk in memory at a time.

    Args:
        path: The file.
        tensors: The tensors to write, by name.
        style: ``huggingface`` writes ``format: pt`` into the metadata, because transformers rejects
            a file without it; ``mindformers`` writes ``format: ms``.

    Returns:
        Name -> SHA-256 of the tensor's bytes.
    """
    # Wide types first, as in the format's own writer, so that values are aligned to their size.
    names = sorted(tensors, key=lambda name: -tensors[name].item_bytes)
    head: dict[str, Any] = {"__metadata__": {"format": "pt" if style == "huggingface" else "ms"}}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.size
        offsets = [begin, end]
        head[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    hashes = {}
    with path.open("wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            sha256 = hashlib.sha256()
            for chunk in tensors[name].chunks():
                handle.write(chunk)
                sha256.update(chunk)
            hashes[name] = sha256.hexdigest()
    return hashes


def write_folder(
    folder: Path, tensors: Mapping[str, StoredTensor], limit: int, style: Style
) -> dict[str, str]:
    """Write tensors to files of at most ``limit`` bytes, with an index if there are several.

    Args:
        folder: Folder for ``model.safetensors`` or its parts.
        tensors: The tensors by name, in the order in which they are divided into files.
        limit: Maximum bytes of tensors per file; a larger tensor gets its own file.
        style: Determines the index's file name and the files' ``format``.

    Returns:
        Name -> SHA-256 of the tensor's bytes.
    """
    groups = _groups(tensors, limit)
    hashes: dict[str, str] = {}
    file_of: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = "model.safetensors"
        if len(groups) > 1:
            file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        hashes |= write_file(folder / file, {name: tensors[name] for name in group}, style)
        file_of |= dict.fromkeys(group, file)
    if len(groups) > 1:
        total = sum(tensor.size for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(file_of.items()))}
        name = INDEX if style == "huggingface" else NAME_MAP
        (folder / name).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return hashes


def _groups(tensors: Mapping[str, StoredTensor], limit: int) -> list[list[str]]:
    groups: list[list[str]] = []
    size = 0
    for name, tensor in tensors.items():
        size += tensor.size
        if not groups or size > limit:
            groups.append([])
            size = tensor.size
        groups[-1].append(name)
    return groups
