"""The log of a running stage whose answers depend on the interpreter that gave them.

Its first line says which one that was. A resumed run with another interpreter or engine, e.g. after
an upgrade of Python, begins a new log, because a mixture of both would be nobody's result:

    {"answered_by": {"engine": "bubblewrap", "python": "/usr/bin/python3.11",
                     "python_version": "3.11.2 on x86_64"}}
"""

from collections.abc import Callable
from pathlib import Path

from pcl_reasoner.core.append_log import read_line
from pcl_reasoner.inference.answer_log import ANSWERED_BY, AnswerLog
from pcl_reasoner.sandbox.opening import Choice


def made_by(choice: Choice) -> dict[str, str]:
    """Return what a log's first line says about a sandbox."""
    return {
        "engine": choice.engine,
        "python": choice.python,
        "python_version": choice.version,
    }


class SandboxLog(AnswerLog):
    """A log with one interpreter.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept if the interpreter is the
            same.
        by: The result of `made_by`, or other facts about the interpreter.
        warn: Called with a message if the lines are not kept.
    """

    def __init__(self, path: Path, by: dict[str, str], warn: Callable[[str], None]) -> None:
        before = _first_line(path)
        if before is not None and before != by:
            path.unlink()
            warn(
                f"{path.name} was left by a run with {_words(before)}, and this run has "
                f"{_words(by)}: its answers are not used."
            )
        super().__init__(path)
        self.add_server(by)


def _first_line(path: Path) -> dict[str, str] | None:
    """Return the facts in a log's first line; None if the log has no complete line."""
    if not path.exists():
        return None
    with path.open("rb") as handle:
        line = handle.readline()
    if not line.endswith(b"\n"):
        return None
    found: dict[str, str] = (read_line(line) or {}).get(ANSWERED_BY, {})
    return found


def _words(by: dict[str, str]) -> str:
    return ", ".join(value for value in by.values() if value) or "an unknown interpreter"
