"""DuckDB queries of the curation stages about the parts of a table.

A part is one Parquet file of an artifact, e.g. rows/part-00000.parquet. Only short columns are
kept in memory; of ``checks`` only whether it is empty. Results for a part are in the part's own
order, so that they match its rows.

A sample: problem 4cf2e0cd1c9b2b5f has 12 rows; for each of them ``pass_columns`` returns pass_count
12, pass_rate 0.75 and all_correct false.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from pcl_reasoner.curate import WHITESPACE
from pcl_reasoner.curate.parts import open_parquet

HISTOGRAM_BINS = 50
"""Approximate number of bins of a histogram; their width is a whole number of tokens."""


def _files(parts: Sequence[Path]) -> dict[str, Any]:
    return {"parts": [str(part) for part in parts]}


def _count_per_problem(
    connection: DuckDBPyConnection, table: str, columns: str, parts: Sequence[Path]
) -> None:
    """Create a table with one row per problem of the parts."""
    connection.execute(
        f"CREATE TABLE {table} AS SELECT problem_id, {columns}"
        " FROM read_parquet($parts) GROUP BY problem_id",
        _files(parts),
    )


def _columns_per_row(
    connection: DuckDBPyConnection, table: str, columns: str, part: Path, **values: int
) -> pa.Table:
    """Join a part with a table of one row per problem; return columns in the part's row order."""
    return connection.sql(
        f"SELECT {columns} FROM read_parquet($parts, file_row_number = true)"
        f" JOIN {table} USING (problem_id) ORDER BY file_row_number",
        params={**_files([part]), **values},
    ).to_arrow_table()


def count_passes(connection: DuckDBPyConnection, parts: Sequence[Path]) -> None:
    """Create the table ``passes``: the number of rows per problem."""
    _count_per_problem(connection, "passes", "count(*)::INTEGER AS pass_count", parts)


def pass_figures(connection: DuckDBPyConnection, divisor: int) -> dict[str, Any]:
    """Count the problems by class (all_correct, partial) and by pass count."""
    rows = connection.execute(
        "SELECT pass_count, count(*) FROM passes GROUP BY pass_count ORDER BY pass_count"
    ).fetchall()
    all_correct = sum(problems for count, problems in rows if count % divisor == 0)
    partial = sum(problems for _, problems in rows) - all_correct
    return {
        "problems": {"all_correct": all_correct, "partial": partial},
        "problems_by_pass_count": {str(count): problems for count, problems in rows},
    }


def pass_columns(connection: DuckDBPyConnection, part: Path, divisor: int) -> pa.Table:
    """Return pass_count (int32), all_correct (bool) and pass_rate (float32) per row of a part.

    Args:
        connection: Has the table ``passes``.
        part: The part.
        divisor: Samples per round. If it is 16, 12 rows mean 12/16, and 20 rows mean 20/32.
    """
    columns = (
        "pass_count, pass_count % $divisor = 0 AS all_correct, (pass_count"
        " / ($divisor * ((pass_count + $divisor - 1) // $divisor)))::FLOAT AS pass_rate"
    )
    return _columns_per_row(connection, "passes", columns, part, divisor=divisor)


def totals(connection: DuckDBPyConnection, table: str, column: str, parts: Sequence[Path]) -> None:
    """Create a table with, for each problem, the total of a column and the number of texts.

    Args:
        connection: DuckDB.
        table: Name of the table.
        column: bytes or cot_tokens. For a problem, cot_tokens is null for all texts or for none; if
            it is null for all, the total is null.
        parts: Parts with problem_id and the column.
    """
    columns = f"sum({column})::BIGINT AS total, count(*) AS texts"
    _count_per_problem(connection, table, columns, parts)


def wanted_column(
    connection: DuckDBPyConnection, part: Path, minimum: int, inclusive: bool
) -> pa.Table:
    """Return wanted (bool) per row of a part: True if its problem has enough bytes to be long.

    Args:
        connection: Has the table ``sizes``.
        part: File with the part's problem_id and bytes.
        minimum: Minimum mean tokens of a long problem.
        inclusive: True: a mean equal to ``minimum`` is long.
    """
    columns = f"{_long(inclusive)} AS wanted"
    return _columns_per_row(connection, "sizes", columns, part, minimum=minimum)


def _long(inclusive: bool) -> str:
    """Return the SQL condition for a long problem.

    It compares integers, so that rounding cannot change the result.
    """
    return f"coalesce(total {'>=' if inclusive else '>'} texts * $minimum, false)"


def length_columns(
    connection: DuckDBPyConnection, part: Path, minimum: int, inclusive: bool
) -> pa.Table:
    """Return cot_tokens (int32), mean_cot_tokens (float32) and long (bool) per row of a part.

    Args:
        connection: Has the table ``means``.
        part: File with the part's problem_id and cot_tokens.
        minimum: Minimum mean tokens of a long problem.
        inclusive: True: a mean equal to ``minimum`` is long.
    """
    columns = f"cot_tokens, (total / texts)::FLOAT AS mean_cot_tokens, {_long(inclusive)} AS long"
    return _columns_per_row(connection, "means", columns, part, minimum=minimum)


def length_figures(connection: DuckDBPyConnection, minimum: int, inclusive: bool) -> dict[str, Any]:
    """Count the problems that are long and those that are not."""
    query = f"SELECT count(*) FILTER ({_long(inclusive)}), count(*) FROM means"
    kept, problems = connection.execute(query, {"minimum": minimum}).fetchall()[0]
    return {"problems": {"kept": kept, "short_mean_cot": problems - kept}}


def length_histogram(connection: DuckDBPyConnection, measured: Sequence[Path]) -> dict[str, Any]:
    """Count rows by tokens, and problems by mean tokens; bin i is [edges[i], edges[i + 1]).

    Rows and problems that were not tokenised are in no bin; not_tokenised is their number.
    """
    files = _files(measured)
    found = connection.execute("SELECT max(cot_tokens) FROM read_parquet($parts)", files)
    longest = found.fetchall()[0][0] or 0
    width = longest // HISTOGRAM_BINS + 1
    bins = longest // width + 1

    def counted(query: str, values: dict[str, Any]) -> dict[str, Any]:
        grouped = f"SELECT bin, count(*) FROM ({query}) AS binned(bin) GROUP BY bin"
        by_bin = dict(connection.execute(grouped, {**values, "width": width}).fetchall())
        return {
            "edges": [width * i for i in range(bins + 1)],
            "counts": [by_bin.get(i, 0) for i in range(bins)],
            "not_tokenised": by_bin.get(None, 0),
        }

    return {
        "rows": counted("SELECT cot_tokens // $width FROM read_parquet($parts)", files),
        "problems": counted("SELECT total // (texts * $width) FROM means", {}),
    }


def find_checkable(connection: DuckDBPyConnection, parts: Sequence[Path]) -> None:
    """Create the tables ``checkable`` and ``firsts``.

    ``checkable`` has the rows by which a response can be graded: they have a ground truth or
    checks, or their kind is chat. Its columns are the problem_id, the stripped answer (null if
    blank), the part and the row number in the part. ``firsts`` has part and number of each
    problem's first row in it, in source order.
    """
    rows = (
        "SELECT problem_id, nullif(trim(ground_truth, $blank), '') AS answer,"
        f" filename AS part, file_row_number AS number, {_is_checked(parts)} AS is_checked"
        " FROM read_parquet($parts, filename = true, file_row_number = true, union_by_name = true)"
    )
    connection.execute(
        f"CREATE TABLE checkable AS SELECT * EXCLUDE (is_checked) FROM ({rows})"
        " WHERE is_checked OR answer IS NOT NULL",
        {**_files(parts), "blank": WHITESPACE},
    )
    connection.execute(
        "CREATE TABLE firsts AS SELECT part, number FROM checkable QUALIFY row_number() OVER"
        " (PARTITION BY problem_id ORDER BY part, number) = 1"
    )


def _is_checked(parts: Sequence[Path]) -> str:
    """Return the SQL condition for a row with checks or of a chat; old parts have no such rows."""
    names = {name for part in parts for name in open_parquet(part).schema_arrow.names}
    if not {"kind", "checks"} <= names:
        return "false"
    return "coalesce(checks, '') <> '' OR coalesce(kind, '') = 'chat'"


def unique_figures(connection: DuckDBPyConnection, parts: Sequence[Path]) -> dict[str, int]:
    """Count all rows, the ``checkable`` ones, and the problems of these rows.

    ``conflicting`` counts the problems whose rows have different ground truths.
    """
    counts = connection.execute(
        "SELECT (SELECT count(*) FROM read_parquet($parts, union_by_name = true)),"
        " sum(rows)::BIGINT, count(*), count(*) FILTER (answers > 1)"
        " FROM (SELECT count(*) AS rows,"
        " count(DISTINCT answer) AS answers FROM checkable GROUP BY problem_id)",
        _files(parts),
    ).fetchall()[0]
    names = ("rows", "checkable", "problems", "conflicting")
    return {name: count or 0 for name, count in zip(names, counts, strict=True)}


def first_rows(connection: DuckDBPyConnection, part: Path) -> list[int]:
    """Return the numbers of a part's rows that are in the table ``firsts``, in ascending order."""
    rows = connection.execute(
        "SELECT number FROM firsts WHERE part = $part ORDER BY number", {"part": str(part)}
    ).fetchall()
    return [number for (number,) in rows]
