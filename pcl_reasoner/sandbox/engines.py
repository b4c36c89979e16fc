"""The commands that start a sandbox: bubblewrap, our own (``unshare``), or none (``rlimits``).

Each command runs ``python -I -S -X utf8 -c SOURCE`` as process 1 of new namespaces: no network, no
files but the system's programs (read-only) and an empty /tmp, no capabilities. A sandbox that root
starts runs as a user of its own without a name, and so does everything in it.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.seccomp import filter_program, machine
from pcl_reasoner.sandbox_program.source import source_of

Engine = Literal["bubblewrap", "unshare", "rlimits"]
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
"""Folders with programs and libraries. Some are links into /usr."""
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
FOLDER = "pclr-ms-sandbox-"
"""Start of the name of a sandbox's own folder; sandbox_program/init.py empties no other folder."""
FIRST_USER = 60_000
USERS = 5_000
"""Users without a name: from FIRST_USER; root's sandboxes run as some of them."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
OTHER_FILES = 512
"""Open files that a stage may need beside those of its sandboxes."""
COUNTED_APART = (5, 14)
"""Linux version since which processes in a user namespace are counted on their own."""


SETPRIV = "setpriv"
"""Changes the user after the start. Popen's ``user`` would copy this process's page tables first,
which takes longer than all else if this process has a model in memory."""


@dataclass
class Command:
    """How a sandbox is started.

    Args:
        words: Program and arguments.
        user: User and group id that the process gets; None: those of this process.
        files: Open files that the program inherits.
        namespaces: Whether it has its own; otherwise it gets a folder, which ``end`` removes.
    """

    words: list[str]
    user: int | None = None
    files: list[IO[bytes]] = field(default_factory=list)
    namespaces: bool = True
    folder: str = "/"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the sandbox; its standard input and output are pipes.

        Raises:
            OSError: Its program is not found, or cannot be started.
        """
        if not self.namespaces:
            self.folder = tempfile.mkdtemp(prefix=FOLDER)
            if self.user is not None:
                os.chown(self.folder, self.user, self.user)
        try:
            words, identity = self._as_user()
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT if self.namespaces else {**ENVIRONMENT, "HOME": self.folder},
                cwd=self.folder,
                pass_fds=[file.fileno() for file in self.files],
                start_new_session=True,
                **identity,
            )
        finally:
            for file in self.files:
                file.close()

    def _as_user(self) -> tuple[list[str], dict[str, Any]]:
        """Return the words that start it as its user, and Popen's arguments for that."""
        # By this process's PATH: the sandbox's own is another.
        program = shutil.which(self.words[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.words[0])
        words = [program, *self.words[1:]]
        if self.user is None:
            return words, {}
        if setpriv := shutil.which(SETPRIV):
            become = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            # The first one finds its program with root's rights, the second one without them.
            return [setpriv, *become, "--", setpriv, "--", *words], {}
        return words, {"user": self.user, "group": self.user, "extra_groups": []}

    def end(self) -> None:
        """Remove what was made for the sandbox."""
        if not self.namespaces and self.folder != "/":
            # A candidate can make folders that are too deep for shutil.rmtree.
            subprocess.run(["rm", "-rf", "--", self.folder], stderr=subprocess.DEVNULL, check=False)


def command(
    engine: Engine, kind: str, python: str, limits: Limits, slot: int, packages: bool = False
) -> Command:
    """Return the command that starts a sandbox.

    Args:
        engine: How.
        kind: What runs in it, one of source.PARTS.
        python: The interpreter in the sandbox.
        limits: The size of its /tmp.
        slot: Number of this sandbox among those that run at the same time.
        packages: Whether the interpreter's own packages can be imported.
    """
    interpreter = [python, "-I", *([] if packages else ["-S"]), "-B", "-X", "utf8", "-c"]
    source = compiled(python, kind, ("enter",) if engine == "unshare" else ())
    user = user_of(slot) if os.getuid() == 0 else None
    if engine == "rlimits":
        return Command([*interpreter, source], user, namespaces=False)
    folders, links = _folders(python)
    if engine == "unshare":
        settings = {
            "uid": os.getuid() if user is None else user,
            "gid": os.getgid() if user is None else user,
            "folders": folders,
            "links": links,
            "disk_megabytes": limits.disk_megabytes,
            "filter": system_call_filter().hex(),
        }
        return Command([*interpreter, source, json.dumps(settings)], user)
    words, files = _bubblewrap(folders, links, limits)
    return Command([*words, *interpreter, source], user, files)


@cache
def compiled(python: str, kind: str, first: tuple[str, ...]) -> str:
    """Return the program of a sandbox for ``python -c``, compiled by the same interpreter.

    To compile it at every start would take a fifth of the start. If the interpreter cannot do it,
    the text itself is returned: what is wrong is found when the sandbox starts.
    """
    text = source_of(kind, first)
    # Without docstrings, as an argument of a command has at most 128 KiB.
    code = "code = marshal.dumps(compile(sys.stdin.read(), 'sandbox', 'exec', optimize=2))"
    code = f"import binascii, marshal, sys, zlib; {code}"
    code += "; print(binascii.b2a_base64(zlib.compress(code)).decode())"
    words = [python, "-I", "-S", "-X", "utf8", "-c", code]
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return text
    if done.returncode:
        return text
    packed = done.stdout.strip()
    return (
        "import binascii, marshal, zlib\n"
        f"exec(marshal.loads(zlib.decompress(binascii.a2b_base64('{packed}'))))"
    )


def _bubblewrap(
    folders: list[str], links: dict[str, str], limits: Limits
) -> tuple[list[str], list[IO[bytes]]]:
    """Return bubblewrap's words and the open file with the filter."""
    names = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    words = ["bwrap", *names, "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000"]
    words += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    for folder in folders:
        words += ["--ro-bind", folder, folder]
    for link, target in links.items():
        words += ["--symlink", target, link]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    size = str(limits.disk_megabytes << 20)
    words += ["--size", size, "--perms", "0700", "--tmpfs", "/tmp", "--remount-ro", "/"]
    words += ["--chdir", "/tmp"]
    filtered = system_call_filter()
    if not filtered:
        return words, []
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(filtered)
    file.seek(0)
    return [*words, "--seccomp", str(file.fileno())], [file]


@cache
def system_call_filter() -> bytes:
    """Return the filter of system calls; empty on a machine without a table of numbers."""
    target = machine()
    return b"" if target is None else filter_program(target)


@cache
def _folders(python: str) -> tuple[list[str], dict[str, str]]:
    """Return the folders that a sandbox shows, and its links: path -> target."""
    present = [Path(folder) for folder in SYSTEM if Path(folder).exists()]
    links = {str(path): str(path.readlink()) for path in present if path.is_symlink()}
    folders = [str(path) for path in present if not path.is_symlink()]
    prefix = Path(os.path.realpath(python)).parent.parent
    if not any(prefix.is_relative_to(folder) for folder in folders):
        folders.append(str(prefix))
    return folders, links


def user_of(slot: int) -> int:
    """Return the user id of one of root's sandboxes; those of another run differ in general."""
    return FIRST_USER + (os.getpid() * 61 + slot) % USERS


def processes_allowed(engine: str, limits: Limits, sandboxes: int) -> int:
    """Return the limit of processes to set in a sandbox.

    Without a namespace of users, and before Linux 5.14 with one, the processes of a user are
    counted over all sandboxes together, so the limit must have room for what this user runs
    already. Sandboxes of root have a user each.
    """
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    apart = version >= COUNTED_APART and engine != "rlimits"
    if apart or os.getuid() == 0:
        return limits.processes
    running = 0
    for status in Path("/proc").glob("[0-9]*"):
        try:
            if status.stat().st_uid == os.getuid():
                running += len(list((status / "task").iterdir()))
        except OSError:
            continue
    return running + limits.processes * sandboxes


def installed_python(named: str | None) -> str:
    """Return the interpreter for candidates: the one that is named, or the system's.

    Raises:
        FileNotFoundError: There is none.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    for path in [named] if named else [*PYTHONS, base]:
        found = shutil.which(str(path))
        if found:
            return os.path.realpath(found)
    raise FileNotFoundError(f"no Python at {named or ' or '.join(PYTHONS)}")


def allow_open_files(number: int) -> None:
    """Raise this process's limit of open files, as far as it may, to a number and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + OTHER_FILES
    if resource.RLIM_INFINITY not in (soft, hard):
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
