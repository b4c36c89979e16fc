"""Takes msrun's place: one worker a host that counts steps, and does as a file beside says.

behaviour.json   {"1.0": {"step": 7, "do": "kill"}}      start 1, host 0: at step 7
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

SECONDS_A_STEP = 0.02
SAVED_EVERY = 5


def as_worker(rank: int) -> None:
    """Make the steps that are left; the first host's worker writes them down."""
    start = len(list(Path().glob(f"started_{rank}_*"))) + 1
    leave_pids(rank, start)
    told = json.loads(Path("behaviour.json").read_text()).get(f"{start}.{rank}", {})
    steps = json.loads(Path("steps.json").read_text())
    first = int(Path("resume").read_text()) + 1
    wait_until_followed()
    for step in range(first, steps + 1):
        time.sleep(SECONDS_A_STEP)
        # As ranks wait for one another.
        while rank > 0 and read("metrics.jsonl").count("\n") < step - 1:
            time.sleep(SECONDS_A_STEP / 10)
        if told.get("step") == step:
            misbehave(told["do"])
        if rank > 0:
            Path(f"at_{start}").write_text(str(step))
        else:
            while step > int("0" + read(f"at_{start}")):
                time.sleep(SECONDS_A_STEP / 10)
            with Path("metrics.jsonl").open("a") as handle:
                line = {"step": step, "loss": 1 / step, "tokens": 10}
                handle.write(json.dumps(line) + "\n")
            if step % SAVED_EVERY == 0:
                Path("saved").write_text(str(step))


def read(name: str) -> str:
    return Path(name).read_text() if Path(name).exists() else ""


def leave_pids(rank: int, start: int) -> None:
    """Say who is there, with a process that left the group; note who is there still."""
    away = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(f"away_{rank}").write_text(str(away.pid))
    if rank == 0:
        for file in Path().glob("started_*"):
            for word in file.read_text().split():
                if start > 1 and file.name.endswith(f"_{start - 1}") and is_alive(int(word)):
                    Path("overlap").write_text(f"{file.name} {word}")
    Path(f"started_{rank}_{start}").write_text(f"{os.getpid()} {os.getppid()} {away.pid}")


def is_alive(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def misbehave(what: str) -> None:
    """Do what the test wants."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "hang":
        time.sleep(600)
    elif what.startswith("exit"):
        sys.stderr.write("RuntimeError: as told\n")
        sys.stderr.flush()
        os._exit(int(what.split()[1]))
    elif what == "full":
        sys.stderr.write("OSError: [Errno 28] No space left on device: 'x'\n")
        sys.stderr.flush()
        os._exit(1)
    elif what == "stop":
        Path("stopped.txt").write_text("step 9: the loss is nan.\n")
        os._exit(1)
    elif what == "fill":
        with Path("disk/checkpoint").open("wb") as handle:
            while True:
                handle.write(bytes(1 << 14))
                handle.flush()
    elif what.startswith("down"):
        # The host goes: nobody reaches it any more, and nothing runs there.
        Path(os.environ["DOWN"]).joinpath(what.split()[1]).touch()
        kill_keeper()
        os.killpg(int(Path(f"away_{os.environ['MS_NODE_ID']}").read_text()), signal.SIGKILL)
        os._exit(0)
    elif what == "kill keeper":
        kill_keeper()
        time.sleep(600)


def keeper_of_us() -> int:
    """The keeper is the first process above that does not belong to the run itself."""
    run = os.environ["PCL_RUN"]
    keeper = os.getppid()
    while f"PCL_RUN={run}" in Path(f"/proc/{keeper}/environ").read_text():
        keeper = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
    return keeper


def kill_keeper() -> None:
    os.kill(keeper_of_us(), signal.SIGKILL)


def wait_until_followed() -> None:
    """Real workers load for a minute: the keeper has seen them long before their first step."""
    line, until = f"Pid:\t{os.getpid()}\n", time.monotonic() + 60
    while time.monotonic() < until:
        for file in Path(f"/proc/{keeper_of_us()}/fdinfo").glob("*"):
            with suppress(OSError):
                if line in file.read_text():
                    return
        time.sleep(0.01)


def main() -> None:
    """Start the worker as msrun does, in a session of its own, and wait for it as msrun does."""
    given = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
    rank = int(given["node_rank"])
    logs = Path(given["log_dir"])
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank)}
    with (logs / f"worker_{rank}.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, __file__, "worker", str(rank)],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    while worker.poll() is None:
        time.sleep(0.3)
    if worker.returncode and rank == 0:
        time.sleep(600)  # msrun waits for its scheduler, until the cluster's time-out
    raise SystemExit(1 if worker.returncode else 0)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        as_worker(int(sys.argv[2]))
    else:
        main()
