"""Kills a process with SIGKILL at one point of the package; a folder for PYTHONPATH.

Every Python process with the environment variable PCLR_TEST_KILL looks for its point:

    {"module": "pcl_reasoner.rl.loop", "call": "write_end", "when": "before", "number": 2}
    {"module": …, "call": "AppendLog.append", "file": "tests.partial.jsonl", "cut": true}
    {"renamed": "00001/round.json", "when": "before", "cut": true}
    {"removed": "00001/weights", "when": "before", "cut": true}

``call``: the second call of that function. ``file``: only calls on an object whose path ends so.
``renamed``: a file or folder gets a name that ends so. ``removed``: a folder. ``cut``: half of what
was written last is lost, as by a kill in the middle of writing; a pattern names the file. If
PCLR_TEST_RUNNER names a process, it is killed too, unless the point has ``alone``.

With PCLR_TEST_TRACE, a file, every process notes there what it does: batches of responses that are
drawn, and updates.
"""

import importlib.abc
import importlib.util
import json
import os
import shutil
import signal
import sys
from functools import partial, wraps
from pathlib import Path

POINT, RUNNER, TRACE = "PCLR_TEST_KILL", "PCLR_TEST_RUNNER", "PCLR_TEST_TRACE"
DRAWN = ("pcl_reasoner.sample.local", "LocalDrawer._draw_batch")
UPDATED = ("pcl_reasoner.trainer.step", "PclMetrics.record")


def die(point: dict) -> None:
    """Kill the runner, if there is one, and this process."""
    note({"killed": point})
    runner = int(os.environ.get(RUNNER, os.getpid()))
    if runner != os.getpid() and not point.get("alone"):
        os.kill(runner, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def note(line: dict) -> None:
    """Add a line to the trace."""
    if TRACE in os.environ:
        with Path(os.environ[TRACE]).open("a") as handle:
            handle.write(json.dumps({"process": os.getpid(), **line}) + "\n")


def cut_last_line(path: Path) -> None:
    """Leave half of a file's last line."""
    data = path.read_bytes()
    begin = data.rstrip(b"\n").rfind(b"\n") + 1
    os.truncate(path, (begin + len(data)) // 2)


def cut_half(path: Path) -> None:
    """Leave half of a file, or of the largest file of a folder."""
    if path.is_dir():
        path = max((one for one in path.rglob("*") if one.is_file()), key=os.path.getsize)
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size // 2)


def cut_newest(pattern: str) -> None:
    """Leave half of the newest file or folder of a pattern."""
    found = Path("/").glob(str(Path(pattern).absolute()).lstrip("/"))
    cut_half(max(found, key=os.path.getmtime))


def reached(point: dict, function, *arguments, **keywords):
    """Call a function; die before or after its call whose number is the point's."""
    owner = arguments[0] if arguments else None
    counts = str(getattr(owner, "path", "")).endswith(point.get("file", ""))
    point["number"] = point.get("number", 1) - counts
    now = counts and point["number"] == 0
    if now and point.get("when") == "before":
        die(point)
    found = function(*arguments, **keywords)
    if now:
        if isinstance(point.get("cut"), str):
            cut_newest(point["cut"])
        elif point.get("cut"):
            cut_last_line(owner.path)
        die(point)
    return found


def renamed(point: dict, plain, path: Path, target):
    """Rename; die before or after the rename that the point names."""
    now = str(target).endswith(point["renamed"])
    if now and point.get("when") == "before":
        if point.get("cut"):
            cut_half(path)
        die(point)
    found = plain(path, target)
    if now:
        die(point)
    return found


def removed(point: dict, plain, path, *arguments, **keywords):
    """Remove a folder; die before it, with ``cut`` after its first file."""
    if str(path).endswith(point["removed"]) and Path(path).exists():
        if point.get("cut"):
            min(one for one in Path(path).rglob("*") if one.is_file()).unlink()
        die(point)
    return plain(path, *arguments, **keywords)


def drawn(function, drawer, batch, prompts, settings, *others):
    """Note a batch of responses."""
    note({"drawn": batch, "seed": settings.seed})
    return function(drawer, batch, prompts, settings, *others)


def updated(function, callback, context, step, *others):
    """Note an update."""
    note({"updated": step})
    return function(callback, context, step, *others)


def follow(owner, name: str, changed) -> None:
    """Replace a function of a module or class by another one, which gets the plain one."""
    first, _, rest = name.partition(".")
    if rest:
        follow(getattr(owner, first), rest, changed)
    else:
        plain = getattr(owner, first)
        setattr(owner, first, wraps(plain)(lambda *a, **k: changed(plain, *a, **k)))


class Follower(importlib.abc.MetaPathFinder):
    """Replaces a function of a module as soon as the module is imported."""

    def __init__(self, module: str, name: str, changed) -> None:
        self.module, self.name, self.changed = module, name, changed

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_follow(module) -> None:
            execute(module)
            follow(module, self.name, self.changed)

        spec.loader.exec_module = execute_and_follow
        return spec


def install(point: dict) -> None:
    """Look for the point from now on."""
    if "renamed" in point:
        for name in ("rename", "replace"):
            follow(Path, name, partial(renamed, point))
    elif "removed" in point:
        follow(shutil, "rmtree", partial(removed, point))
    else:
        changed = partial(reached, point)
        sys.meta_path.insert(0, Follower(point["module"], point["call"], changed))


if POINT in os.environ:
    install(json.loads(os.environ[POINT]))
if TRACE in os.environ:
    sys.meta_path[:0] = [Follower(*DRAWN, drawn), Follower(*UPDATED, updated)]
