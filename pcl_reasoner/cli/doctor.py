"""``pclr-ms doctor``: what is installed here, and with --launch on every host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pcl_reasoner.cli.options import example

if TYPE_CHECKING:
    from pcl_reasoner.hardware_check.doctor import Check


@click.command(epilog=example("pclr-ms doctor", "pclr-ms doctor --launch my_cluster.yaml"))
@click.option(
    "--launch",
    metavar="FILE",
    help="Compare every engine of every host of this launch file with the table of versions.",
)
@click.option(
    "--start",
    type=click.Choice(["ssh", "local"]),
    help="With --launch: how hosts are reached. ssh, or local if the file has only this machine.",
)
def doctor(launch: str | None, start: str | None) -> int:
    """Show the installed versions and whether they are compatible.

    The exit code is 1 if a run on a laptop is impossible, or if an engine of a host does not fit.
    """
    if launch is not None:
        return _on_hosts(launch, start)
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.cli.sandbox import doctor_row
    from pcl_reasoner.cpu_ranks import extension
    from pcl_reasoner.hardware_check.doctor import Check, checks

    problem = extension.problem()
    rehearsals = Check(
        name="pclr-ms rehearse",
        found="not possible" if problem else "possible",
        wanted=f"x86-64, MindSpore {' or '.join(extension.VERSIONS)}, g++",
        ok=True,
        needed=False,
        advice=problem or "",
    )
    found = [*checks(), rehearsals, doctor_row()]
    terminal.doctor_table(found)
    wrong = [check.name for check in found if check.needed and not check.ok]
    click.echo(
        f"the laptop path cannot run: {', '.join(wrong)}" if wrong else "the laptop path can run"
    )
    return 1 if wrong else 0


def _on_hosts(name: str, start: str | None) -> int:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.runner.launch_file import load_launch
    from pcl_reasoner.supervise.connection import LOCAL, SSH
    from pcl_reasoner.version_check.hosts import check_launch

    launch = load_launch(name)
    alone = launch.placement.hosts == ["localhost"]
    found = check_launch(launch, start or (LOCAL if alone else SSH))
    terminal.doctor_table([_row(one) for one in found])
    wrong = sorted({f"{one.host} ({one.program})" for one in found if not one.ok})
    click.echo(f"does not fit: {', '.join(wrong)}" if wrong else "all engines of all hosts fit")
    return 1 if wrong else 0


def _row(found: object) -> Check:
    from pcl_reasoner.hardware_check.doctor import Check
    from pcl_reasoner.version_check.hosts import Finding

    assert isinstance(found, Finding)
    name = f"{found.host} {found.program}: {found.name}"
    return Check(name, found.found, found.wanted, found.ok, True, found.advice)
