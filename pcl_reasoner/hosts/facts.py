"""Reports facts about a host, before training is started on it.

python -m pcl_reasoner.hosts.facts

standard input   {"files": ["/data/policy/model.safetensors"],
                  "token": ["/runs/…/.shared-1f2e…", "/runs/…/.shared-1f2e….0", "1f2e…"], …}
standard output  {"versions": {"python": "3.11.9", …}, "files": {"/data/…": [inode, size,
                  mtime_ns]}, "shared": true, "used": [], "free": 81604378624, …}
"""

import hashlib
import json
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from pcl_reasoner import __version__

_NPU_SECONDS = 20
_SHARED_SECONDS = 5.0
"""Seconds to wait for a new file: on a network file system it may become visible late."""


@dataclass(frozen=True)
class Question:
    """The facts that the launcher requests from a host.

    Args:
        files: Files that must be identical on all hosts.
        memory: File in which this host caches hashes; None: no hashes are computed.
        token: (file, answer, text): the launcher wrote ``text`` to ``file``, and this host must
            write ``text`` to ``answer``. None: shared access is not checked.
        folder: Folder on the disk whose free space is reported.
        ports: Ports that must be free on this host.
    """

    files: list[str] = field(default_factory=list)
    memory: str | None = None
    token: tuple[str, str, str] | None = None
    folder: str = "/"
    ports: list[int] = field(default_factory=list)


def facts(asked: Question) -> dict[str, Any]:
    """Return the facts that the launcher requests."""
    return {
        "versions": versions(),
        "files": {file: identity(Path(file)) for file in asked.files},
        "hashes": _hashes(asked),
        "shared": _shared(asked),
        "used": [port for port in asked.ports if not _is_free(port)],
        "free": shutil.disk_usage(asked.folder).free if Path(asked.folder).is_dir() else None,
        "devices": devices(),
        "time": time.time(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, MindSpore, MindFormers and this package.

    This package has two entries: its version number and a hash of its code.
    """
    found = {"python": platform.python_version()}
    for name in ("mindspore", "mindformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["pclr-ms"] = __version__
    found["pclr-ms code"] = _code(Path(__file__).resolve().parent.parent)
    return found


def _code(package: Path) -> str:
    """Hash the package's code; a checkout and an installation have the same hash."""
    files = {file.relative_to(package).as_posix(): file for file in package.rglob("*.py")}
    beside = package.parent / "handlers"  # where a checkout has them
    if (beside / "pclr_ms.py").is_file():
        files |= {f"handlers/{file.name}": file for file in beside.glob("*.py")}
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def identity(file: Path) -> list[int] | None:
    """Return a file's inode, size and modification time (ns); None if it does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _hashes(asked: Question) -> dict[str, str]:
    """Return the SHA-256 of each file that exists; empty if ``memory`` is None."""
    if asked.memory is None:
        return {}
    from pcl_reasoner.core.hashes import FileHashes

    memory = FileHashes(Path(asked.memory))
    found = {file: memory.sha256(Path(file)) for file in asked.files if Path(file).is_file()}
    memory.save()
    return found


def _shared(asked: Question) -> bool | None:
    """Return whether this host reads the launcher's text from the token file; None without token.

    This host also writes the text to the answer file, which the launcher reads.
    """
    if asked.token is None:
        return None
    file, answer, text = asked.token
    until = time.monotonic() + _SHARED_SECONDS
    while not Path(file).is_file() and time.monotonic() < until and Path(file).parent.is_dir():
        time.sleep(0.2)
    try:
        Path(answer).write_text(text, encoding="utf-8")
        return Path(file).read_text(encoding="utf-8") == text
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As MindSpore's scheduler does: a connection that has just ended does not block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def devices() -> int | None:
    """Return the number of NPU dies by ``npu-smi``; None if it is missing or prints no number."""
    program = shutil.which("npu-smi")
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, "info", "-l"], capture_output=True, text=True, timeout=_NPU_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for words in ("Chip Count", "Total Count"):  # chips per card; number of cards
        counts = re.findall(rf"{words}\s*:\s*(\d+)", answer.stdout)
        if counts:
            return sum(map(int, counts))
    return None


def main() -> None:
    """Read a Question from standard input and print the facts."""
    asked = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(facts(Question(**asked))) + "\n")


if __name__ == "__main__":
    main()
