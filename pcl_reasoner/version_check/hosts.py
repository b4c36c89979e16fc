"""Asks every host of a launch file what its engines' environments have, and compares it.

node03 sampling: set_env /opt/cann/set_env.sh is not there.
node03 sampling: CANN 8.5.0, and vllm-ascend 0.23.0 needs 9.1.0: source its set_env.sh.
node03 sampling: libatb.so not found: install NNAL 9.1.0 and source nnal/atb/set_env.sh.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from pcl_reasoner.core.programs import Program
from pcl_reasoner.core.schema import Launch, Placement
from pcl_reasoner.core.serving import SERVERS, Serving
from pcl_reasoner.supervise.connection import ask, command_on, reason_in
from pcl_reasoner.version_check.matrix import serving_rows, training_rows
from pcl_reasoner.version_check.presence import WANTED, absent_in, question

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
        is_version: Whether versions are compared; False: a file, a folder or an answer is missing.
    """

    host: str
    program: str
    name: str
    found: str
    wanted: str
    ok: bool
    advice: str
    is_version: bool = True


class Engine(NamedTuple):
    """One program on one host.

    Args:
        host: The host or spare host.
        name: The launch file's key, e.g. ``sampling``.
        program: The launch file's part.
        folders: Folders that the program reads there, e.g. those of weights.
    """

    host: str
    name: str
    program: Program
    folders: Sequence[str] = ()


def check_launch(launch: Launch, how: str) -> list[Finding]:
    """Compare every program of every host with versions.yaml, all hosts at a time.

    Args:
        launch: The launch file.
        how: How hosts are reached, ``local`` or ``ssh``.

    Returns:
        The findings, in the order of hosts and programs.
    """
    placement = launch.placement
    hosts = [*placement.hosts, *placement.spare_hosts]
    asked = [Engine(host, *one) for host in hosts for one in programs_of(placement)]
    return check_engines(placement, how, trains_on_ascend(launch), asked)


def trains_on_ascend(launch: Launch) -> bool:
    """Whether a launch file's engines need what Ascend devices need."""
    return bool(launch.hashed.get("train", {}).get("device", "Ascend") == "Ascend")


def check_engines(
    placement: Placement, how: str, ascend: bool, asked: Sequence[Engine]
) -> list[Finding]:
    """Ask programs on hosts, all hosts at a time: are their files there, do the versions fit?

    Args:
        placement: The launch file's placement.
        how: How hosts are reached, ``local`` or ``ssh``.
        ascend: Whether they need CANN, NNAL and vllm-ascend.
        asked: The programs.

    Returns:
        The findings, in the order of ``asked``.
    """

    def one(engine: Engine) -> list[Finding]:
        return list(_check(placement, how, ascend, engine))

    with ThreadPoolExecutor(max(1, len({engine.host for engine in asked}))) as pool:
        return [finding for findings in pool.map(one, asked) for finding in findings]


def programs_of(placement: Placement) -> list[tuple[str, Program]]:
    """Return (key of the launch file, its part) for training and every kind of its servers."""
    servers = [(kind, placement.described(kind)) for kind in SERVERS]
    return [("training", placement.training), *((kind, one) for kind, one in servers if one)]


def _check(placement: Placement, how: str, ascend: bool, engine: Engine) -> Iterator[Finding]:
    host, name, program, folders = engine
    command = ["bash", "-c", question(placement, host, name, program, folders)]
    on_host = command_on(host, command, how, placement.ssh, placement.notice_seconds)
    output, errors = ask(on_host, "", ANSWER_SECONDS + placement.ssh.connect_seconds)
    absent = list(absent_in(output))
    for kind, path in absent:
        yield _absent(placement, engine, kind, path)
    try:
        facts = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        if not absent:
            reason = f"{reason_in(errors)}."
            yield Finding(host, name, "answer", "none", "one", False, reason, False)
        return
    compared = _serving(facts) if isinstance(program, Serving) else _training(facts)
    for what, found, wanted, ok, advice in compared:
        needed = ascend or what in ("MindFormers", "vLLM")
        good = ok or not needed
        yield Finding(host, name, what, found, wanted, good, "" if good else advice)


def _absent(placement: Placement, engine: Engine, kind: str, path: str) -> Finding:
    container = None if kind in ("runtime", "image") else engine.program.container
    where = f" in the image {container.image}" if container else ""
    advice = f"Install it{where or ' there'}, or correct {_key(placement, engine, kind)}."
    if kind == "folder":
        mounts = f", and name it under {engine.name}.container.mounts" if container else ""
        advice = f"Put it into a folder that every host sees{mounts}."
    elif kind == "python":
        advice = f"It must stand beside {engine.name}.executable{where}."
    found = f"{path} is not there"
    return Finding(engine.host, engine.name, kind, found, WANTED[kind], False, advice, False)


def _key(placement: Placement, engine: Engine, kind: str) -> str:
    """Return the launch file's key that names what is not there."""
    host, name, program, _ = engine
    own = placement.settings_of(host)
    if kind in ("runtime", "image"):
        return f"placement.{name}.container.{kind}"
    if kind == "set_env" and program.set_env is None:
        return f"placement.per_host.{host}.set_env" if own.set_env else "placement.set_env"
    if kind == "executable" and name == "training" and own.python and not program.container:
        return f"placement.per_host.{host}.python"
    return f"placement.{name}.{kind}"


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
