"""The commands of ``pclr-ms``, and the exit codes of errors. Only the package cli prints and exits.

Besides light modules of this package, only click and the standard library are imported here, so
that ``--help`` is fast. Every command imports what it needs.
"""

from __future__ import annotations

import io
import os
import re
import signal
import traceback
import webbrowser
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner import __version__
from pcl_reasoner.cli import dry_run as dry_run_command
from pcl_reasoner.cli import evaluation, training
from pcl_reasoner.cli.contamination import contamination
from pcl_reasoner.cli.doctor import doctor
from pcl_reasoner.cli.options import (
    PATH,
    arguments_of,
    example,
    hosts_option,
    load,
    recipe_options,
    require_done,
    runs_option,
    where_options,
)
from pcl_reasoner.cli.plan import plan as plan_command
from pcl_reasoner.cli.rehearsal import rehearse
from pcl_reasoner.cli.smoke import smoke
from pcl_reasoner.cli.validation import validate
from pcl_reasoner.cli.verify import verify
from pcl_reasoner.core import errors
from pcl_reasoner.core.errors import InputError, PclError, StageError

if TYPE_CHECKING:
    from pcl_reasoner.runner.plan import Plan

INTERRUPTED = 130


class _Group(click.Group):
    """Lists commands in the order in which they are added, which is the order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(self.commands)


@click.group(
    cls=_Group,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog=example("pclr-ms run v15_opg"),
)
@click.version_option(__version__, prog_name="pclr-ms")
def cli() -> None:
    """PCL-Reasoner V1 (SFT) and V1.5 (offline RL) on MindSpore: from raw data to a report."""


@cli.command(
    epilog=example("pclr-ms run v15_opg", "pclr-ms run v15_opg --until pack pack.seq_length=512")
)
@recipe_options
@click.option("--until", metavar="STAGE", help="Last stage to run, with those it reads.")
@click.option(
    "--from", "from_stage", metavar="STAGE", help="Run this stage and all after it again."
)
@click.option("--dry-run", is_flag=True, help="Print and write what would run; run nothing.")
@click.option(
    "--verify",
    is_flag=True,
    help="Read every source and every file that a stage of this run reads, also those that have "
    "not changed since they were last read.",
)
@click.option(
    "--start",
    type=click.Choice(("ssh", "local")),
    help="Start training on the launch file's hosts, watch it, and restart it if a worker or a "
    "host is lost or it makes no step; "
    "ssh: also start a stage's servers and Ray; local: run all hosts as processes of this machine.",
)
@hosts_option
@runs_option
def run(
    until: str | None,
    from_stage: str | None,
    dry_run: bool,
    verify: bool,
    start: str | None,
    hosts: bool,
    runs: Path,
    **options: Any,
) -> None:
    """Run a recipe; stages that are already done are skipped, damaged ones are made again."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.cli.validation import refuse_wrong_plan
    from pcl_reasoner.hosts.ray_cluster import ray_around
    from pcl_reasoner.preflight.check import StartCheck
    from pcl_reasoner.runner import runner
    from pcl_reasoner.runner.damaged import damaged_stages
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.runner.sources import fetched

    checks = StartCheck(until, runs, start, hosts, dry_run)
    recipe = load(until=until, further=checks.new_errors, **options)
    click.echo(terminal.headline(recipe))
    plan = make_plan(recipe, runs, until, trust_hashes=not verify)
    repeated = runner.stages_to_repeat(plan, from_stage)
    if dry_run:
        dry_run_command.show(plan, repeated, runs, until)
        return
    with terminal.run_view() as view:
        view.begin("comparing artifacts with their manifests")
        damaged = damaged_stages(plan, repeated, view)
    again = runner.stages_to_run(plan, repeated, damaged)
    if not plan.missing and not again:
        click.echo("nothing to do: every stage is done")
        _show_result(plan, until)
        return
    refuse_wrong_plan(plan, again, checks)
    if all(fetched(folder) for folder in plan.to_fetch):
        # Libraries then do not ask the hub about local folders. They read the variable when they
        # are imported, so it must be set before.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if len(recipe.launch.placement.hosts) > 1 and start is None:
        dry_run_command.show_scripts(plan, runs)
    with terminal.run_view() as view:
        runner.run(plan, view, repeated, start, ray_around)
    click.echo()
    terminal.summary(plan)
    _show_result(plan, until)


def _show_result(plan: Plan, until: str | None) -> None:
    """Print where the result is, and what to do next."""
    report = plan.report_file()
    click.echo(f"report: {report}" if report else f"result: {plan.stages[-1].folder}")
    if report is not None:
        click.echo(f"next: pclr-ms report {arguments_of(plan.recipe)} --open")
    elif until is not None:
        click.echo(f"next: pclr-ms run {arguments_of(plan.recipe)}")


cli.add_command(validate)


@cli.command(epilog=example("pclr-ms status v15_opg"))
@recipe_options
@runs_option
def status(runs: Path, **options: Any) -> None:
    """Show for each stage whether it is done or has to run, and why."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.runner.plan import make_plan, state

    recipe = load(**options)
    click.echo(terminal.headline(recipe))
    plan = make_plan(recipe, runs)
    terminal.table(
        ("stage", "fingerprint", "state"),
        [(one.title, one.fingerprint[:8], state(one)) for one in plan.stages],
    )
    click.echo(f"{sum(one.done for one in plan.stages)} of {len(plan.stages)} stages done")
    for problem in plan.missing:
        click.echo(f"missing: {problem}")


@cli.command(epilog=example("pclr-ms show v15_opg --profile paper --launch atlas_910c_16x8"))
@recipe_options
def show(**options: Any) -> None:
    """Print the recipe as YAML with profile, launch file, choices and overrides applied."""
    from pcl_reasoner.core.files import yaml_text

    click.echo(yaml_text(load(**options).resolved()), nl=False)


@cli.command(
    epilog=example("pclr-ms diff v15_opg my_recipe.yaml", "pclr-ms diff v1_sft finetune_qwen2.yaml")
)
@click.argument("left")
@click.argument("right")
@where_options
@runs_option
def diff(left: str, right: str, runs: Path, **options: Any) -> None:
    """Compare two recipes key by key, or a recipe's training with a MindFormers YAML.

    Prints three lists: keys whose values differ in meaning, keys that only LEFT has, and keys that
    only RIGHT has. 1e-6 and 0.000001 count as equal, and so do ./output/ and output.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.train.compare import differences, mindformers_yaml, rendered

    recipe = load(left, **options)
    native = mindformers_yaml(right)
    ours = recipe.resolved() if native is None else rendered(recipe, runs)
    theirs = load(right, **options).resolved() if native is None else native
    columns = (
        ("different in meaning", left, right),
        (f"only in {left}", ""),
        (f"only in {right}", ""),
    )
    tables = [pair for pair in zip(columns, differences(ours, theirs), strict=True) if pair[1]]
    for headings, rows in tables:
        terminal.table(headings, rows)
        click.echo()
    if not tables:
        click.echo("no difference")


@cli.command("ls", epilog=example("pclr-ms ls"))
def list_shipped() -> None:
    """List the shipped recipes and launch files."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.core import files
    from pcl_reasoner.core.yaml_file import read_yaml

    rows = [
        (folder.removesuffix("s"), path.stem, read_yaml(path).get("title", ""))
        for folder in ("recipes", "launch")
        for path in sorted(files.shipped(folder).glob("*.yaml"))
    ]
    terminal.table(("kind", "name", "title"), rows)


@cli.command(epilog=example("pclr-ms cp v15_opg my_recipe.yaml"))
@click.argument("name")
@click.argument("destination", metavar="DEST", type=PATH)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def cp(name: str, destination: Path, force: bool) -> None:
    """Copy a recipe with the profile files that it names, or copy a launch file."""
    from pcl_reasoner.core import files
    from pcl_reasoner.runner.copying import copy

    copied = copy(name, destination, force)
    for source, target in copied:
        click.echo(f"{source} -> {target}")
    if copied[0][0].parent == files.shipped("recipes"):
        click.echo("next: change the value of its key name, so that its runs get their own folder")


@cli.command(epilog=example("pclr-ms report v15_opg --open"))
@recipe_options
@click.option("--open", "open_it", is_flag=True, help="Open it in a browser.")
@runs_option
def report(open_it: bool, runs: Path, **options: Any) -> None:
    """Print the path of the run's report."""
    from pcl_reasoner.runner.plan import make_plan

    recipe = load(**options)
    file = make_plan(recipe, runs).report_file()
    if file is None:
        raise InputError(f"{recipe.path}: has no report stage.")
    if not file.is_file():
        command = f"pclr-ms run {arguments_of(recipe)}"
        raise StageError(f"{file}: does not exist yet. Build it with: {command}")
    click.echo(file)
    if open_it:
        webbrowser.open(file.as_uri())


@cli.command(epilog=example("pclr-ms preview v15_opg --rows 0,1"))
@click.argument("recipe")
@click.argument("arguments", nargs=-1, metavar="[STAGE] [STAGE.KEY=VALUE]...")
@where_options
@click.option("--rows", default="0", help="Rows to show, e.g. 0,1.")
@runs_option
def preview(recipe: str, arguments: tuple[str, ...], rows: str, runs: Path, **options: Any) -> None:
    """Show packed rows as coloured tokens: prompt, trained, masked, segments, rewards.

    STAGE is the pack stage to show; 'pack' if left out.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.pack.preview import preview_rows
    from pcl_reasoner.runner.plan import make_plan

    if not re.fullmatch(r"\d{1,12}(,\d{1,12})*", rows):
        raise InputError(f"--rows {rows}: must be row numbers, e.g. 0,1.")
    indices = [int(row) for row in rows.split(",")]
    stage = arguments[0] if arguments and "=" not in arguments[0] else "pack"
    loaded = load(recipe, tuple(one for one in arguments if one != stage), until=stage, **options)
    plan = make_plan(loaded, runs, until=stage)
    planned = plan.stages[-1]
    require_done(planned, loaded)
    spans_of_rows = preview_rows(planned.folder, plan.tokenizer_file(planned), indices)
    terminal.preview_legend()
    for row, spans in zip(indices, spans_of_rows, strict=True):
        terminal.preview(row, spans)


@cli.command(epilog=example("pclr-ms recount PCL-Reasoner-V1.5-data/"))
@click.argument("source", type=PATH)
@click.option("--problem", default="problem", help="Column of the problem.")
@click.option("--reward", default="reward", help="Column of the reward; above 0 means correct.")
def recount(source: Path, problem: str, reward: str) -> None:
    """Count a released data set's graded responses and compare with V1.5's published counts."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.curate.recount import recount as count

    rows = [
        (one.name, f"{one.found:,}", "" if one.published is None else f"{one.published:,}")
        for one in count(source, problem, reward)
    ]
    terminal.table(("", "here", "published"), rows, right=("here", "published"))


cli.add_command(doctor)
cli.add_command(verify)
cli.add_command(contamination)
cli.add_command(evaluation.evaluate)
cli.add_command(evaluation.rescore)
cli.add_command(training.inspect)
cli.add_command(training.convert)
cli.add_command(training.compile_)
cli.add_command(rehearse)
cli.add_command(plan_command)
cli.add_command(training.hardware_check)
cli.add_command(smoke)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Let SIGTERM end a run as Ctrl-C does: stages clean up, and finished work is kept."""
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: Arguments after ``pclr-ms``; those of this process when None.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = cli.main(arguments, prog_name="pclr-ms", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(errors.printable(shown.getvalue()), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; run the same command again to resume", err=True)
        return INTERRUPTED
    except PclError as error:
        click.echo(f"error: {errors.printable(str(error))}", err=True)
        return error.exit_code
    except Exception as error:
        if found := errors.in_words(error, "running the command"):
            click.echo(f"error: {errors.printable(str(found))}", err=True)
            return 1
        click.echo(f"unexpected error\n{traceback.format_exc()}", err=True)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
