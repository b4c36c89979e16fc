"""Shows packing stages: tables with one column per stage, and a chart of how full rows are.

A sample line of a table, for two packing stages::

    ("Tokens of padding", [("v1_sft/pack.padding", 73175), ("v15_opg/pack.padding", 72731)])
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pcl_reasoner.page_parts import charts
from pcl_reasoner.page_parts.records import StageRecord

ACCOUNTS = {
    "segments": "Segments",
    "segments_dropped": "Segments dropped",
    "dropped": "– dropped, reason {}",
    "truncated": "Segments truncated",
    "rows": "Rows",
    "rows_bound": "– at least, by any packing",
    "rows_over_bound": "– above this bound",
    "rows_next_fit": "– if filled in file order",
    "rows_saved": "– saved compared with file order",
    "seq_length": "Tokens per row",
    "tokens": "Tokens of segments",
    "trained_tokens": "– trained on",
    "padding": "Tokens of padding",
    "fill": "Share of row tokens that belong to segments",
    "steps_per_epoch": "Steps per epoch, global batch of {}",
    "steps_per_epoch_next_fit": "– if filled in file order, global batch of {}",
}
"""Figure -> label, in the order of the table. A figure with several entries has one line per entry;
the entry's name replaces {}."""
ROW_SIZES = {"segments_per_row": "{}"}
"""Figure -> label, for the table that counts rows by their number of segments."""
_DRAWN = ("rows", "seq_length", "tokens", "trained_tokens")
_PARTS = (("trained on", "trained"), ("not trained on", "untrained"), ("padding", "padding"))


def packing(record: StageRecord) -> dict[str, Any]:
    """Return a packing stage's accounting, divided into single figures and tables of figures."""
    accounting = sorted(record.files["accounting"].items())
    return {
        "key": record.key,
        "figures": {
            name: value for name, value in accounting if not isinstance(value, dict | list)
        },
        "tables": {name: value for name, value in accounting if isinstance(value, dict)},
    }


def packing_lines(
    packings: Sequence[Mapping[str, Any]], labels: Mapping[str, str]
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return the lines of a table; figures that no stage has are left out.

    Args:
        packings: Results of ``packing``, one per stage.
        labels: ACCOUNTS or ROW_SIZES.

    Returns:
        Per line: the label, and a pair (``recipe/stage.figure``, number or None) per stage.
    """
    lines = []
    for name, label in labels.items():
        columns = {one["key"]: _entries(one, name) for one in packings}
        entries = {entry for found in columns.values() for entry in found}
        # Entries are numbers as text: the longer text is the larger number.
        for entry in sorted(entries, key=lambda entry: (len(entry), entry)):
            key = f"{name}.{entry}" if entry else name
            cells = [(f"{stage}.{key}", found.get(entry)) for stage, found in columns.items()]
            lines.append((label.format(entry.replace("_", " ")), cells))
    return lines


def _entries(one: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return entry -> number for one figure of a stage; a single number has the entry ""."""
    figures, tables = one["figures"], one["tables"]
    if name == "segments_dropped":
        return {"": sum(tables.get("dropped", {}).values())}
    if name == "padding":
        return {"": figures["rows"] * figures["seq_length"] - figures["tokens"]}
    return tables.get(name) or ({"": figures[name]} if name in figures else {})


def fill_chart(packings: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw one bar per stage: the shares of tokens trained on, not trained on, and padding."""
    bars = []
    for one in packings:
        rows, seq_length, tokens, trained = (one["figures"][name] for name in _DRAWN)
        size = max(1, rows * seq_length)
        parts = [100 * count / size for count in (trained, tokens - trained, size - tokens)]
        bars.append(charts.Bar(one["key"], parts, f"{100 * tokens / size:.1f} % full"))
    return charts.bar_chart("Tokens of rows by use", _PARTS, bars, "%")
