"""Scripts that start a stage on its hosts: one per host, and a Slurm job file.

    runs/v1_sft/launch/train/host_00_node01.sh    the command of node01, to start by hand
    runs/v1_sft/launch/train/job.sbatch           a Slurm job for all hosts, which Slurm chooses
    runs/v1_sft/launch/train/slurm_node.sh        the script that this job runs on each host

This module starts nothing. Ray's scripts are in runs/v1_sft/launch/_ray, a name that no stage can
have.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.errors import not_writable
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, Serving
from pcl_reasoner.core.stage import ServerNeeds
from pcl_reasoner.hosts.commands import (
    CONFIG,
    HostCommand,
    HostCommands,
    host_commands,
    ray_address,
    ray_commands,
)
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.serving import serve_command
from pcl_reasoner.supervise.environment import environment_steps

FOLDER = "launch"
RAY_FOLDER = "_ray"
JOB, NODE = "job.sbatch", "slurm_node.sh"
_BASH = "#!/usr/bin/env bash"
_STRICT = "set -euo pipefail"
_NO_KEY = (
    "VLLM_API_KEY is not set. Without a key, everyone who reaches this server could replace its "
    "weights."
)


@dataclass(frozen=True)
class Scripts:
    """The scripts that start one stage, the servers of one stage, or Ray.

    Args:
        title: The stage (``v1_sft/train``), or ``Ray``.
        folder: The scripts' folder.
        files: The hosts' scripts in the order of the hosts, then the two files for Slurm.
        unit: What each script is for: ``host``, or ``server`` if a host has several.
    """

    title: str
    folder: Path
    files: tuple[Path, ...]
    unit: str = "host"

    @property
    def hosts(self) -> int:
        """Number of scripts to start by hand: one per host, or per server."""
        return len(self.files) - 2

    @property
    def command(self) -> str:
        """The command that starts all hosts under Slurm."""
        return f"sbatch {shlex.quote(str(self.folder / JOB))}"

    @property
    def by_hand(self) -> str:
        """The first host's command without Slurm; every other host runs its own script."""
        return f"bash {shlex.quote(str(self.files[0]))}"


def write_scripts(planned: PlannedStage) -> list[Scripts]:
    """Write the scripts that start a stage's training, and the servers that the stage asks.

    Args:
        planned: The stage.

    Returns:
        The scripts of the training, and those of each kind of servers. Training on one device of
        one host needs none, and training that waits for the runner cannot be started by hand.

    Raises:
        StageError: The folder cannot be written.
    """
    found = [group for group in host_commands(planned) if _by_hand(planned, group)]
    return [_write_group(planned, group) for group in found]


def _by_hand(planned: PlannedStage, group: HostCommands) -> bool:
    if group.needs:
        return True
    several = len(group.commands) * group.placement.devices_per_host > 1
    return several and not planned.spec.config.waits_for_runner


def _write_group(planned: PlannedStage, group: HostCommands) -> Scripts:
    placement, commands = group.placement, group.commands
    folder = planned.folder.parent / FOLDER / group.name
    title = f"{planned.recipe.name}/{group.name}"
    if group.needs and group.serving:
        checks = _serve_checks(planned, group.needs, group.serving)
        environment_of = partial(serve_command.environment_of, group.serving, placement)
        environment = _slurm_environment(placement, environment_of)
        node = servers_of_a_task(commands, group.serving, environment, checks)
        return _write(title, folder, placement, commands, checks, node, group.serving)
    # Slurm's rank and master replace the launch file's.
    first, training = commands[0], placement.training
    master = shlex.quote(placement.hosts[0])
    start = first.start.replace(f"--master_addr={master} ", '--master_addr="$PCLR_MASTER" ')
    start = start.replace("--node_rank=0 ", '--node_rank="$SLURM_NODEID" ')
    checks = _train_checks(planned)
    environment_of = partial(
        environment_steps,
        placement,
        python=training.python,
        base_env=first.base_env,
        program=training,
    )
    environment = _slurm_environment(placement, environment_of)
    body = [*environment, "", *checks, *first.place, "", f"exec {start}"]
    if first.contained is not None:
        body = [first.contained("\n".join([_STRICT, *body]))]
    return _write(title, folder, placement, commands, checks, body)


def servers_of_a_task(
    commands: Sequence[HostCommand],
    serving: Serving,
    environment: Sequence[str],
    checks: Sequence[str],
) -> list[str]:
    """Return the lines of a Slurm task that runs one server, and starts it again if it is lost.

    Args:
        commands: The servers' commands; those of the first host are taken.
        serving: Has the number of servers per host, and of restarts.
        environment: Lines that set up the environment.
        checks: Lines that end the script if something is missing.
    """
    cases = []
    for one in commands[: serving.servers]:
        inside = "\n".join([_STRICT, *environment, f"exec {one.start}"])
        cases.append(f"  {one.index}) {one.contained(inside) if one.contained else one.start} ;;")
    return [
        *([] if serving.container else environment),
        "",
        *checks,
        "",
        "# When the job ends, nothing is started again.",
        "trap 'exit 143' TERM",
        "serve() {",
        '  case "${SLURM_LOCALID:-0}" in',
        *cases,
        "  esac",
        "}",
        f"for start in $(seq 0 {serving.restarts}); do",
        '  echo "start $start of server ${SLURM_LOCALID:-0} on $(hostname)"',
        "  code=0; serve || code=$?",
        '  echo "the server ended with exit code $code"',
        "done",
        'exit "$code"',
    ]


def write_ray_scripts(placement: Placement, run: Path) -> Scripts | None:
    """Write the scripts that start Ray for the data stages; None if no script is needed.

    Args:
        placement: The launch file's settings.
        run: The recipe's run folder.

    Raises:
        StageError: The folder cannot be written.
    """
    commands = ray_commands(placement)
    if not commands:
        return None
    _, port, _ = ray_address(placement)
    checks = [_on_path("ray", "pip install 'pclr-ms[ray]' on every host")]
    environment_of = partial(environment_steps, placement, base_env=commands[0].base_env)
    node = [
        *_slurm_environment(placement, environment_of),
        "",
        *checks,
        "",
        "# The first host is the head. Its name belongs into placement.data.address.",
        'if [ "$SLURM_NODEID" = 0 ]; then',
        f"  exec {commands[0].start}",
        "fi",
        f'exec ray start --address="$PCLR_MASTER":{port} --block',
    ]
    return _write("Ray", run / FOLDER / RAY_FOLDER, placement, commands, checks, node)


def _write(
    title: str,
    folder: Path,
    placement: Placement,
    commands: Sequence[HostCommand],
    checks: Sequence[str],
    node: Sequence[str],
    serving: Serving | None = None,
) -> Scripts:
    several = serving is not None and serving.servers > 1
    texts = {}
    for command in commands:
        number = f".server_{command.index}" if several else ""
        name = f"host_{command.rank:02d}_{command.host}{number}.sh"
        texts[name] = host_script(command, checks)
    said = f"# {title}, one task of {JOB}: Slurm says which host this is."
    texts[NODE] = _text([said, _STRICT, "", *node])
    texts[JOB] = slurm_job(title, placement, folder / NODE, serving)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_atomically(folder / name, text)
            (folder / name).chmod(0o755)
        for old in folder.glob("host_*.sh"):
            # From a launch file with other hosts: it must not be started together with these.
            if old.name not in texts:
                old.unlink()
    except OSError as error:
        raise not_writable(folder, error) from error
    unit = "server" if several else "host"
    return Scripts(title, folder, tuple(folder / name for name in texts), unit)


def host_script(command: HostCommand, checks: Sequence[str]) -> str:
    """Return the script of one host.

    Args:
        command: The host's command.
        checks: Shell lines before the command; each ends the script if its condition is false.
    """
    environment = _shell(command.environment)
    body = [*environment, "", *checks, *command.place, "", f"exec {command.start}"]
    if command.contained is not None:
        body = [command.contained("\n".join([_STRICT, *body]))]
    return _text(
        [
            f"# {command.purpose}, on {command.host}.",
            "# pclr-ms writes this file from the launch file: change that one instead.",
            _STRICT,
            "",
            *body,
        ]
    )


def slurm_job(title: str, placement: Placement, node: Path, serving: Serving | None = None) -> str:
    """Return the Slurm job file.

    Args:
        title: The stage that the job starts, or ``Ray``.
        placement: Uses the number of hosts, and the number of devices per host.
        node: The script that every task runs.
        serving: The servers that the job starts; None for training and Ray.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", title)
    tasks = serving.servers if serving else 1
    # The URLs of servers have the hosts' names, so Slurm must not choose others.
    named = [f"#SBATCH --nodelist={','.join(placement.hosts)}"] if serving else []
    return _text(
        [
            f"#SBATCH --job-name={name}",
            f"#SBATCH --nodes={len(placement.hosts)}",
            *named,
            f"#SBATCH --ntasks-per-node={tasks}",
            "#SBATCH --exclusive",
            "#SBATCH --mem=0",  # an exclusive job has all cores, but only the memory it asks for
            "# Sites name their NPUs and limit the hours of a job as they like: add here what",
            "# yours asks for, for example",
            f"##SBATCH --gres=npu:{placement.devices_per_host}",
            "##SBATCH --time=7-00:00:00",
            _STRICT,
            "",
            *(_srun_servers(node) if serving else _srun_training(node)),
        ]
    )


def _srun_servers(node: Path) -> list[str]:
    return [
        "# One task per server. When one ends, its task starts it again, and the others continue.",
        f"srun --kill-on-bad-exit=0 --wait=0 bash {shlex.quote(str(node))}",
    ]


def _srun_training(node: Path) -> list[str]:
    return [
        "# Slurm chooses the hosts, not the launch file; the first of them is the master.",
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        'export PCLR_MASTER="${hosts[0]}"',
        "",
        "# One task a host; when one fails, the others have nothing to wait for.",
        f"srun --kill-on-bad-exit=1 bash {shlex.quote(str(node))}",
    ]


def _text(lines: Sequence[str]) -> str:
    return "\n".join([_BASH, *lines]) + "\n"


def _shell(steps: Sequence[str]) -> list[str]:
    """Return the steps as lines; ``set +u`` lets a sourced file (CANN's) use unset variables."""
    lines: list[str] = []
    for step in steps:
        if step.startswith("source "):
            lines += ["set +u  # CANN's file uses variables that are not set", step, "set -u"]
        else:
            lines.append(step)
    return lines


def _slurm_environment(
    placement: Placement, environment_of: Callable[[str], Sequence[str]]
) -> list[str]:
    """Return lines that set the environment, in a ``case`` over node names if hosts differ.

    Args:
        placement: Has the hosts that differ.
        environment_of: Returns a host's shell steps; for an empty name, those of all others.
    """
    common = _shell(environment_of(""))
    if not placement.per_host:
        return common
    lines = ['case "${SLURMD_NODENAME:-}" in']
    for host in placement.per_host:
        own = _shell(environment_of(host))
        lines += [f"{host})", *(f"  {line}" for line in own), "  ;;"]
    return [*lines, "*)", *(f"  {line}" for line in common or [":"]), "  ;;", "esac"]


def _on_path(program: str, advice: str) -> str:
    return _refuse(f"command -v {program} >/dev/null", f"{program} is not on PATH: {advice}.")


def _refuse(condition: str, said: str) -> str:
    """Return a shell line that ends the script with a message if a condition is false."""
    return f"{condition} || {{ echo {shlex.quote(said)} >&2; exit 1; }}"


def _train_checks(planned: PlannedStage) -> list[str]:
    advice = (
        "activate the environment that pclr-ms is in, or name its python under "
        "placement.per_host in the launch file"
    )
    config = planned.partial / CONFIG
    written = (
        f"{config} is not there: pclr-ms run writes it when it comes to the stage "
        f"{planned.spec.name}. Run that first, into a folder that all hosts share"
    )
    return [
        "# Nothing is started where something is missing.",
        _on_path("msrun", advice),
        _refuse(f"[ -f {shlex.quote(str(config))} ]", f"{written}."),
        "# Paths in the configuration are relative to its folder.",
    ]


def _serve_checks(planned: PlannedStage, needs: ServerNeeds, serving: Serving) -> list[str]:
    model = planned.inputs[needs.role].path
    maker = f"The stage before {planned.spec.name} makes them."
    if planned.inputs[needs.role].is_source:
        maker = "pclr-ms run fetches them before its first stage, if they are the hub's."
    there = f"[ -f {shlex.quote(str(model / 'config.json'))} ]"
    port = planned.recipe.launch.placement.first_port(needs.kind)
    urls = f"placement.{SERVERS[needs.kind].urls}"
    belongs = "the stage knows that" if serving.by_hand else f"that belongs into {urls}"
    return [
        f"# A host's first server answers at http://HOST:{port}/v1: {belongs}.",
        "# With VLLM_API_KEY in its environment it answers those alone that show that key; the",
        "# variable that holds it where the recipe runs belongs into placement.api_keys.",
        _on_path(Path(serving.executable).name, "activate the environment of the server"),
        _refuse(there, f"{model}: no weights yet. {maker}"),
        *([_refuse('[ -n "${VLLM_API_KEY:-}" ]', _NO_KEY)] if needs.replaceable else []),
    ]
