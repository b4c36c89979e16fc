"""The table in docs/reliability.md, made of the drill's log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from end_to_end_helpers import ROOT
from trial import BAD, FIRM, FOUND

PAGE = ROOT / "docs" / "reliability.md"
MARKS = ("<!-- drill -->\n", "<!-- end of drill -->\n")


def write(trials: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> None:
    """Put the table between the page's marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    made = table(trials, kinds)
    PAGE.write_text(f"{before}{MARKS[0]}\n{made}\n{MARKS[1]}{after}", encoding="utf-8")


def table(trials: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    """A row for each kind: how often it was tried, and how it ended.

    Args:
        trials: Lines of the log.
        kinds: Kind -> what is tried.
    """
    ended = Counter((one["kind"], one["verdict"]) for one in trials)
    rows = [
        "| kind | what is tried | trials | same result | error in words | bad |",
        "|---|---|---|---|---|---|",
    ]
    for kind, what in kinds.items():
        numbers = [ended[kind, verdict] for verdict in (FIRM, FOUND, BAD)]
        cells = " | ".join(f"{number:,}" for number in [sum(numbers), *numbers])
        rows.append(f"| {kind} | {what} | {cells} |")
    versions = len({one["code"] for one in trials})
    hours = sum(one["seconds"] for one in trials) / 3600
    days = sorted({one["day"] for one in trials})
    when = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "never"
    text = (
        f"{when}: {len(trials):,} trials in {hours:.1f} hours, with {versions} versions of the "
        "package. A trial that\nended badly was repeated by its seed with a corrected version; its "
        "last end counts.\n"
    )
    return "\n".join(rows) + f"\n\n{text}"
