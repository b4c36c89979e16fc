"""Renders a run's page from its summary and manifests, with report.html.jinja and report.css."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts import charts, drawing
from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.page_parts.texts import reason_text
from pcl_reasoner.report import filters, packing, programs, training
from pcl_reasoner.report.kinds import UNKNOWN
from pcl_reasoner.rl_report.panels import length_panels, rl_panels
from pcl_reasoner.rl_report.pool import pool_chart


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
"""(file, title, curves) of each chart. The file is metrics.jsonl or probe.jsonl. A curve is
(figure in that file, name, CSS class)."""


def page_environment() -> tuple[Environment, Markup]:
    """Return the Jinja environment of this folder's templates, and their style sheet."""
    loader = PackageLoader("pcl_reasoner.report", "")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (number, percent, points, signed, figure_text, duration, spaced, reason_text)
    environment.filters.update({function.__name__: function for function in functions})
    style, _, _ = loader.get_source(environment, "report.css")
    return environment, Markup(style)


def render(summary: Mapping[str, Any], records: Sequence[StageRecord]) -> str:
    """Render the page.

    Args:
        summary: The result of ``collect.summarize``.
        records: The summary's stages; their curves, durations, hosts and versions are shown.

    Returns:
        HTML with everything inline; all text from data is escaped.
    """
    environment, style = page_environment()
    present = {kind for row in summary["kinds"] for kind in (*row["kept"], *row["lost"])}
    trained = [record for record in records if record.files.get("metrics")]
    return environment.get_template("report.html.jinja").render(
        **summary,
        style=style,
        score_chart=score_chart(summary["comparison"]),
        length_charts=[length_chart(table) for table in summary["lengths"]],
        fill_chart=packing.fill_chart,
        packing_accounts=packing.packing_lines(summary["packing"], packing.ACCOUNTS),
        packing_sizes=packing.packing_lines(summary["packing"], packing.ROW_SIZES),
        training_charts={record.key: panels(record) for record in trained},
        shift_charts={
            record.key: shift_chart(record) for record in trained if training.pattern_shift(record)
        },
        graded_training=any(one["correct_share"] is not None for one in summary["training"]),
        kind_columns=[kind for kind in (*KINDS, UNKNOWN) if kind in present],
        program_chart=programs.program_chart(summary["programs"]),
        **_rl_parts(summary["rl_pool"], records),
        filter_chart=filters.filter_chart,
        rate_chart=filters.rate_chart,
        stages=[provenance(record) for record in records if record.manifest],
        versions=versions(records),
    )


def _rl_parts(pool: Sequence[Mapping[str, Any]], records: Sequence[StageRecord]) -> dict[str, Any]:
    """Return the charts of on-policy training, and the kinds of its problems."""
    return {
        "rl_panels": rl_panels(records),
        "length_panels": length_panels(records),
        "pool_chart": pool_chart(pool),
        "pool_kinds": [kind for kind in KINDS if any(kind in row["kinds"] for row in pool)],
    }


def score_chart(comparison: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw scores before and after training, with intervals; None if no score has an interval."""
    twice = any(pair["before"] for pair in comparison)
    estimates = [
        charts.Estimate(
            _estimate_name(pair["benchmark"][:20], name, twice, len(comparison) > 1),
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


def _estimate_name(benchmark: str, name: str, twice: bool, several: bool) -> str:
    """Return the name of a dot: the benchmark if there are several, before or after if needed."""
    if not several:
        return name
    return f"{benchmark} {name}" if twice else benchmark


def length_chart(table: Mapping[str, Any]) -> Markup:
    """Draw the histogram of one length table."""
    label = f"Lengths of {table['name']} in tokens"
    axis = "mean tokens of a response" if table["name"] == "problems" else "tokens of a response"
    return charts.histogram(label, table["edges"], table["counts"], axis, table["threshold"])


def panels(record: StageRecord) -> list[tuple[str, list[tuple[str, str]], Markup]]:
    """Return title, legend ((name, CSS class) pairs) and chart of each panel that has data."""
    found = []
    shift = training.pattern_shift(record)
    for file, title, figures in _PANELS:
        # The figure of the pattern shift has the length, too.
        if shift and figures[0][0] == "mean_length":
            continue
        # The probes of on-policy training have charts of their own.
        if record.type == "rl" and file == "probe":
            continue
        series = [
            charts.Series(name, style, training.curve(record, figure, file))
            for figure, name, style in figures
        ]
        series = [one for one in series if one.points]
        if series:
            legend = [(one.name, one.style) for one in series] if len(figures) > 1 else []
            found.append((title, legend, charts.line_chart(f"{title} by step", series)))
    return found


def shift_chart(record: StageRecord) -> Markup:
    """Draw the length of the probe's answers and the share that ended, by step."""
    length, ended = (training.curve(record, name, "probe") for name in training.SHIFT)
    return charts.two_axis_chart(
        "Tokens of an answer and share of answers that ended, by step",
        charts.Series("tokens", "correct", length),
        charts.Series("ended", "incorrect", ended),
    )


def provenance(record: StageRecord) -> dict[str, Any]:
    """Return where, when and with which configuration a stage ran."""
    manifest, names = record.manifest or {}, ("fingerprint", "began_at", "host", "git_commit")
    return {
        "key": record.key,
        **{name: str(manifest.get(name) or "") for name in names},
        "seconds": manifest.get("seconds"),
        "info": {
            name: value if isinstance(value, int | float | str) else _json(value)
            for name, value in (record.counts.get("info") or {}).items()
        },
        "config": _json(record.config, indent=1),
    }


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, sort_keys=True)


def versions(records: Sequence[StageRecord]) -> dict[str, list[str]]:
    """Return package -> versions; several if stages ran with different versions."""
    found: dict[str, list[str]] = {}
    for record in records:
        for package, version in ((record.manifest or {}).get("versions") or {}).items():
            seen = found.setdefault(str(package), [])
            if str(version) not in seen:
                seen.append(str(version))
    return found


def number(value: Any) -> str:
    """Format a figure: an integer in groups of three digits, else four significant digits."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return drawing.group(int(value))
    return f"{value:.4g}"


def percent(value: float | None) -> str:
    """Format a fraction in per cent, without the % sign."""
    return "–" if value is None else f"{100 * value:.1f}"


def points(value: float | None) -> str:
    """Format a difference of fractions in percentage points, with its sign (a true minus)."""
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", "\u2212")


def signed(value: float) -> str:
    """Format a number with its sign (a true minus) and two digits after the point."""
    return f"{value:+.2f}".replace("-", "\u2212")


def figure_text(value: Any, figure: str) -> str:
    """Format an expected or measured figure: a fraction in per cent, a gain in points."""
    if figure == "gain":
        return f"{points(value)} points"
    if figure in ("avg_at_n", "pass_at_n", "maj_at_n"):
        return f"{percent(value)} %"
    return number(value)


def duration(seconds: float | None) -> str:
    """Format a duration: seconds, minutes, or hours and minutes."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def spaced(value: str) -> str:
    """Replace underscores by spaces, to display a reason or a figure's name."""
    return str(value).replace("_", " ")
