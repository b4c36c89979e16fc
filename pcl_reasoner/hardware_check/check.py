"""Checks one Ascend node part by part and reports as JSON; a CPU runs only some of the parts.

Every part runs in a separate process with a time limit. If a part crashes or hangs, its status is
``wrong``, and the other parts still run.

    {"format": 1, "package": "0.1.0", "date": "2026-11-21",
     "device": {"kind": "Ascend", "count": 8, "name": "…", "cores": 192},
     "machine": {"architecture": "aarch64", "system": "Linux"},
     "versions": [{"name": "mindspore", "found": "2.7.2", "wanted": "==2.7.2", "ok": true}, …],
     "figures": {"mindspore": "2.7.2", …},
     "parts": [{"name": "kernels", "title": "…", "status": "ok", "why": "", "seconds": 31.2,
                "checks": [{"name": "…", "got": 0.74, "expected": 0.75, "error": 1e-3,
                            "tolerance": 0.02, "ok": true}, …],
                "measured": {"step_seconds": 0.031, …}}, …]}

``status`` is ok, wrong, or not run. ``figures`` has the versions with which a CPU computed the
reference values ("figures" in the code). A report has no host names, addresses or paths.
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
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from pcl_reasoner import __version__
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import last_lines, nearest
from pcl_reasoner.hardware_check import doctor
from pcl_reasoner.hardware_check.parts import PARTS, Part
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.train import worker

FIGURES = Path(__file__).with_name("figures.json")
"""Reference values from a CPU in float32, written by ``pclr-ms hardware-check --write-figures``."""
FORMAT = 1
OK, WRONG, NOT_RUN = "ok", "wrong", "not run"
FIRST = "devices"
WITH_FIGURES = ("packed", "training")
"""Parts whose values on a CPU are written as reference values."""
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
    """Run parts and return a report.

    Args:
        device: CPU or Ascend; None for the device that MindSpore finds.
        names: Parts to run, as checked by ``check_names``; empty for all.
        figures: The CPU's reference values by part; None in the run that computes them.
        limit: Seconds that a part may take.
        say: Called with each part's entry as soon as the part has ended.

    Returns:
        The report, and this run's values by part; values from a CPU can become reference values.
    """
    entries, made = [], {}
    seen: dict[str, Any] = {}
    for name, part in PARTS.items():
        if name != FIRST and names and name not in names:
            continue
        kind = str(device or seen.get("kind", "CPU"))
        count = int(seen.get("count", 1))
        if why := not_run(part, kind, count):
            entry = _entry(name, NOT_RUN, why)
        else:
            setting = {"device": kind, "figures": _figures_of(figures, name)}
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
    """Check that all parts with these names exist.

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
    """Return why a part cannot run on this machine; empty if it can."""
    if kind == "CPU":
        return part.not_on_cpu
    if count < part.devices:
        return f"it needs {part.devices} devices, but MindSpore sees {count}"
    return ""


def _figures_of(figures: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    """Return a part's reference values; all layouts of the small model share those of one rank."""
    shared = "training" if PARTS[name].module == "training" else name
    return None if figures is None else dict(figures.get(shared, {}))


def run_part(
    name: str, setting: Mapping[str, Any], limit: float, command: Sequence[str] | None = None
) -> Report:
    """Run one part in a separate process, and return its entry in the report.

    Args:
        name: The part.
        setting: The part's setting, written to setting.json.
        limit: Seconds after which the process is killed.
        command: Replaces the part's own command; the folder is appended as its last argument.
    """
    command = command or [sys.executable, "-m", "pcl_reasoner.hardware_check", name]
    with tempfile.TemporaryDirectory(prefix="pclr_hardware_") as temporary:
        folder, begun = Path(temporary), time.monotonic()
        (folder / "setting.json").write_text(json.dumps(setting), encoding="utf-8")
        log, arguments = folder / "part.log", [*command, temporary]
        environment = worker.environment({"LOG_MF_PATH": str(folder / "work" / "log")})
        with Supervised.here(arguments, log, folder, environment, stop_seconds=0.0) as part:
            code = part.wait(limit)
        seconds, outcome = round(time.monotonic() - begun, 1), _outcome_in(folder)
        if code != 0 or outcome is None:
            return _entry(name, WRONG, _what_happened(code, limit, log), seconds)
    wrong = [check for check in outcome["checks"] if not check["ok"]]
    why = f"{len(wrong)} of {len(outcome['checks'])} comparisons" if wrong else ""
    return _entry(name, WRONG if wrong else OK, why, seconds) | outcome


def _outcome_in(folder: Path) -> Report | None:
    """Read outcome.json, which a part writes at its end; None if it is missing or incomplete."""
    with suppress(OSError, ValueError):
        outcome: Report = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        return outcome
    return None


def _what_happened(code: int | None, limit: float, log: Path) -> str:
    """Describe a crash or a hang, with the end of the part's log."""
    if code is None:
        end = f"no result after {limit:g} s; it was ended"
    elif code < 0:
        end = f"ended by {signal.Signals(-code).name}"
    else:
        end = f"ended with exit code {code}" if code else "wrote no result"
    lines = last_lines(log, LOG_LINES).splitlines()
    return "\n".join([end, *(without_names(line)[:LINE_LENGTH] for line in lines)])


_PATH = re.compile(r"(?<![\w.…])(?<!:/)(?!//)(?:[~.]{0,2}/[\w.@+-]+)+/?")
_ADDRESSES = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}\b")


def without_names(text: str) -> str:
    """Remove folders, host name, user name and addresses from a line of a log.

    A file name with an extension is kept, because it shows where a fault is.
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
    """Read the file of the CPU's reference values.

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
    """Compute the reference values on a CPU, and return the text of their file.

    Raises:
        StageError: A part failed.
    """
    report, made = hardware_check("CPU", WITH_FIGURES, None, limit, say)
    for entry in report["parts"]:
        if entry["status"] != OK:
            raise StageError(f"{entry['name']}: {entry['why']}\nNo figures were written.")
    made_with = {name: metadata.version(name) for name in ("mindspore", "mindformers", "numpy")}
    made_with["architecture"] = platform.machine()
    return json.dumps({"made_with": made_with, **made}, indent=1, sort_keys=True) + "\n"


def verdict(report: Report) -> dict[str, int]:
    """Return status -> number of parts with that status."""
    statuses = [entry["status"] for entry in report["parts"]]
    return {status: statuses.count(status) for status in (OK, WRONG, NOT_RUN)}
