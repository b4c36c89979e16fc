"""Run the checks and tests lane by lane, and say at the end what ran and what was skipped, and why.

    python tests/run_lanes.py [LANE …]        the lanes of every push
    python tests/run_lanes.py --all           the long lane too, resumable
    python tests/run_lanes.py --table         write the measured minutes into CONTRIBUTING.md

A lane that fails does not keep the others from running; the exit code is 1 when any failed. With
--all, lanes and files of the long lane that passed for exactly this tree are not run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "build" / "lanes.json"
"""Lane -> seconds, of the last runs on this machine."""
PASSED = ROOT / "build" / "passed.json"
"""The tree's hash, and the seconds of what passed for it: lanes, and files of the long lane."""
TABLE = ("<!-- lanes -->\n", "<!-- end of lanes -->\n")

PYTEST = ["pytest", "-rs", "--durations=25"]
LIMIT, LONG_LIMIT = "--timeout=900", "--timeout=3600"
"""Seconds after which a test fails and shows where it waits; a fixture's count, too."""
TWO = ["-n", "2", "--dist", "loadfile"]

LANES: dict[str, tuple[list[str], str]] = {
    "format": (["ruff", "format", "--check", "."], "ruff format"),
    "lint": (["ruff", "check", "."], "ruff check"),
    "docs": (
        ["sphinx", "-q", "-W", "--keep-going", "-d", "build/doctrees", "docs", "build/site"],
        "the site, with every warning an error",
    ),
    "types": (["mypy"], "mypy"),
    "fast": (
        [*PYTEST, LIMIT, *TWO, "-m", "not slow and not vllm and not long"],
        "everything that takes seconds",
    ),
    "slow": (
        [*PYTEST, LIMIT, *TWO, "-m", "slow and not long and not vllm"],
        "real training, resume, several hosts, compiles, rehearsals on ranks",
    ),
    "vllm": ([*PYTEST, LIMIT, "-m", "vllm and not long"], "a real vLLM"),
}
"""Name -> command, and what it is."""
LONG = "long"
LONG_COMMAND = [*PYTEST, LONG_LIMIT, "-m", "long"]
LONG_MEANS = (
    "by hand before an issue is closed: "
    "twenty kills, compiles of the published layouts, faults between hosts, rehearsals of all "
    "layouts and losses, resume in a cluster's layouts, the drill a hundred times, MindSpore 2.9"
)


@dataclass(frozen=True)
class Outcome:
    """How a lane ended.

    Args:
        code: Exit code.
        seconds: How long it took.
        closing: Its last line.
        skipped: pytest's lines about skipped tests.
    """

    code: int
    seconds: float
    closing: str
    skipped: list[str]


def run(command: list[str]) -> Outcome:
    """Run one lane and show what it prints as it comes."""
    started = time.monotonic()
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines += [line.strip()] if line.strip() else []
    seconds = time.monotonic() - started
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    return Outcome(process.returncode, seconds, lines[-1] if lines else "", skipped)


def tree_hash() -> str:
    """A hash of all files that git knows or would add: what the tests are run on."""
    listing = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.check_output(listing, cwd=ROOT).split(b"\0")
    digest = hashlib.sha256()
    for name in sorted(filter(None, names)):
        file = ROOT / name.decode()
        if file.is_file():
            digest.update(name + b"\0" + file.read_bytes())
    return digest.hexdigest()


def long_files() -> list[str]:
    """The test files that have long tests."""
    listing = [sys.executable, "-m", "pytest", "-m", LONG, "--collect-only", "-o", "addopts=-q"]
    found = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    return list(dict.fromkeys(line.split("::")[0] for line in found if "::" in line))


def passed_before() -> dict[str, float]:
    """What passed for this tree -> seconds."""
    kept = json.loads(PASSED.read_text()) if PASSED.is_file() else {}
    found: dict[str, float] = kept["passed"] if kept.get("tree") == tree_hash() else {}
    return found


def run_once(name: str, command: list[str]) -> Outcome:
    """Run a command, unless it passed before for this tree."""
    before = passed_before()
    if name in before:
        print(f"-- {name}: passed before, {before[name]:.0f} s", flush=True)
        return Outcome(0, before[name], "passed before for this tree", [])
    outcome = run(command)
    if not outcome.code:
        PASSED.parent.mkdir(exist_ok=True)
        passed = {**before, name: outcome.seconds}
        PASSED.write_text(json.dumps({"tree": tree_hash(), "passed": passed}, indent=1))
    return outcome


def run_long() -> Outcome:
    """Run the long lane file by file."""
    outcomes = {file: run_once(file, [*LONG_COMMAND, file]) for file in long_files()}
    failed = [file for file, outcome in outcomes.items() if outcome.code]
    closing = f"{len(outcomes) - len(failed)} files passed, failed: {', '.join(failed) or 'none'}"
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    skipped = [line for outcome in outcomes.values() for line in outcome.skipped]
    return Outcome(int(bool(failed)), seconds, closing, skipped)


def measured() -> dict[str, float]:
    """Lane -> seconds, of the last runs."""
    found: dict[str, float] = json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}
    return found


def table() -> str:
    """The lanes with their minutes, as CONTRIBUTING.md shows them."""
    seconds = measured()
    rows = ["| lane | minutes on two cores | what |", "|---|---|---|"]
    for name, means in [*((name, means) for name, (_, means) in LANES.items()), (LONG, LONG_MEANS)]:
        took = f"{seconds[name] / 60:.1f}" if name in seconds else "not measured"
        rows.append(f"| {name} | {took} | {means} |")
    return "\n".join(rows) + "\n"


def write_table() -> None:
    """Put the table into CONTRIBUTING.md."""
    page = ROOT / "CONTRIBUTING.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(TABLE[0])
    after = rest.partition(TABLE[1])[2]
    page.write_text(f"{before}{TABLE[0]}\n{table()}\n{TABLE[1]}{after}", encoding="utf-8")


def main(names: list[str]) -> int:
    """Run the lanes of the given names; those of every push when there are none."""
    if names == ["--table"]:
        write_table()
        return 0
    every = names == ["--all"]
    names = [*LANES, LONG] if every else names or list(LANES)
    unknown = [name for name in names if name not in (*LANES, LONG)]
    if unknown:
        known = ", ".join([*LANES, LONG])
        print(f"no such lane: {', '.join(unknown)}. Lanes: {known}.", file=sys.stderr)
        return 2
    outcomes = {}
    for name in names:
        command = LONG_COMMAND if name == LONG else LANES[name][0]
        print(f"== {name}: {' '.join(command)}", flush=True)
        if name == LONG:
            outcomes[name] = run_long()
        else:
            outcomes[name] = run_once(name, command) if every else run(command)
    print("== skipped")
    skipped = [f"{name}: {line}" for name, done in outcomes.items() for line in done.skipped]
    print("\n".join(skipped or ["nothing"]))
    print("== lanes")
    for name, done in outcomes.items():
        verdict = "FAILED" if done.code else "ok"
        print(f"{name:8}{verdict:8}{done.seconds:6.0f} s  {done.closing}")
    MEASURED.parent.mkdir(exist_ok=True)
    took = {name: done.seconds for name, done in outcomes.items() if not done.code}
    MEASURED.write_text(json.dumps({**measured(), **took}, indent=1))
    return int(any(done.code for done in outcomes.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
