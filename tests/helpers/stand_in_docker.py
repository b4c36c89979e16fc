"""What ``docker`` looks like from outside: a client, and containers that live on without it.

    docker run --rm --init --name NAME [--env VARIABLE | --OPTION=VALUE] IMAGE bash -c LINE
        (without --pull=never it fetches an image that is not there: ``pulled`` in DOCKER_HOME)
    docker stop -t SECONDS NAME
    docker rm --force NAME
    docker image inspect IMAGE          (DOCKER_LACKS lists the images that are not there)

The folder DOCKER_HOME has a file per container with its process, and ``log``, with every call. As
with the real one, a container gets no variable of the client but those that ``--env`` names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["DOCKER_HOME"])
LACKS = os.environ.get("DOCKER_LACKS", "").split()
WITH_VALUE = ("--name", "--env")


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end(name: str, number: int, seconds: float) -> int:
    file = HOME / name
    if not file.exists():
        return 1
    process = int(file.read_text())
    until = time.monotonic() + seconds
    while lives(process):
        late = time.monotonic() > until
        os.killpg(process, signal.SIGKILL if late else number)
        time.sleep(0.05)
    return 0


def run(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the container, not the client, is to end
    passed = {}
    name = ""
    pulls = True
    while words[0].startswith("--"):
        option = words.pop(0)
        pulls = pulls and option != "--pull=never"
        if option in WITH_VALUE:
            value = words.pop(0)
            if option == "--name":
                name = value
            elif value in os.environ:
                passed[value] = os.environ[value]
    image, *command = words
    if image in LACKS:
        if not pulls:
            return 125
        (HOME / "pulled").write_text(image)
    base = {"PATH": os.environ["PATH"], "IN_CONTAINER": name}
    # The daemon, and not the client, is the parent of a container's processes.
    code = HOME / f"{name}.code"
    code.unlink(missing_ok=True)
    if os.fork() == 0:
        os.setsid()
        process = subprocess.Popen(command, env=base | passed, start_new_session=True)
        (HOME / name).write_text(str(process.pid))
        code.write_text(str(process.wait()))
        os._exit(0)
    while not (code.exists() and code.read_text()):
        time.sleep(0.05)
    return int(code.read_text()) % 256


def main(words: list[str]) -> int:
    with (HOME / "log").open("a") as log:
        log.write(json.dumps(words) + "\n")
    match words:
        case ["run", *rest]:
            return run(rest)
        case ["stop", "-t", seconds, name]:
            return end(name, signal.SIGTERM, float(seconds))
        case ["image", "inspect", image]:
            return 0 if image not in LACKS else 1
        case ["rm", "--force", name]:
            return end(name, signal.SIGKILL, 0)
    return 125


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
