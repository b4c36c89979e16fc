"""Checks one Ascend node part by part and reports as JSON; on a CPU, the parts that apply there.

Every part runs in a separate process with a time limit. If a part crashes or hangs, this is its
result, and the other parts still run.

    {"format": 1, "package": "0.1.0", "date": "2026-11-21",
     "device": {"kind": "Ascend", "count": 8, "name": "…", "cores": 192},
     "machine": {"architecture": "aarch64", "system": "Linux"},
     "versions": [{"name": "mindspore", "found": "2.7.2", "wanted": "==2.7.2", "ok": true}, …],
     "figures": {"mindspore": "2.7.2", …},
     "parts": [{"name": "kernels", "title": "…", "status": "ok", "why": "", "seconds": 31.2,
                "checks": [{"name": "…", "got": 0.74, "expected": 0.75, "error": 1e-3,
                            "tolerance": 0.02, "ok": true}, …],
                "measured": {"step_seconds": 0.031, …}}, …]}

``status`` is ok, wrong, or not run. There are no host names, addresses or paths in it.
"""

import datetime
import json
import platform
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from pcl_reasoner import __version__
from pcl_reasoner.core import doctor
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.hardware_check.parts import FIGURES, PARTS, Part
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.train import worker

__all__ = ["FIGURES", "hardware_check", "make_figures"]

FORMAT = 1
OK, WRONG, NOT_RUN = "ok", "wrong", "not run"
FIRST = "devices"
WITH_FIGURES = ("packed", "training")
"""Parts that make the figures on a CPU."""
LOG_LINES, LINE_LENGTH = 20, 300

Report = dict[str, Any]
Say = Callable[[Report], None]


def hardware_check(
    device: str | None,
    names: Sequence[str],
    figures: Mapping[str, Any] | None,
    limit: float,
    say: Say,
) -> tuple[Report, dict[str, Any]]:
    """Run the parts.

    Args:
        device: CPU or Ascend; None for the device that MindSpore finds.
        names: Parts to run; empty for all.
        figures: The CPU's figures by part; None while the figures are being made.
        limit: Seconds that a part may take.
        say: Called with each part's entry as soon as the part has ended.

    Returns:
        The report, and the figures that this run makes.

    Raises:
        InputError: A part does not exist.
    """
    check_names(names)
    entries, made = [], {}
    seen: dict[str, Any] = {}
    for name, part in PARTS.items():
        if name != FIRST and names and name not in names:
            continue
        kind = str(device or seen.get("kind", "CPU"))
        count = int(seen.get("count", 1))
        why = not_run(part, kind, count) if name != FIRST else ""
        if why:
            entry = _entry(name, NOT_RUN, why)
        else:
            setting = {"device": kind, "count": count, "figures": _figures_of(figures, name)}
            entry = run_part(name, setting, limit)
        if name == FIRST:
            seen = entry["measured"]
        if (found := entry.pop("figures", None)) is not None:
            made[name] = found
        entries.append(entry)
        say(entry)
    seen = {**seen, "kind": str(device or seen.get("kind", "unknown"))}
    return _report(seen, entries, figures), made


def check_names(names: Sequence[str]) -> None:
    """Refuse names of parts that do not exist.

    Raises:
        InputError: A part does not exist; the message names the most similar one.
    """
    for name in names:
        if name not in PARTS:
            raise InputError(
                f"--parts {name}: no such part.{nearest(name, list(PARTS))} "
                f"The parts are: {', '.join(PARTS)}."
            )


def not_run(part: Part, kind: str, count: int) -> str:
    """Why a part cannot run here; empty if it can."""
    if kind == "CPU":
        return part.not_on_cpu
    if count < part.devices:
        return f"it needs {part.devices} devices, but MindSpore sees {count}"
    return ""


def _figures_of(figures: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    """The figures to compare a part with; all layouts of the small model use one rank's figures."""
    if figures is None:
        return None
    shared = "training" if PARTS[name].module == "training" else name
    return dict(figures.get(shared, {}))


def run_part(
    name: str, setting: Mapping[str, Any], limit: float, command: Sequence[str] | None = None
) -> Report:
    """Run one part in a separate process.

    Args:
        name: The part.
        setting: Its setting, written to setting.json.
        limit: Seconds after which it is ended.
        command: Replaces the part's own command; the folder is appended as its last argument.
    """
    command = command or [sys.executable, "-m", "pcl_reasoner.hardware_check", name]
    with tempfile.TemporaryDirectory(prefix="pclr_hardware_") as temporary:
        folder, begun = Path(temporary), time.monotonic()
        (folder / "setting.json").write_text(json.dumps(setting), encoding="utf-8")
        code = _wait([*command, str(folder)], folder, limit)
        seconds = round(time.monotonic() - begun, 1)
        outcome = _read(folder / "outcome.json") if code == 0 else None
        if outcome is None:
            return _entry(name, WRONG, _what_happened(code, limit, folder), seconds)
    wrong = [check for check in outcome["checks"] if not check["ok"]]
    why = f"{len(wrong)} of {len(outcome['checks'])} comparisons" if wrong else ""
    return _entry(name, WRONG if wrong else OK, why, seconds) | outcome


def _wait(arguments: Sequence[str], folder: Path, limit: float) -> int | None:
    """Run a process and return its exit code; None if it exceeded the limit and was ended."""
    environment = worker.environment({"LOG_MF_PATH": str(folder / "work" / "log")})
    log = folder / "part.log"
    with Supervised.here([*arguments], log, folder, environment, stop_seconds=0.0) as part:
        return part.wait(limit)


def _read(file: Path) -> Report | None:
    try:
        value: Report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value


def _what_happened(code: int | None, limit: float, folder: Path) -> str:
    """Describe a crash or a hang, with the end of the part's log."""
    if code is None:
        end = f"no result after {limit:g} s; it was ended"
    elif code < 0:
        end = f"ended by {signal.Signals(-code).name}"
    else:
        end = f"ended with exit code {code}" if code else "wrote no result"
    log = worker.tail(folder / "part.log", LOG_LINES).splitlines()
    # Supervised starts the log with the part's command, which is not the part's output.
    lines = [without_names(line)[:LINE_LENGTH] for line in log if not line.startswith("== ")]
    return "\n".join([end, *lines])


_PATH = re.compile(r"(?<![\w.…])(?<!:/)(?!//)(?:[~.]{0,2}/[\w.@+-]+)+/?")
_ADDRESSES = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}\b")


def without_names(text: str) -> str:
    """A line of a log without folders, host name, user name and addresses.

    A file name with an extension stays, because it shows where a fault is.
    """
    text = _PATH.sub(
        lambda found: f"…/{Path(found[0]).name}" if Path(found[0]).suffix else "…", text
    )
    text = _ADDRESSES.sub("ADDRESS", text)
    for name, placeholder in ((socket.gethostname(), "HOST"), (Path.home().name, "USER")):
        if len(name) > 1:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", placeholder, text)
    return text


def _entry(name: str, status: str, why: str, seconds: float = 0.0) -> Report:
    return {
        "name": name,
        "title": PARTS[name].title,
        "status": status,
        "why": why,
        "seconds": seconds,
        "checks": [],
        "measured": {},
    }


def _report(
    device: Mapping[str, Any], entries: list[Report], figures: Mapping[str, Any] | None
) -> Report:
    columns = ("name", "found", "wanted", "ok")
    return {
        "format": FORMAT,
        "package": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": dict(device),
        "machine": {"architecture": platform.machine(), "system": platform.system()},
        "versions": [{key: asdict(check)[key] for key in columns} for check in doctor.checks()],
        "figures": dict((figures or {}).get("made_with", {})),
        "parts": entries,
    }


def read_figures(file: Path) -> dict[str, Any]:
    """Read the CPU's figures.

    Raises:
        StageError: The file cannot be read, or it is not JSON.
    """
    try:
        value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(
            f"{file}: no figures to compare with ({error}). Give --figures FILE, or write them on "
            "a CPU with --write-figures FILE."
        ) from error
    return value


def make_figures(limit: float, say: Say) -> str:
    """Run the parts WITH_FIGURES on a CPU and return the content of the figures' file.

    Raises:
        StageError: A part went wrong.
    """
    report, made = hardware_check("CPU", WITH_FIGURES, None, limit, say)
    for entry in report["parts"]:
        if entry["status"] != OK:
            raise StageError(f"{entry['name']}: {entry['why']}\nNo figures were written.")
    made_with = {name: metadata.version(name) for name in ("mindspore", "mindformers", "numpy")}
    made_with["architecture"] = platform.machine()
    return json.dumps({"made_with": made_with, **made}, indent=1, sort_keys=True) + "\n"


def verdict(report: Report) -> dict[str, int]:
    """Status -> number of parts with that status."""
    statuses = [entry["status"] for entry in report["parts"]]
    return {status: statuses.count(status) for status in (OK, WRONG, NOT_RUN)}
