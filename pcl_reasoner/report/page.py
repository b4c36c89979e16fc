"""Renders the page from a summary and the manifests: report.html.jinja, with report.css inside."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pcl_reasoner.report import charts, training
from pcl_reasoner.report.records import StageRecord


def _by_verdict(figure: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{kind}_{figure}", kind, kind) for kind in ("correct", "incorrect"))


_PANELS = (
    ("metrics", "Loss", (("loss", "loss", "plain"),)),
    ("metrics", "p of correct and incorrect responses", _by_verdict("p")),
    ("metrics", "Gradient weight of correct and incorrect responses", _by_verdict("weight")),
    ("metrics", "Entropy of a token, nats", _by_verdict("entropy")),
    ("metrics", "Tokens of a response", _by_verdict("length")),
    ("metrics", "Share of responses without an advantage", (("no_advantage", "share", "plain"),)),
    ("metrics", "Share of tokens that are clipped", (("clipped", "share", "plain"),)),
    ("metrics", "Gradient norm", (("grad_norm", "gradient norm", "plain"),)),
    ("metrics", "Learning rate", (("learning_rate", "learning rate", "plain"),)),
    (
        "probe",
        "Probe: correct, and ended of itself",
        (("accuracy", "correct", "correct"), ("stop_ratio", "ended", "before")),
    ),
    ("probe", "Probe: tokens of an answer", (("mean_length", "tokens", "plain"),)),
)
"""(file, title, curves) of each chart: metrics.jsonl or probe.jsonl; a curve is (figure in that
file, name, CSS class)."""


def page_environment() -> tuple[Environment, Markup]:
    """The Jinja environment of this room's templates, and their style sheet."""
    loader = PackageLoader("pcl_reasoner.report", "")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        percent=percent,
        points=points,
        figure_text=figure_text,
        duration=duration,
        spaced=spaced,
    )
    style, _, _ = loader.get_source(environment, "report.css")
    return environment, Markup(style)


def render(summary: Mapping[str, Any], records: Sequence[StageRecord]) -> str:
    """Render the page.

    Args:
        summary: As ``collect.summarize`` gives it.
        records: The same stages; their curves, durations, hosts and versions are shown.

    Returns:
        HTML with everything inline; all text from data is escaped.
    """
    environment, style = page_environment()
    return environment.get_template("report.html.jinja").render(
        **summary,
        style=style,
        score_chart=score_chart(summary["comparison"]),
        length_charts=[length_chart(table) for table in summary["lengths"]],
        training_charts={
            record.key: panels(record) for record in records if record.files.get("metrics")
        },
        stages=[provenance(record) for record in records if record.manifest],
        versions=versions(records),
    )


def score_chart(comparison: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw the scores before and after with their intervals; None if no score has an interval."""
    estimates = [
        charts.Estimate(
            f"{pair['benchmark'][:10]} {name}" if len(comparison) > 1 else name,
            name,
            pair[name]["avg_at_n"],
            *pair[name]["interval"],
        )
        for pair in comparison
        for name in ("before", "after")
        if pair[name] and pair[name]["interval"] and pair[name]["avg_at_n"] is not None
    ]
    label = "Average score before and after training, with 95 % intervals"
    return charts.interval_chart(label, estimates) if estimates else None


def length_chart(table: Mapping[str, Any]) -> Markup:
    """The histogram of one length table."""
    label = f"Lengths of {table['name']} in tokens"
    axis = "mean tokens of a response" if table["name"] == "problems" else "tokens of a response"
    edges, counts = table["edges"], table["counts"]
    return charts.histogram(label, edges, counts, axis, table["threshold"])


def panels(record: StageRecord) -> list[tuple[str, list[tuple[str, str]], Markup]]:
    """Title, legend (name, CSS class) and chart of every panel with data of a training stage."""
    found = []
    for file, title, figures in _PANELS:
        series = [
            charts.Series(name, style, training.curve(record, figure, file))
            for figure, name, style in figures
        ]
        series = [one for one in series if one.points]
        if series:
            legend = [(one.name, one.style) for one in series] if len(figures) > 1 else []
            found.append((title, legend, charts.line_chart(f"{title} by step", series)))
    return found


def provenance(record: StageRecord) -> dict[str, Any]:
    """Where, when and from what a stage's artifact was made."""
    manifest = record.manifest or {}
    return {
        "key": record.key,
        "fingerprint": str(manifest.get("fingerprint") or ""),
        "began_at": str(manifest.get("began_at") or ""),
        "seconds": manifest.get("seconds"),
        "host": str(manifest.get("host") or ""),
        "git_commit": str(manifest.get("git_commit") or ""),
        "info": {
            name: value if isinstance(value, int | float | str) else _json(value)
            for name, value in (record.counts.get("info") or {}).items()
        },
        "config": _json(record.config, indent=1),
    }


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, sort_keys=True)


def versions(records: Sequence[StageRecord]) -> dict[str, list[str]]:
    """Package -> its versions over all stages; several if stages ran with different ones."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in ((record.manifest or {}).get("versions") or {}).items():
            # A dict without values keeps the order of first appearance.
            found.setdefault(str(package), {})[str(version)] = None
    return {package: list(seen) for package, seen in found.items()}


def number(value: Any, digits: int = 4) -> str:
    """A figure as text: digits in groups of three if whole, else ``digits`` significant digits."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return charts.group(int(value))
    return f"{value:.{digits}g}"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in per cent, without the % sign."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


def points(value: float | None) -> str:
    """A difference of fractions in percentage points, with its sign (a true minus)."""
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", "\u2212")


def figure_text(value: Any, figure: str) -> str:
    """An expected or measured figure as text: a fraction in per cent, a gain in points."""
    if figure == "gain":
        return f"{points(value)} points"
    if figure in ("avg_at_n", "pass_at_n", "maj_at_n"):
        return f"{percent(value)} %"
    return number(value)


def duration(seconds: float | None) -> str:
    """A duration as text: seconds, minutes, or hours and minutes."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def spaced(value: str) -> str:
    """A reason or a figure's name for display: underscores become spaces."""
    return str(value).replace("_", " ")
