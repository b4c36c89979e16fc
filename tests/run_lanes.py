"""Run the checks and tests lane by lane, and say at the end what ran and what was skipped, and why.

    python tests/run_lanes.py [LANE …]

A lane that fails does not keep the others from running; the exit code is 1 when any failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Name, seconds on two cores, command.
LANES: dict[str, tuple[int, list[str]]] = {
    "format": (1, ["ruff", "format", "--check", "."]),
    "lint": (1, ["ruff", "check", "."]),
    "types": (15, ["mypy"]),
    "fast": (500, ["pytest", "-rs", "-m", "not slow and not vllm"]),
    "slow": (1500, ["pytest", "-rs", "-m", "slow", "--durations=0"]),
    "vllm": (800, ["pytest", "-rs", "-m", "vllm", "--durations=0"]),
}


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


def main(names: list[str]) -> int:
    """Run the lanes of the given names, all when there are none."""
    unknown = [name for name in names if name not in LANES]
    if unknown:
        print(f"no such lane: {', '.join(unknown)}. Lanes: {', '.join(LANES)}.", file=sys.stderr)
        return 2
    outcomes = {}
    for name in names or LANES:
        estimate, command = LANES[name]
        print(f"== {name} (about {estimate} s): {' '.join(command)}", flush=True)
        outcomes[name] = run(command)
    print("== skipped")
    skipped = [f"{name}: {line}" for name, done in outcomes.items() for line in done.skipped]
    print("\n".join(skipped or ["nothing"]))
    print("== lanes")
    for name, done in outcomes.items():
        word = "FAILED" if done.code else "ok"
        print(f"{name:8}{word:8}{done.seconds:6.0f} s  {done.closing}")
    return int(any(done.code for done in outcomes.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
