"""Writes and reads Arrow folders: the format of ``datasets.load_from_disk``.

    data-00000-of-00001.arrow   the rows, in Arrow's streaming format
    dataset_info.json           the columns' types
    state.json                  the data files, in order, and a fingerprint of their content

MindFormers maps such a folder into memory. This module writes it as a stream, in bounded memory and
without importing datasets. Equal rows give equal bytes.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError

SHARD_BYTES = 1 << 30
"""A data file is closed once it is at least this large."""


def write_arrow_folder(
    folder: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Write record batches as an Arrow folder.

    Args:
        folder: An existing folder; its other files are not changed.
        schema: The columns: strings, integers, floats and lists of these.
        batches: Record batches of that schema; each is written before the next is requested.
        shard_bytes: A data file is closed once it is at least this large.

    Returns:
        Number of rows written.
    """
    shards: list[Path] = []
    rows, remaining = 0, iter(batches)
    batch = next(remaining, None)
    while batch is not None or not shards:
        path = folder / f".data-{len(shards):05d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            while batch is not None and sink.tell() < shard_bytes:
                writer.write_batch(batch)
                rows += batch.num_rows
                batch = next(remaining, None)
        shards.append(path)
    names = [f"data-{index:05d}-of-{len(shards):05d}.arrow" for index in range(len(shards))]
    for path, name in zip(shards, names, strict=True):
        path.rename(folder / name)
    _describe(folder, schema, names)
    return rows


def read_arrow_folder(folder: Path) -> pa.Table:
    """Map an Arrow folder into memory, as one table.

    Raises:
        StageError: The folder is not an Arrow folder.
    """
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        names = [item["filename"] for item in state["_data_files"]]
        maps = [pa.memory_map(str(folder / name)) for name in names]
        return pa.concat_tables([pa.ipc.open_stream(mapped).read_all() for mapped in maps])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise StageError(
            f"{folder}: not an Arrow folder ({error}). Run the stage that writes it again."
        ) from error


def _describe(folder: Path, schema: pa.Schema, names: list[str]) -> None:
    hashes = "".join(hash_file(folder / name) for name in names)
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        # datasets names caches by the fingerprint, so it may be equal only for equal content.
        "_fingerprint": hashlib.sha256(hashes.encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    info = {
        "citation": "",
        "description": "",
        "features": {field.name: _feature(field.type) for field in schema},
        "homepage": "",
        "license": "",
    }
    for name, value in (("state.json", state), ("dataset_info.json", info)):
        text = json.dumps(value, indent=2, sort_keys=True) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Return a column's type in the notation of datasets."""
    if pa.types.is_list(kind):
        return {"_type": "List", "feature": _feature(kind.value_type)}
    # Arrow prints float and double; datasets knows float32 and float64.
    names = {"float": "float32", "double": "float64"}
    return {"_type": "Value", "dtype": names.get(str(kind), str(kind))}
