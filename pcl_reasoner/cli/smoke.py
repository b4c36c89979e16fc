"""The command ``smoke``. main.py adds it to the command line and translates its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pcl_reasoner.cli.options import FILE, FOLDER, POSITIVE, example, runs_option


@click.command(
    epilog=example(
        "pclr-ms smoke --launch one_node_7b",
        "pclr-ms smoke --launch my_node.yaml --model models/Qwen2.5-7B",
        "pclr-ms smoke",
    )
)
@click.argument("overrides", nargs=-1, metavar="[STAGE.KEY=VALUE]...")
@click.option(
    "--launch",
    default="laptop.yaml",
    metavar="FILE",
    help="Launch file, by path or shipped name: where it runs.",
)
@click.option(
    "--model", type=FOLDER, metavar="DIR", help="Your own weights in place of random ones."
)
@click.option(
    "--start",
    type=click.Choice(["ssh", "local"]),
    help="As in `run`; needed for a launch file of several hosts.",
)
@click.option(
    "--limit",
    default=7200,
    type=POSITIVE,
    metavar="SECONDS",
    help="Time after which a part is ended.",
)
@click.option("--again", is_flag=True, help="Run also the parts that were ok before.")
@click.option(
    "--output", default="smoke.json", type=FILE, help="The report; an existing file is overwritten."
)
@runs_option
def smoke(
    overrides: tuple[str, ...],
    launch: str,
    model: Path | None,
    start: str | None,
    limit: int,
    again: bool,
    output: Path,
    runs: Path,
) -> int:
    """Try the whole path on one node: train, kill, resume, export, serve, prove, 30 answers.

    Runs the shipped recipe `smoke` with this launch file: artificial data, random weights of the
    profile's shape (or --model), 20 steps of SFT. Training is killed after its first save and
    resumes. The JSON file says what worked, how fast, and which assumption of `pclr-ms plan` it
    changes; it has no host names, addresses or paths. Expect half an hour for a 7B model on
    eight devices, and a minute on a laptop. The exit code is 1 if a part is wrong or was not run.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.core.artifact import write_atomically
    from pcl_reasoner.smoke.smoke import shareable
    from pcl_reasoner.smoke.smoke import smoke as run_parts
    from pcl_reasoner.smoke.trial import Trial

    with terminal.run_view() as view:
        places = (launch, model and model.absolute(), start, overrides, runs.absolute())
        trial = Trial(*places, limit, view)
        click.echo(terminal.headline(trial.recipe))
        report = run_parts(trial, again, view.begin, lambda entry: view.noted(_line(entry)))
    write_atomically(output, json.dumps(shareable(report), indent=1) + "\n")
    _show(report)
    if any(part["status"] == "wrong" for part in report["parts"]):
        click.echo(f"what each command printed: {trial.folder}/*.log")
    click.echo(f"written: {output}")
    return int(any(part["status"] != "ok" for part in report["parts"]))


def _line(entry: dict[str, Any]) -> str:
    return f"{entry['name']}: {entry['status']}, {entry['seconds']:g} s"


def _show(report: dict[str, Any]) -> None:
    from pcl_reasoner.cli import terminal

    rows = [
        (part["name"], part["title"], part["status"], f"{part['seconds']:g} s", _why(part))
        for part in report["parts"]
    ]
    click.echo()
    terminal.table(("part", "what", "", "time", "why"), rows)
    wrong = [
        (part["name"], *(str(one[key]) for key in ("name", "got", "expected", "error")))
        for part in report["parts"]
        for one in part["checks"]
        if not one["ok"]
    ]
    if wrong:
        click.echo()
        terminal.table(("part", "wrong", "got", "expected", "error"), wrong)
    for part in report["parts"]:
        if "\n" in part["why"]:
            click.echo(f"\n{part['name']}: {part['why']}")
    _show_plan(report["plan"])


def _why(part: dict[str, Any]) -> str:
    """The first line of what went wrong; the report has all."""
    return str(part["why"]).partition("\n")[0]


def _show_plan(plan: dict[str, Any]) -> None:
    from pcl_reasoner.cli import terminal

    click.echo()
    if plan["assumptions"]:
        names = ("assumption", "assumed", "measured", "how")
        rows = [tuple(str(one[name]) for name in names) for one in plan["assumptions"]]
        terminal.table(("assumption of the plan", "assumed", "MEASURED", "how"), rows)
    for one in plan["hours"]:
        told = one.get("not_estimated")
        hours = told or f"{one['assumed']:g} h by assumption, {one['measured']:g} h by this run"
        click.echo(f"{one['stage']}: {hours}")
    for note in plan["notes"]:
        click.echo(f"note: {note}")
