"""Checks that hosts are fit for training. All hosts are queried at once, before the job starts.

node03: its host key is not known here: check it and add it to known_hosts (ssh-keyscan).
node05: mindspore is 2.7.1, here 2.7.2: install the same on all hosts.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.facts import Question, identity, versions
from pcl_reasoner.hosts.job import module_command
from pcl_reasoner.supervise.connection import ask, reason_in

_ANSWER_SECONDS = 60
_HASH_SECONDS = 3600
"""Timeout for the hashes of a host's files; reading terabytes over a network takes long."""
_SKEW_SECONDS = 2.0
_CODE = "pclr-ms code"
_GB = 1e9


@dataclass(frozen=True)
class Needs:
    """Requirements that all hosts must meet.

    Args:
        folder: The stage's folder, shared by all hosts.
        files: Weights and packed rows; they must be identical on all hosts.
        bytes: Bytes that must be free on the folder's disk: all checkpoints that training keeps.
        cache: Folder in which the hashes of files are cached.
        ports: Host -> port that must be free there -> the launch file's key that sets it.
        trains: Whether the hosts train; if not, they need this package's code and nothing else.
        seconds: Seconds that a host has for its answer.
    """

    folder: Path
    files: Sequence[Path]
    bytes: int
    cache: Path
    ports: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    trains: bool = True
    seconds: float = _ANSWER_SECONDS


@dataclass(frozen=True)
class Answer:
    """The facts that a host has sent; if it has sent none, ``why`` is the reason.

    ``heard`` is the time at which the answer arrived, by this machine's clock.
    """

    rank: int
    host: str
    facts: dict[str, Any] | None
    why: str
    heard: float


def check_hosts(how: str, needs: Needs, placement: Placement) -> list[str]:
    """Check all hosts in parallel, and return the problems.

    Args and order as in `check_and_count`.
    """
    return check_and_count(how, needs, placement)[0]


def check_and_count(
    how: str, needs: Needs, placement: Placement
) -> tuple[list[str], dict[str, int | None]]:
    """Check all hosts in parallel.

    Args:
        how: How the hosts are reached, ``local`` or ``ssh``.
        needs: The requirements that all hosts must meet.
        placement: The launch file's settings, with the hosts.

    Returns:
        The problems, one sentence each; and for each host that answers, the devices that npu-smi
        lists, or None.
    """
    question = Question(files=[str(file) for file in needs.files], folder=str(needs.folder))
    with _token(needs.folder) as (token, text):

        def asked(rank: int) -> Question:
            own = (str(token), f"{token}.{rank}", text)
            return replace(question, token=own, ports=list(_ports(rank, needs, placement)))

        answers = _ask(how, placement, asked, needs.seconds)
        unshared = [one.rank for one in answers if not _was_written(f"{token}.{one.rank}", text)]
    here = versions() if needs.trains else {_CODE: versions()[_CODE]}
    problems: list[str] = []
    for answer in answers:
        problems += _problems(answer, answer.rank not in unshared, here, needs, placement)
    counted = {one.host: one.facts["devices"] for one in answers if one.facts}
    return [*problems, *_other_content(how, needs, placement, answers)], counted


@contextmanager
def _token(folder: Path) -> Iterator[tuple[Path, str]]:
    """Create a token file with a random name in the folder.

    The file and the hosts' answers beside it are removed at the end.

    Yields:
        The file and its random content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = secrets.token_hex(8)
    token = folder / f".shared-{text}"
    token.write_text(text, encoding="utf-8")
    try:
        yield token, text
    finally:
        for file in folder.glob(f"{token.name}*"):
            file.unlink(missing_ok=True)


def _ports(rank: int, needs: Needs, placement: Placement) -> dict[int, str]:
    """Return the ports that must be free on a host, each with the key that sets it."""
    scheduler = {placement.master_port: "placement.master_port"}
    own = needs.ports.get(placement.hosts[rank], {})
    return {**(scheduler if rank == 0 and needs.trains else {}), **own}


def _was_written(file: str, text: str) -> bool:
    try:
        return Path(file).read_text(encoding="utf-8") == text
    except OSError:
        return False


def _ask(
    how: str, placement: Placement, asked: Callable[[int], Question], seconds: float
) -> list[Answer]:
    def one(rank: int) -> Answer:
        host = placement.hosts[rank]
        command = module_command(how, placement, host, "pcl_reasoner.hosts.facts")
        limit = seconds + placement.ssh.connect_seconds
        output, errors = ask(command, json.dumps(asdict(asked(rank))), limit)
        heard = time.time()
        try:
            return Answer(rank, host, json.loads(output.splitlines()[-1]), "", heard)
        except (ValueError, IndexError):
            return Answer(rank, host, None, reason_in(errors), heard)

    with ThreadPoolExecutor(len(placement.hosts)) as pool:
        return list(pool.map(one, range(len(placement.hosts))))


def _problems(
    answer: Answer, seen_here: bool, here: dict[str, str], needs: Needs, placement: Placement
) -> Iterator[str]:
    host, found = answer.host, answer.facts
    if found is None:
        yield f"{host}: {answer.why}" + ("" if answer.why.endswith("?") else ".")
        return
    for name, version in here.items():
        there = found["versions"].get(name)
        if there != version:
            yield f"{host}: {name} is {there}, here {version}: install the same on all hosts."
    if not (found["shared"] and seen_here):
        yield (
            f"{host}: {needs.folder} is not the folder that it is here: all hosts must see the "
            "same one, and write to it. Choose a shared place with --runs."
        )
    elif found["free"] is not None and found["free"] < needs.bytes:
        yield (
            f"{host}: {needs.folder} has {found['free'] / _GB:.1f} GB free, checkpoints take "
            f"{needs.bytes / _GB:.1f} GB: free space, or keep fewer."
        )
    ports = _ports(answer.rank, needs, placement)
    for port in found["used"]:
        yield f"{host}: port {port} is in use: end what uses it, or choose another {ports[port]}."
    skew = found["time"] - answer.heard
    if abs(skew) > _SKEW_SECONDS:
        word = "ahead of" if skew > 0 else "behind"
        yield f"{host}: its clock is {abs(skew):.1f} s {word} this one's: set both by one server."
    few = found["devices"] is not None and found["devices"] < placement.devices_per_host
    if few and needs.trains:
        yield (
            f"{host}: npu-smi lists {found['devices']} devices, devices_per_host is "
            f"{placement.devices_per_host}."
        )


def _other_content(
    how: str, needs: Needs, placement: Placement, answers: list[Answer]
) -> Iterator[str]:
    """Yield a problem for each file that is missing on a host or differs from this machine's file.

    Files with equal inode, size and modification time are one file on a shared disk. If only the
    sizes are equal, the hashes of the host's file and of this machine's file are compared.
    """
    here = {str(file): identity(file) for file in needs.files}
    doubtful: dict[int, list[str]] = {}
    for answer in answers:
        if answer.facts is None:
            continue
        for file, found in answer.facts["files"].items():
            ours = here[file]
            if found is None:
                yield f"{answer.host}: {file} is not there."
            elif ours is None or found[1] != ours[1]:
                size = f"{ours[1]:,}" if ours else "it is missing"
                yield f"{answer.host}: {file} has {found[1]:,} bytes, here {size}."
            elif found != ours:
                doubtful.setdefault(answer.rank, []).append(file)
    if doubtful:
        yield from _other_hashes(how, needs, placement, doubtful)


def _other_hashes(
    how: str, needs: Needs, placement: Placement, doubtful: dict[int, list[str]]
) -> Iterator[str]:
    memory = FileHashes(needs.cache / "hashes-launcher.json")
    files = {file for some in doubtful.values() for file in some}
    here = {file: memory.sha256(Path(file)) for file in sorted(files)}
    memory.save()

    def asked(rank: int) -> Question:
        remembered = str(needs.cache / f"hashes-{placement.hosts[rank]}.json")
        return Question(files=doubtful.get(rank, []), memory=remembered)

    for answer in _ask(how, placement, asked, _HASH_SECONDS):
        for file in doubtful.get(answer.rank, []):
            if answer.facts is None:
                yield f"{answer.host}: {file} cannot be read: {answer.why}."
            elif answer.facts["hashes"].get(file) != here[file]:
                yield (
                    f"{answer.host}: {file} has other content than here: copy it there again, or "
                    "use a shared folder."
                )
