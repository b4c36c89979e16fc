"""What a host says of itself before training is started on it.

python -m pcl_reasoner.hosts.facts

standard input   {"files": ["/data/policy/model.safetensors"], "token": "/runs/…/.token", …}
standard output  {"versions": {"python": "3.11.9", …}, "files": {"/data/…": [inode, size,
                  mtime_ns]}, "shared": true, "port_free": true, "free": 81604378624,
                  "devices": null, "time": 1795287667.2}
"""

from __future__ import annotations

import hashlib
import json
import os
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

PACKAGES = ("mindspore", "mindformers")
_NPU_SECONDS = 20
_SHARED_SECONDS = 5.0
"""A network file system may show a new file late."""


@dataclass(frozen=True)
class Question:
    """What a host is asked.

    Args:
        files: Files that all hosts must have alike.
        hashes: Ask for their SHA-256, too.
        memory: File in which this host remembers hashes.
        token: A file that the launcher wrote, and its text.
        answer: Where to write the same text, for the launcher to see.
        folder: Whose disk is meant.
        port: Must be free here; None: does not matter.
    """

    files: list[str] = field(default_factory=list)
    hashes: bool = False
    memory: str | None = None
    token: tuple[str, str] | None = None
    answer: str | None = None
    folder: str = "/"
    port: int | None = None


def facts(asked: Question) -> dict[str, Any]:
    """Answer the launcher's question."""
    return {
        "versions": versions(),
        "files": {file: identity(Path(file)) for file in asked.files},
        "hashes": _hashes(asked) if asked.hashes else {},
        "shared": _shared(asked),
        "port_free": None if asked.port is None else _is_free(asked.port),
        "free": shutil.disk_usage(asked.folder).free if Path(asked.folder).is_dir() else None,
        "devices": devices(),
        "time": time.time(),
    }


def versions() -> dict[str, str]:
    """Of Python, of MindSpore and MindFormers, and of this package: its number and its code."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["pclr-ms"] = __version__
    found["pclr-ms code"] = _code(Path(__file__).resolve().parent.parent)
    return found


def _code(package: Path) -> str:
    """A hash of the package's code: the same for a checkout as for what is installed from it."""
    files = {file.relative_to(package).as_posix(): file for file in package.rglob("*.py")}
    beside = package.parent / "handlers"  # a checkout has them there
    if (beside / "pclr_ms.py").is_file():
        files |= {f"handlers/{file.name}": file for file in beside.glob("*.py")}
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def identity(file: Path) -> list[int] | None:
    """Inode, size and modification time; None where there is no such file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _hashes(asked: Question) -> dict[str, str | None]:
    from pcl_reasoner.runner.sources import HashMemory

    memory = HashMemory(Path(asked.memory or os.devnull))
    found = {
        file: memory.sha256(Path(file)) if Path(file).is_file() else None for file in asked.files
    }
    if asked.memory:
        memory.save()
    return found


def _shared(asked: Question) -> bool | None:
    """Whether the launcher's token is seen here; the answer is for the other way."""
    if asked.token is None or asked.answer is None:
        return None
    file, text = asked.token
    until = time.monotonic() + _SHARED_SECONDS
    while not Path(file).is_file() and time.monotonic() < until and Path(file).parent.is_dir():
        time.sleep(0.2)
    try:
        Path(asked.answer).write_text(text, encoding="utf-8")
        return Path(file).read_text(encoding="utf-8") == text
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As MindSpore's scheduler does: what has just ended does not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def devices() -> int | None:
    """Dies that ``npu-smi`` lists; None where there is no such program, or it says nothing."""
    program = shutil.which("npu-smi")
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, "info", "-l"], capture_output=True, text=True, timeout=_NPU_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for words in ("Chip Count", "Total Count"):  # chips of each card; cards
        counts = re.findall(rf"{words}\s*:\s*(\d+)", answer.stdout)
        if counts:
            return sum(map(int, counts))
    return None


def main() -> None:
    """Answer what standard input asks."""
    asked = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(facts(Question(**asked))) + "\n")


if __name__ == "__main__":
    main()
