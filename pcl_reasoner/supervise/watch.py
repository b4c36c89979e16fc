"""Run a command, and end all of it when it ends or when whoever started this process is gone.

    python watch.py SECONDS SILENCE NAME COMMAND [ARGUMENT …]   standard input: held by the starter

The first line that comes is the value of the environment variable NAME ("": no line comes), as
everyone on a machine reads its commands.

A server's engines are processes of their own: SIGKILL of its front process leaves them, with the
memory of the devices. This one sees its pipe close, however the starter ended, and leaves nothing.
On another host a cut link closes nothing: there the starter writes a byte now and then, and SILENCE
seconds without one (0: however long) mean that it is gone.
Run as a file, not imported: it needs the standard library alone and starts in milliseconds.
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
        seconds: The command's time to end by itself after SIGTERM.
        silence: Seconds without a byte from the starter after which it is gone; 0: never.
        name: Environment variable whose value the starter writes first; empty: none.
        command: What to run.

    Returns:
        Its exit code; negative for a signal.
    """
    # Processes that lose their parent become this one's children, wherever they have gone.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The group may be told to end as a whole: this process ends last. A function, as an ignored
    # signal would be ignored in the command too.
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
    """What the starter writes first; the process ends where it is gone before."""
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
    """Kill this group's other processes and all children, until there are none."""
    while others := _others():
        for process in others:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _reap() -> None:
    """Take leave of children that have ended: not every machine's first process does it."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _others() -> list[int]:
    """Processes of this group, and children of this process, that have not ended."""
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
