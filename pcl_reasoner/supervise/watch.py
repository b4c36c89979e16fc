"""Runs a command, and ends all its processes when it ends or when the starter is gone.

    python watch.py SECONDS SILENCE NAME COMMAND [ARGUMENT …]   standard input: held by the starter

The starter is the process that runs this file. The first line of standard input is the value of
the environment variable NAME ("": there is no such line). It is not an argument, because every user
of a machine can read command lines.

A server's engines are separate processes: after SIGKILL of the front process they keep running and
keep the memory of the devices. This process sees its standard input close, however the starter
ended, and then ends all of them. On another host a cut link closes nothing. There the starter
writes a byte at regular intervals, and after SILENCE seconds without one (0: no limit) it counts as
gone. This file is run, not imported: it needs only the standard library and starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_POLL_SECONDS = 0.2


def main(seconds: float, silence: float, name: str, command: list[str]) -> int:
    """Run a command to its end.

    Args:
        seconds: Seconds that the command has to end after SIGTERM.
        silence: Seconds without a byte after which the starter counts as gone; 0: no limit.
        name: Environment variable whose value the starter writes first; empty: none.
        command: Program and arguments.

    Returns:
        The command's exit code; negative for a signal.
    """
    # Descendants that lose their parent become this process's children, in any session or group.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # A signal may go to the whole group, and this process must end last. The handler is a function,
    # because the command would inherit an ignored signal.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    environment = {**os.environ, name: _first_line(silence)} if name else None
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, env=environment, preexec_fn=_die_with_parent
    )
    heard = time.monotonic()
    try:
        while child.poll() is None:
            if select.select([0], [], [], _POLL_SECONDS)[0]:
                if not os.read(0, 4096):
                    break
                heard = time.monotonic()
            if silence and time.monotonic() - heard > silence:
                break
        if child.poll() is None:
            child.terminate()
            _wait(child, seconds)
    finally:
        _kill_all_others()
        code = child.wait()
        _reap()
    return code


def _first_line(silence: float) -> str:
    """Read the first line from the starter; exit if the starter is gone before it comes."""
    line = b""
    while not line.endswith(b"\n"):
        there = select.select([0], [], [], silence or None)[0]
        byte = os.read(0, 1) if there else b""
        if not byte:
            raise SystemExit("watch.py: whoever started this is gone")
        line += byte
    return line[:-1].decode()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    until = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _kill_all_others() -> None:
    """Kill the other processes of this group and all children, until none is left."""
    while others := _others():
        for process in others:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _reap() -> None:
    """Reap children that have ended, because not every machine's first process does so."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _others() -> list[int]:
    """Running processes that are in this group or are children of this process."""
    own, found = os.getpid(), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # 4242 (name) S parent group …; a name may hold spaces and brackets.
            state, parent, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        process = int(path.parent.name)
        if state not in "ZX" and process != own and own in (int(parent), int(group)):
            found.append(process)
    return found


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
