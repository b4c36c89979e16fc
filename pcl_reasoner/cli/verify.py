"""``pclr-ms verify``: reads all that is finished, and names what is damaged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pcl_reasoner.cli.options import example, runs_option

if TYPE_CHECKING:
    from pcl_reasoner.runner.verify import Verified


@click.command(epilog=example("pclr-ms verify", "pclr-ms verify v15_opg"))
@click.argument("run", required=False)
@runs_option
def verify(run: str | None, runs: Path) -> int:
    """Read every file of finished stages and compare it with its hash.

    RUN is the name of one run; all runs and fetched sources if left out. The exit code is 1 if
    anything is damaged. A stage whose files are damaged is made again by the command that is shown.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.runner.pace import duration
    from pcl_reasoner.runner.verify import verify_runs

    began = time.monotonic()
    with terminal.run_view() as view:
        view.begin("reading")
        found = verify_runs(
            runs.expanduser().absolute(),
            run,
            lambda done, total: view.update(done / 1e6, total / 1e6, "MB"),
        )
    for one in found:
        _show(one)
    files, size = sum(one.files for one in found), sum(one.size for one in found)
    damaged = sum(bool(one.damages) for one in found)
    seconds = duration(time.monotonic() - began)
    text = f"{len(found)} finished stages and sources, {files:,} files, {size / 1e9:,.2f} GB"
    click.echo(f"{text}, read in {seconds}: {damaged or 'none'} damaged")
    return 1 if damaged else 0


def _show(one: Verified) -> None:
    for damage in one.damages:
        click.echo(str(damage))
    if one.damages:
        added = [damage for damage in one.damages if damage.added]
        remedy = one.remedy if len(added) < len(one.damages) else "move the added files elsewhere"
        click.echo(f"  made by {one.maker}; to correct it: {remedy}")
