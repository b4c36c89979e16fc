"""Asks every host of a launch file what its engines' environments have, and compares it.

node03 sampling: CANN 8.5.0, and vllm-ascend 0.23.0 needs 9.1.0: source its set_env.sh.
node03 sampling: libatb.so not found: install NNAL 9.1.0 and source nnal/atb/set_env.sh.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.programs import Program
from pcl_reasoner.core.schema import Launch, Placement
from pcl_reasoner.core.serving import SERVERS, Serving
from pcl_reasoner.serving.server_key import cleaned, without_key
from pcl_reasoner.supervise.connection import ask, command_on, reason_in
from pcl_reasoner.supervise.container import in_container
from pcl_reasoner.supervise.environment import environment_steps
from pcl_reasoner.version_check import probe
from pcl_reasoner.version_check.matrix import serving_rows, training_rows

ANSWER_SECONDS = 120
"""Time limit of one host's answer; a container's start is part of it."""
NOT_FOUND = "not found"


@dataclass(frozen=True)
class Finding:
    """One comparison on one host.

    Args:
        host: The host.
        program: The launch file's key, e.g. ``sampling``.
        name: What is compared, e.g. ``CANN``.
        found: The version that is there.
        wanted: The version that fits.
        ok: False if they do not fit.
        advice: What to do; empty if there is nothing to do.
    """

    host: str
    program: str
    name: str
    found: str
    wanted: str
    ok: bool
    advice: str


def check_launch(launch: Launch, how: str) -> list[Finding]:
    """Compare every program of every host with versions.yaml, all hosts at a time.

    Args:
        launch: The launch file.
        how: How hosts are reached, ``local`` or ``ssh``.

    Returns:
        The findings, in the order of hosts and programs.
    """
    placement = launch.placement
    ascend = launch.hashed.get("train", {}).get("device", "Ascend") == "Ascend"
    hosts = [*placement.hosts, *placement.spare_hosts]
    asked = [(host, name, one) for host in hosts for name, one in programs_of(placement)]

    def one(item: tuple[str, str, Program]) -> list[Finding]:
        return list(_check(placement, how, ascend, *item))

    with ThreadPoolExecutor(len(hosts)) as pool:
        return [finding for findings in pool.map(one, asked) for finding in findings]


def programs_of(placement: Placement) -> list[tuple[str, Program]]:
    """Return (key of the launch file, its part) for training and every kind of its servers."""
    servers = [(kind, placement.described(kind)) for kind in SERVERS]
    return [("training", placement.training), *((kind, one) for kind, one in servers if one)]


def _check(
    placement: Placement, how: str, ascend: bool, host: str, name: str, program: Program
) -> Iterator[Finding]:
    command = ["bash", "-c", probe_line(placement, host, program)]
    on_host = command_on(host, command, how, placement.ssh, placement.notice_seconds)
    output, errors = ask(on_host, "", ANSWER_SECONDS + placement.ssh.connect_seconds)
    try:
        facts = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        yield Finding(host, name, "answer", "none", "one", False, f"{reason_in(errors)}.")
        return
    compared = _serving(facts) if isinstance(program, Serving) else _training(facts)
    for what, found, wanted, ok, advice in compared:
        needed = ascend or what in ("MindFormers", "vLLM")
        good = ok or not needed
        yield Finding(host, name, what, found, wanted, good, "" if good else advice)


def probe_line(placement: Placement, host: str, program: Program) -> str:
    """Return the shell line that runs probe.py in a program's environment on a host."""
    own = program.model_copy(update={"environment": cleaned(program.environment)})
    python = _python(placement, host, program)
    steps = environment_steps(without_key(placement), host, python, None, own)
    source = Path(probe.__file__).read_text(encoding="utf-8")
    line = " && ".join([*steps, f"exec {shlex.join([python, '-c', source])}"])
    if program.container is None:
        return line
    return in_container(line, program.container, "pclr-doctor", [])


def _python(placement: Placement, host: str, program: Program) -> str:
    """Return the Python of a program: beside vLLM, or MindFormers' own."""
    if isinstance(program, Serving):
        executable = Path(program.executable).expanduser()
        is_python = executable.name.startswith("python")
        return str(executable if is_python else executable.with_name("python"))
    if program.container:
        return placement.training.python or "python"
    return placement.settings_of(host).python or placement.training.python or sys.executable


Compared = tuple[str, str, str, bool, str]
"""(what, found, wanted, ok, advice)."""


def _training(facts: dict[str, Any]) -> Iterator[Compared]:
    mindspore = facts["packages"]["mindspore"] or NOT_FOUND
    row = next((one for one in training_rows() if one.mindspore == mindspore), None)
    if row is None:
        known = ", ".join(one.mindspore for one in training_rows())
        advice = f"Install one of them; versions.yaml has no row for {mindspore}."
        yield "MindSpore", mindspore, known, False, advice
        return
    mindformers = facts["packages"]["mindformers"] or NOT_FOUND
    advice = f"pip install mindformers=={row.mindformers}"
    yield "MindFormers", mindformers, row.mindformers, mindformers == row.mindformers, advice
    yield from _cann(facts, row.cann, f"MindSpore {mindspore}")
    yield _driver(facts, row.driver)


def _serving(facts: dict[str, Any]) -> Iterator[Compared]:
    ascend = facts["packages"]["vllm-ascend"] or NOT_FOUND
    row = next((one for one in serving_rows() if one.vllm_ascend == _release(ascend)), None)
    if row is None:
        known = ", ".join(one.vllm_ascend for one in serving_rows())
        advice = f"Install one of them; versions.yaml has no row for {ascend}."
        yield "vllm-ascend", ascend, known, False, advice
        return
    wanted = {"vLLM": ("vllm", row.vllm), "torch": ("torch", row.torch)}
    for name, (package, version) in (wanted | {"torch-npu": ("torch-npu", row.torch_npu)}).items():
        found = facts["packages"][package] or NOT_FOUND
        advice = f"vllm-ascend {ascend} needs {package} {version}."
        yield name, found, version, _release(found) == _release(version), advice
    yield from _cann(facts, row.cann, f"vllm-ascend {ascend}")
    yield _nnal(facts, row.cann)


def _release(version: str) -> str:
    """Return a version without its local part: 2.8.0+cpu -> 2.8.0."""
    return version.partition("+")[0]


def _cann(facts: dict[str, Any], wanted: str, who: str) -> Iterator[Compared]:
    found = facts["cann"] or NOT_FOUND
    advice = f"{who} needs CANN {wanted}: name its set_env.sh under set_env."
    yield "CANN", found, wanted, found == wanted, advice


def _nnal(facts: dict[str, Any], wanted: str) -> Compared:
    library, version = facts["libatb"], facts["nnal"]
    if library is None:
        advice = f"Install NNAL {wanted}, and name nnal/atb/set_env.sh under set_env after CANN's."
        return "NNAL (libatb.so)", NOT_FOUND, wanted, False, advice
    advice = f"{library} is of another release: install NNAL {wanted}."
    return "NNAL (libatb.so)", version or library, wanted, version in (None, wanted), advice


def _driver(facts: dict[str, Any], wanted: str) -> Compared:
    """Show the driver: a newer one than the table's may fit, too."""
    return "Ascend driver", facts["driver"] or NOT_FOUND, f"{wanted}, or newer", True, ""
