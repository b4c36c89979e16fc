"""The tokens of every response of a table, part by part.

What is found out about a part lies in a file of its name:

    bytes/part-00000.parquet    {"problem_id": "4cf2e0cd1c9b2b5f", "bytes": 91234}
    wanted/part-00000.parquet   {"wanted": true}
    tokens/fastokens/part-00000.parquet
                                {"problem_id": "4cf2e0cd1c9b2b5f", "cot_tokens": 30412}

Responses of problems that cannot be long enough by their bytes are not wanted; their cot_tokens
are null.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from pcl_reasoner.core.engine import map_parts
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import queries
from pcl_reasoner.curate.part_writer import whole_part
from pcl_reasoner.curate.parts import open_parquet, record_batches, write_beside
from pcl_reasoner.curate.token_lengths import (
    PROBES,
    Form,
    byte_form,
    count_bytes,
    count_fast,
    count_tokens,
    difference,
    is_checked,
    open_fast,
    open_tokenizer,
    panics_as_errors,
)

BYTES_SCHEMA = pa.schema([("problem_id", pa.string()), ("bytes", pa.int64())])
TOKENS_SCHEMA = pa.schema([("problem_id", pa.string()), ("cot_tokens", pa.int32())])


@dataclass(frozen=True)
class Task:
    """What a worker needs to count a part's tokens.

    Args:
        tokenizer: The tokenizer.json.
        fast: True: by fastokens, checked; False: by tokenizers.
        wanted: Folder of the files that say which rows are wanted; None: all are.
        target: Folder of the files with the tokens.
        threads: Of the tokenizer's library, a process.
    """

    tokenizer: Path
    fast: bool
    wanted: Path | None
    target: Path
    threads: int


@dataclass(frozen=True)
class Counted:
    """What became of a part.

    Args:
        texts: Responses that were counted.
        checked: Those counted twice.
        mismatch: What fastokens did wrong, or None.
    """

    texts: int
    checked: int
    mismatch: str | None = None


def write_wanted(
    connection: DuckDBPyConnection,
    parts: Sequence[Path],
    tokenizer: Path,
    limit: tuple[int, bool],
    folder: Path,
    context: StageContext,
) -> Path | None:
    """Say of every row whether its problem can be long enough by its bytes.

    Args:
        connection: Gets the table ``sizes``.
        parts: With problem_id and cot.
        tokenizer: The tokenizer.json.
        limit: The mean tokens of a problem, and whether that mean is itself long enough.
        folder: The stage's workspace.
        context: The data engine.

    Returns:
        The folder of the files that say it; None where bytes say nothing about tokens.
    """
    form = byte_form(tokenizer)
    if form is None:
        return None
    sizes, wanted = folder / "bytes", folder / "wanted"
    sizes.mkdir()
    engine = context.placement.data
    list(map_parts(partial(size_part, sizes, form), parts, engine, context.progress, "parts"))
    queries.mean_sizes(connection, [sizes / part.name for part in parts])
    for part in parts:
        write_beside(queries.wanted_column(connection, sizes / part.name, *limit), wanted, part)
    return wanted


def size_part(folder: Path, form: Form, part: Path) -> None:
    """Write a part's problem_id and bytes."""
    with whole_part(folder / part.name, BYTES_SCHEMA) as write:
        for batch in record_batches(part, ["problem_id", "cot"]):
            columns = [batch.column("problem_id"), count_bytes(batch.column("cot"), form)]
            write(pa.RecordBatch.from_arrays(columns, schema=BYTES_SCHEMA))


def measure(
    parts: Sequence[Path], tokenizer: Path, wanted: Path | None, target: Path, context: StageContext
) -> dict[str, Any]:
    """Write problem_id and cot_tokens of every part; by tokenizers alone if fastokens errs.

    Args:
        parts: With problem_id and cot.
        tokenizer: The tokenizer.json.
        wanted: Folder of the files that say which rows are wanted; None: all are.
        target: Gets a folder of the library's name, with a file a part. Folders of their own, as a
            task of fastokens may still be writing when tokenizers begin.
        context: The data engine; warned of a mismatch.

    Returns:
        Which library counted, how many responses, and how many of them were checked.

    Raises:
        StageError: There is no tokenizer.
    """
    fast, why = _choose(tokenizer)
    threads = context.placement.threads
    if fast:
        task = Task(tokenizer, True, wanted, target / "fastokens", threads)
        texts, checked, why = _counted(task, parts, context)
        if why is None:
            return {"library": "fastokens", "texts": texts, "checked": checked}
    if why:
        context.warn(f"fastokens is not used: {why}. All tokens are counted by tokenizers.")
    task = Task(tokenizer, False, wanted, target / "tokenizers", threads)
    texts, _, _ = _counted(task, parts, context)
    return {"library": "tokenizers", "texts": texts, **({"mismatch": why} if why else {})}


def _choose(file: Path) -> tuple[bool, str | None]:
    """Whether fastokens can be used, and what it did wrong where that is to be told."""
    tokenizer = opened(file, fast=False)
    try:
        with panics_as_errors():
            fast = opened(file, fast=True)
    except (ImportError, ValueError):
        return False, None  # not installed, or a kind that it does not know
    except RuntimeError as error:
        return False, _raised(error)
    try:
        with panics_as_errors():
            mismatch = difference(fast, tokenizer, PROBES)
    except Exception as error:  # fastokens has no error of its own
        mismatch = _raised(error)
    return mismatch is None, mismatch


def _raised(error: Exception) -> str:
    return f"it raised {type(error).__name__}: {error}"


def _counted(
    task: Task, parts: Sequence[Path], context: StageContext
) -> tuple[int, int, str | None]:
    """Count all parts, or those up to the first mismatch."""
    task.target.mkdir(parents=True)
    texts = checked = 0
    engine = context.placement.data
    results = map_parts(partial(count_part, task), parts, engine, context.progress, "parts")
    for found in results:
        texts, checked = texts + found.texts, checked + found.checked
        if found.mismatch:
            return texts, checked, found.mismatch
    return texts, checked, None


def opened(file: Path, fast: bool) -> Any:
    """A tokenizer.json by fastokens or by tokenizers, read once a process."""
    return _opened(file, file.stat().st_mtime_ns if file.exists() else 0, fast)


@lru_cache(maxsize=2)
def _opened(file: Path, changed_at: int, fast: bool) -> Any:
    return open_fast(file) if fast else open_tokenizer(file)


def count_part(task: Task, part: Path) -> Counted:
    """Write a part's problem_id and cot_tokens.

    Args:
        task: How.
        part: The part.
    """
    # Both libraries start their threads at the first text, as many as there are cores.
    os.environ.setdefault("RAYON_NUM_THREADS", str(task.threads))
    rows = open_parquet(part).metadata.num_rows
    wanted = pa.chunked_array([pa.array([True] * rows, pa.bool_())])
    if task.wanted:
        wanted = pq.read_table(task.wanted / part.name)["wanted"]
    wanted = wanted.combine_chunks()
    # Where nothing is wanted, the texts need not be read.
    columns = ["problem_id", "cot"] if pc.any(wanted).as_py() else ["problem_id"]
    texts = checked = first = 0
    with whole_part(task.target / part.name, TOKENS_SCHEMA) as write:
        for batch in record_batches(part, columns):
            mask = wanted.slice(first, batch.num_rows)
            first += batch.num_rows
            chosen = batch.column("cot").filter(mask).to_pylist() if len(columns) > 1 else []
            lengths, twice, mismatch = _lengths(task, chosen)
            if mismatch:
                return Counted(texts, checked, f"{mismatch} ({part.name})")
            texts, checked = texts + len(chosen), checked + twice
            tokens = pa.nulls(batch.num_rows, pa.int32())
            tokens = pc.replace_with_mask(tokens, mask, pa.array(lengths, pa.int32()))
            columns_out = [batch.column("problem_id"), tokens]
            write(pa.RecordBatch.from_arrays(columns_out, schema=TOKENS_SCHEMA))
    return Counted(texts, checked)


def _lengths(task: Task, texts: list[str]) -> tuple[list[int], int, str | None]:
    """Tokens a text, how many texts were counted twice, and what was wrong with one of them."""
    tokenizer = opened(task.tokenizer, fast=False)
    if not task.fast:
        return count_tokens(tokenizer, texts), 0, None
    twice = [text for text in texts if is_checked(text)]
    try:
        with panics_as_errors():
            fast = opened(task.tokenizer, fast=True)  # which another machine may lack
            mismatch = difference(fast, tokenizer, twice)
            return ([], 0, mismatch) if mismatch else (count_fast(fast, texts), len(twice), None)
    except Exception as error:  # fastokens has no error of its own
        return [], 0, _raised(error)
