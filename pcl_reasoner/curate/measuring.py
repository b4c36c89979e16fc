"""Counts the tokens of every response of a table, part by part.

The results for a part are written to files that are named like the part:

    bytes/part-00000.parquet    {"problem_id": "4cf2e0cd1c9b2b5f", "bytes": 91234}
    wanted/part-00000.parquet   {"wanted": true}
    tokens/fastokens/part-00000.parquet
                                {"problem_id": "4cf2e0cd1c9b2b5f", "cot_tokens": 30412}

If the bytes of a problem's responses show that their mean length in tokens is below the minimum,
these responses are not counted: wanted is false, and cot_tokens is null.
"""

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

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import queries, token_lengths
from pcl_reasoner.curate.part_writer import atomic_part
from pcl_reasoner.curate.parts import open_parquet, record_batches, write_beside
from pcl_reasoner.data_engine.tasks import map_parts

BYTES_SCHEMA = pa.schema([("problem_id", pa.string()), ("bytes", pa.int64())])
TOKENS_SCHEMA = pa.schema([("problem_id", pa.string()), ("cot_tokens", pa.int32())])


@dataclass(frozen=True)
class Task:
    """Settings with which a worker counts a part's tokens.

    Args:
        tokenizer: The tokenizer.json.
        fast: True: count with fastokens, checked against tokenizers; False: with tokenizers.
        wanted: Folder of the files with the column ``wanted``; None: all rows are wanted.
        target: Folder for the files with the tokens.
        threads: Threads per process of the tokenizer library.
    """

    tokenizer: Path
    fast: bool
    wanted: Path | None
    target: Path
    threads: int


@dataclass(frozen=True)
class Counted:
    """The outcome of counting one part or several.

    Args:
        texts: Responses that were counted.
        checked: Responses that were counted by both libraries.
        mismatch: How fastokens differed from tokenizers or failed; None: it did neither.
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
    """Write the column ``wanted``: True if a row's problem has enough bytes to reach ``limit``.

    Args:
        connection: Gets the table ``sizes``.
        parts: Parts with problem_id and cot.
        tokenizer: The tokenizer.json.
        limit: The minimum mean tokens of a problem, and whether a mean equal to it is enough.
        folder: The stage's workspace.
        context: Has the data engine.

    Returns:
        The folder of the files with the column ``wanted``; None if a text can have more tokens
        than bytes.
    """
    form = token_lengths.byte_form(tokenizer)
    if form is None:
        return None
    sizes, wanted = folder / "bytes", folder / "wanted"
    sizes.mkdir()
    engine = context.placement.data
    list(map_parts(partial(size_part, sizes, form), parts, engine, context.progress, "parts"))
    queries.totals(connection, "sizes", "bytes", [sizes / part.name for part in parts])
    for part in parts:
        write_beside(queries.wanted_column(connection, sizes / part.name, *limit), wanted, part)
    return wanted


def size_part(folder: Path, form: token_lengths.Form, part: Path) -> None:
    """Write problem_id and bytes for each row of a part."""
    with atomic_part(folder / part.name, BYTES_SCHEMA) as write:
        for batch in record_batches(part, ["problem_id", "cot"]):
            columns = [batch["problem_id"], token_lengths.count_bytes(batch["cot"], form)]
            write(pa.RecordBatch.from_arrays(columns, schema=BYTES_SCHEMA))


def measure(
    parts: Sequence[Path], tokenizer: Path, wanted: Path | None, target: Path, context: StageContext
) -> dict[str, Any]:
    """Write problem_id and cot_tokens for each row of every part.

    fastokens counts; if it is unavailable, fails or differs, tokenizers counts all parts.

    Args:
        parts: Parts with problem_id and cot.
        tokenizer: The tokenizer.json.
        wanted: Folder of the files with the column ``wanted``; None: all rows are wanted.
        target: Gets a folder named after the library, with one file per part. The folders are
            separate because a task of fastokens may still be writing when tokenizers starts.
        context: Has the data engine; gets a warning about a mismatch.

    Returns:
        ``library``: the library that counted; ``texts``: the number of counted responses. For
        fastokens also ``checked``: how many were counted by both libraries. For tokenizers also
        ``mismatch``, if fastokens failed or differed.

    Raises:
        StageError: There is no tokenizer.
    """
    fast, mismatch = _choose(tokenizer)
    threads = context.placement.threads
    if fast:
        task = Task(tokenizer, True, wanted, target / "fastokens", threads)
        counted = _counted(task, parts, context)
        if counted.mismatch is None:
            return {"library": "fastokens", "texts": counted.texts, "checked": counted.checked}
        mismatch = counted.mismatch
    if mismatch is not None:
        context.warn(f"fastokens is not used: {mismatch}. All tokens are counted by tokenizers.")
    task = Task(tokenizer, False, wanted, target / "tokenizers", threads)
    result = {"library": "tokenizers", "texts": _counted(task, parts, context).texts}
    return result if mismatch is None else {**result, "mismatch": mismatch}


def _choose(file: Path) -> tuple[bool, str | None]:
    """Return whether fastokens can be used, and the error to report in a warning, or None."""
    tokenizer = opened(file, fast=False)
    try:
        with token_lengths.panics_as_errors():
            fast = opened(file, fast=True)
    except (ImportError, ValueError):
        return False, None  # not installed, or an unsupported kind of tokenizer
    except RuntimeError as error:
        return False, _raised(error)
    try:
        with token_lengths.panics_as_errors():
            mismatch = token_lengths.difference(fast, tokenizer, token_lengths.PROBES)
    except Exception as error:  # fastokens has no error of its own
        mismatch = _raised(error)
    return mismatch is None, mismatch


def _raised(error: Exception) -> str:
    return f"it raised {type(error).__name__}: {error}"


def _counted(task: Task, parts: Sequence[Path], context: StageContext) -> Counted:
    """Count all parts, or the parts up to the first mismatch."""
    task.target.mkdir(parents=True)
    texts = checked = 0
    engine = context.placement.data
    for found in map_parts(partial(count_part, task), parts, engine, context.progress, "parts"):
        texts, checked = texts + found.texts, checked + found.checked
        if found.mismatch:
            return Counted(texts, checked, found.mismatch)
    return Counted(texts, checked)


def opened(file: Path, fast: bool) -> Any:
    """Open a tokenizer.json with fastokens or with tokenizers; it is read once per process."""
    return _opened(file, file.stat().st_mtime_ns if file.exists() else 0, fast)


@lru_cache(maxsize=2)
def _opened(file: Path, changed_at: int, fast: bool) -> Any:
    return token_lengths.open_fast(file) if fast else token_lengths.open_tokenizer(file)


def count_part(task: Task, part: Path) -> Counted:
    """Count the tokens of a part's responses, and write its problem_id and cot_tokens.

    Args:
        task: The settings.
        part: The part.
    """
    # At the first text both libraries start a thread per core, unless this limits them.
    os.environ.setdefault("RAYON_NUM_THREADS", str(task.threads))
    if task.wanted:
        wanted = pq.read_table(task.wanted / part.name)["wanted"].combine_chunks()
    else:
        wanted = pa.repeat(True, open_parquet(part).metadata.num_rows)
    # If no row is wanted, the texts need not be read.
    columns = ["problem_id", "cot"] if pc.any(wanted).as_py() else ["problem_id"]
    texts = checked = first = 0
    with atomic_part(task.target / part.name, TOKENS_SCHEMA) as write:
        for batch in record_batches(part, columns):
            mask = wanted.slice(first, batch.num_rows)
            first += batch.num_rows
            chosen = batch.column("cot").filter(mask).to_pylist() if len(columns) > 1 else []
            lengths, compared, mismatch = _lengths(task, chosen)
            if mismatch:
                return Counted(texts, checked, f"{mismatch} ({part.name})")
            texts, checked = texts + len(chosen), checked + compared
            tokens = pa.nulls(batch.num_rows, pa.int32())
            tokens = pc.replace_with_mask(tokens, mask, pa.array(lengths, pa.int32()))
            columns_out = [batch.column("problem_id"), tokens]
            write(pa.RecordBatch.from_arrays(columns_out, schema=TOKENS_SCHEMA))
    return Counted(texts, checked)


def _lengths(task: Task, texts: list[str]) -> tuple[list[int], int, str | None]:
    """Return tokens per text, how many texts both libraries counted, and the mismatch or None."""
    tokenizer = opened(task.tokenizer, fast=False)
    if not task.fast:
        return token_lengths.count_tokens(tokenizer, texts), 0, None
    sample = [text for text in texts if token_lengths.is_checked(text)]
    try:
        with token_lengths.panics_as_errors():
            fast = opened(task.tokenizer, fast=True)  # another machine may lack it
            if mismatch := token_lengths.difference(fast, tokenizer, sample):
                return [], 0, mismatch
            return token_lengths.count_fast(fast, texts), len(sample), None
    except Exception as error:  # fastokens has no error of its own
        return [], 0, _raised(error)
