"""Reads JSON and JSON Lines; what cannot be read is an error with file, line and reason.

problems.jsonl, line 3: not JSON (Expecting ',' delimiter: line 1 column 12). Correct the line.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import PclError, StageError

CORRECT = "Correct the line."


def json_lines(
    file: Path, advice: str = CORRECT, kind: type[PclError] = StageError
) -> Iterator[tuple[int, Any]]:
    """Yield (number of the line from 1, value) of a file; blank lines are skipped.

    Args:
        file: The file, in UTF-8.
        advice: The last sentence of an error: what to do.
        kind: The error's class; InputError for what a person has written.

    Raises:
        PclError: A line is not JSON, or not UTF-8.
    """
    with file.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield number, parsed(line, f"{file}, line {number}", advice, kind)


def whole_lines(file: Path, advice: str) -> list[Any]:
    """The values of a log without an incomplete last line; empty if there is no file.

    Args:
        file: A log that a process appends to, or was killed while it did.
        advice: As in json_lines.

    Raises:
        StageError: A complete line is not JSON.
    """
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [parsed(line, f"{file}, line {number}", advice) for number, line in enumerate(lines, 1)]


def own_json(file: Path) -> Any:
    """The content of a JSON file that an unfinished stage wrote itself.

    Raises:
        StageError: It was damaged since.
    """
    stage = next((one for one in file.parents if one.suffix == ".partial"), file.parent)
    advice = f"It was damaged after it had been written: delete {stage} to make the stage again."
    return parsed(file.read_bytes(), str(file), advice)


def parsed(
    text: bytes | str, where: str, advice: str = CORRECT, kind: type[PclError] = StageError
) -> Any:
    """Parse a JSON text.

    Args:
        text: The text; of bytes, a byte order mark is skipped.
        where: Its file and line, for the error.
        advice: As in json_lines.
        kind: As in json_lines.

    Raises:
        PclError: It is not JSON, or not UTF-8.
    """
    try:
        if isinstance(text, bytes):
            text = text.removeprefix(BOM_UTF8).decode("utf-8")
        return json.loads(text)
    except UnicodeError as error:
        raise kind(f"{where}: not UTF-8 ({error}). {advice}") from error
    except RecursionError as error:
        raise kind(f"{where}: nested too deeply. {advice}") from error
    except ValueError as error:
        raise kind(f"{where}: not JSON ({error}). {advice}") from error
