"""Counts the responses of a released, graded set, and shows the published counts beside them.

A sample row. Its columns may have other names. A reward above 0 means a correct response:

    {"problem": "What is 6·7?", "response": "<think>…</think>\\boxed{42}", "reward": 1}

A problem is *mixed* when it has correct and incorrect responses: only such a problem gives a
training signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.listing import files_below
from pcl_reasoner.curate import WHITESPACE
from pcl_reasoner.curate.source_files import LINE_BYTES

PUBLISHED: Mapping[str, int] = {
    "rows": 48_512,
    "problems": 6_068,
    "correct": 22_990,
    "incorrect": 25_522,
    "mixed_rows": 30_215,
    "mixed_correct": 14_512,
    "mixed_incorrect": 15_703,
}
"""Published figures of V1.5's data.

Source: arXiv 2601.14716 and the data card. But 6 068 problems x 8 responses are 48 544 rows.
"""

ENDINGS = (".parquet", ".jsonl", ".jsonl.zst", ".jsonl.gz")

_BY_PROBLEM = (
    "SELECT count(*) AS texts, count(*) FILTER (is_correct) AS corrects,"
    " count(*) FILTER (NOT is_correct) AS incorrects FROM graded"
    " WHERE problem <> '' GROUP BY problem"
)
"""Query that counts each problem's responses in the view ``graded``."""


@dataclass(frozen=True)
class Recounted:
    """A counted figure and the published one.

    Args:
        name: Name of the figure, e.g. ``mixed_rows``.
        found: The count in the files.
        published: The published count; None if none was published.
    """

    name: str
    found: int
    published: int | None


def recount(
    source: Path, problem: str = "problem", reward: str = "reward", memory: str = "1GB"
) -> list[Recounted]:
    """Count rows, problems, correct and incorrect responses: of all problems, and of mixed ones.

    Args:
        source: A file, or a folder of Parquet or JSONL files.
        problem: Column with the problem's text. Texts that are equal after NFC and trimming are the
            same problem.
        reward: Column with a number, a number as text, or a boolean.
        memory: DuckDB's memory limit.

    Raises:
        InputError: There are no such files or columns, or a file cannot be read.
    """
    import duckdb

    files = released_files(source)
    with duckdb.connect(":memory:", config={"memory_limit": memory}) as connection:
        try:
            rows = _rows(connection, files)
            if missing := [name for name in (problem, reward) if name not in rows.columns]:
                raise InputError(
                    f"{source}: no column {', '.join(missing)}; got {', '.join(rows.columns)}. "
                    "Name the columns that hold the problem and the reward."
                )
            found = _figures(connection, rows, problem, reward)
        except duckdb.Error as error:
            raise InputError(f"{source}: cannot be read ({error}). Fetch it again.") from error
    return [Recounted(name, count, PUBLISHED.get(name)) for name, count in found.items()]


def released_files(source: Path) -> list[Path]:
    """Return the data files of a released set: all Parquet, or all JSONL.

    Raises:
        InputError: There are no data files, both Parquet and JSONL files, or a file is missing.
    """
    files = [path for path in files_below(source) if path.name.endswith(ENDINGS)]
    if len({path.suffix == ".parquet" for path in files}) != 1:
        found = "Parquet and JSONL files" if files else f"no {', '.join(ENDINGS)} file"
        raise InputError(
            f"{source}: got {found}, expected files of one kind. Give a file, or another folder."
        )
    return files


def _rows(connection: Any, files: Sequence[Path]) -> Any:
    query = "read_parquet($files, union_by_name = true)"
    if files[0].suffix != ".parquet":
        query = (
            "read_json($files, format = 'newline_delimited', union_by_name = true,"
            f" sample_size = -1, maximum_object_size = {LINE_BYTES})"
        )
    names = [str(path) for path in files]
    return connection.sql(f"SELECT * FROM {query}", params={"files": names})


def _figures(connection: Any, rows: Any, problem: str, reward: str) -> dict[str, int]:
    """Return figures by name; rows without a problem or a readable reward have their own counts."""
    text = f"trim(nfc_normalize({_quoted(problem)}::VARCHAR), '{WHITESPACE}')"
    number = f"TRY_CAST({_quoted(reward)}::VARCHAR AS DOUBLE)"
    truth = f"TRY_CAST({_quoted(reward)}::VARCHAR AS BOOLEAN)"
    graded = rows.project(f"{text} AS problem, coalesce({number} > 0, {truth}) AS is_correct")
    graded.create_view("graded")
    mixed = "FILTER (corrects > 0 AND incorrects > 0)"
    every = "(SELECT count(*) FROM graded)"
    counted = connection.sql(
        f"SELECT {every} AS rows, count(*) AS problems,"
        ' sum(corrects) AS "correct", sum(incorrects) AS incorrect,'
        f" count(*) {mixed} AS mixed_problems, sum(texts) {mixed} AS mixed_rows,"
        f" sum(corrects) {mixed} AS mixed_correct, sum(incorrects) {mixed} AS mixed_incorrect,"
        " count(*) FILTER (corrects > 0 AND incorrects = 0) AS all_correct_problems,"
        " count(*) FILTER (corrects = 0 AND incorrects > 0) AS all_incorrect_problems,"
        " sum(texts - corrects - incorrects) AS without_reward,"
        f" {every} - coalesce(sum(texts), 0) AS without_problem FROM ({_BY_PROBLEM})"
    )
    figures = zip(counted.columns, counted.fetchall()[0], strict=True)
    return {name: int(value or 0) for name, value in figures}


def _quoted(name: str) -> str:
    """Quote a column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'
