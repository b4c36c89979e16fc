"""Output for people: the progress of a run, and tables.

On a terminal, a live line shows the running stage with bar, rate and remaining time, below the
stages that are done. A pipe or a log file gets one line per stage; a long stage adds one per
minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from pcl_reasoner.core import artifact
from pcl_reasoner.core.stage import Counts
from pcl_reasoner.hardware_check.doctor import Check
from pcl_reasoner.runner.pace import Pace, duration
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.recipe import Recipe

if TYPE_CHECKING:
    from pcl_reasoner.pack.preview import Span
    from pcl_reasoner.perplexity.inspect import Inspected

LOG_WIDTH = 200
"""Columns per line if standard output is not a terminal."""

SECONDS_BETWEEN_LOG_LINES = 60.0


def console() -> Console:
    """The console for all output except errors."""
    width = None if sys.stdout.isatty() else LOG_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)


def headline(recipe: Recipe) -> str:
    """First line of a run: where it runs, so that nobody mistakes a laptop for the cluster."""
    name, title = recipe.launch.name.upper(), recipe.launch.title
    if title.upper().startswith(name):
        title = title[len(name) :].lstrip(" ,:;")
    return f"{name}: {title}"


class LogView:
    """Prints one line per stage, and one per minute during a long stage."""

    def __init__(self) -> None:
        self._title = ""
        self._pace: Pace | None = None
        self._last = 0.0

    def started(self, planned: PlannedStage, index: int, total: int) -> None:
        """Begin a stage."""
        self.begin(f"[{index + 1}/{total}] {planned.title}")

    def begin(self, title: str) -> None:
        """Remember the title of the current work; a line is printed when the work is done."""
        self._title = title
        self._pace, self._last = None, time.monotonic()

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Show the stage's progress."""
        now = time.monotonic()
        if self._pace is None or self._pace.counted != (total, unit):
            self._pace = Pace(done, now, (total, unit))
        text = self._pace.describe(done, total, unit, now)
        self._show(done, total, f"{text}, {note}" if note else text, now)

    def _show(self, done: float, total: float | None, text: str, now: float) -> None:
        """Print the stage's progress once per minute."""
        if now - self._last >= SECONDS_BETWEEN_LOG_LINES:
            self._last = now
            self._print(f"{self._title}: {text}")

    def skipped(self, planned: PlannedStage, index: int, total: int) -> None:
        """Print that a stage was already done."""
        self._print(f"[{index + 1}/{total}] {planned.title}: done already", "dim")

    def finished(self, planned: PlannedStage, counts: Counts, seconds: float) -> None:
        """Print how many records the stage kept: ``990 of 1,000 rows kept, 4.2 s``."""
        kept = f"{counts.kept:,} of {counts.read:,} {counts.unit} kept"
        self._print(f"{self._title}: {kept}, {duration(seconds)}", "green")

    def warned(self, message: str) -> None:
        """Print nothing now, because all warnings are printed at the end."""

    def noted(self, message: str) -> None:
        """Print a line at once."""
        self._print(message, "yellow")

    def _print(self, line: str, style: str = "") -> None:
        print(line, flush=True)


class LiveView(LogView):
    """Shows the running stage as a live line below the stages that are done."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task("", visible=False, text="", total=None)

    def begin(self, title: str) -> None:
        """Show the title of the current work."""
        super().begin(title)
        self._progress.reset(self._task, description=title, total=None, visible=True, text="")

    def _show(self, done: float, total: float | None, text: str, now: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total or None, text=text)

    def finished(self, planned: PlannedStage, counts: Counts, seconds: float) -> None:
        """Print a line above the bar and hide the bar."""
        self._progress.update(self._task, visible=False)
        super().finished(planned, counts, seconds)

    def warned(self, message: str) -> None:
        """Print a line above the bar; the warning is printed again at the end."""
        self._print(f"warning: {message}", "yellow")

    def _print(self, line: str, style: str = "") -> None:
        """Print a line above the bar."""
        self._progress.console.print(Text(line, style=style))


@contextmanager
def run_view() -> Iterator[LogView]:
    """Yield a live view if standard output is a terminal, else a log view."""
    if not sys.stdout.isatty():
        yield LogView()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns, console=console(), transient=True) as progress:
        yield LiveView(progress)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print a table.

    Args:
        columns: Headings.
        rows: The cells of each row; a cell that is a rich Text keeps its style.
        right: Headings of the columns to align right, e.g. columns of numbers.
    """
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        shown.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console().print(shown)


def summary(plan: Plan) -> None:
    """Print how many records each stage read, kept and dropped, and print all warnings."""
    rows, warnings = [], []
    for planned in plan.stages:
        if manifest := artifact.read_manifest(planned.folder):
            counts = manifest["counts"]
            dropped = sorted(counts["dropped"].items())
            reasons = ", ".join(f"{reason} {number:,}" for reason, number in dropped)
            figures = (f"{counts['read']:,}", f"{counts['kept']:,}")
            rows.append((planned.title, counts["unit"], *figures, reasons))
            warnings += [f"{planned.title}: {one}" for one in manifest.get("warnings", [])]
    table(("stage", "unit", "read", "kept", "dropped"), rows, right=("read", "kept"))
    for warning in warnings:
        console().print(Text(f"warning: {warning}", style="yellow"))


def doctor_table(checks: Sequence[Check]) -> None:
    """Print installed versions, compatible versions, and what to do."""
    rows = []
    for check in checks:
        state = Text("ok", style="green") if check.ok else Text("WRONG", style="red")
        if check.ok and check.found == "not found":
            state = Text("absent", style="dim")
        rows.append((check.name, check.found, check.wanted, state, check.advice))
    table(("what", "found", "wanted", "", "to do"), rows)


_STYLES = {"prompt": "cyan", "trained": "green", "masked": "dim", "padding": "dim"}


def preview(row: int, spans: Sequence[Span]) -> None:
    """Print one packed row: a heading per segment, tokens coloured by kind.

    Kinds are prompt, trained, masked and padding. If the output is not a terminal, there are no
    colours, and each change of kind is marked, e.g. ``[trained]``.
    """
    out = console()
    text = Text(f"row {row}", style="bold")
    segment, kind = None, None
    for span in spans:
        if span.segment != segment:
            text.append(f"\n── {_border(span)} ──\n", style="bold magenta")
            segment, kind = span.segment, None
        if span.kind != kind and not out.is_terminal:
            text.append(f"[{span.kind}]")
        kind = span.kind
        text.append(span.text, style=Style.parse(_STYLES.get(span.kind, "none")))
    out.print(text, soft_wrap=True)


def _border(span: Span) -> str:
    if span.kind == "padding":
        return "padding"
    reward = "" if span.reward is None else f", reward {span.reward:g}"
    return f"segment {span.segment}{reward}"


def preview_legend() -> None:
    """Print what each colour means."""
    legend = Text("prompt", style=_STYLES["prompt"])
    legend.append("  trained", style=_STYLES["trained"]).append("  masked", style=_STYLES["masked"])
    console().print(legend)


def inspected(responses: Sequence[Inspected]) -> None:
    """Print reward, advantage, gradient weight … of each response, one line per response."""
    numbers = ("reward", "A", "tokens", "m", "p", "weight", "entropy")
    rows = []
    for one in responses:
        tokens = "  ".join(f"{token.text!r} {token.figure:.2g}" for token in one.tokens)
        advantage = "–" if one.advantage is None else f"{one.advantage:.3g}"
        figures = (f"{one.m:.4f}", f"{one.p:.4f}", f"{one.weight:.3g}", f"{one.entropy:.3f}")
        name = f"{one.problem_id[:8]}/{one.sample_index}"
        rows.append((name, f"{one.reward:g}", advantage, one.length, *figures, tokens))
    table(("response", *numbers, "tokens that weigh most"), rows, right=numbers)
