"""The shell line that asks a host, inside a program's environment, what is there.

[ -r /opt/cann/set_env.sh ] || echo 'pclr-absent set_env|/opt/cann/set_env.sh'; …;
source /opt/cann/set_env.sh && … && exec /opt/vllm/bin/python -c …

With a container, all of it runs inside; the host says whether it has the runtime and the image.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pcl_reasoner.core.programs import Program
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.serving.server_key import cleaned, without_key
from pcl_reasoner.supervise.container import in_container
from pcl_reasoner.supervise.environment import environment_steps, sourced_files
from pcl_reasoner.version_check import probe

_MARK = "pclr-absent "
_TESTS = {
    "set_env": "[ -f {path} ] && [ -r {path} ]",
    "executable": "[ -f {path} ] && [ -x {path} ]",
    "python": "[ -f {path} ] && [ -x {path} ]",
    "folder": "[ -d {path} ] && [ -r {path} ]",
}
"""What is looked for -> the shell's test of it."""
WANTED = {
    "set_env": "a file that can be read",
    "executable": "a file that can be executed",
    "python": "a file that can be executed",
    "folder": "a folder that can be read",
    "runtime": "a command in PATH",
    "image": "an image of this host",
}
"""What is looked for -> what it must be, for people."""


def question(
    placement: Placement, host: str, name: str, program: Program, folders: Sequence[str] = ()
) -> str:
    """Return the shell line that looks for a program's files and runs probe.py beside it.

    Args:
        placement: The launch file's placement.
        host: One of its hosts or spare hosts.
        name: The program's key in the launch file; it names the container.
        program: The launch file's part.
        folders: Folders that the program reads, e.g. those of weights.
    """
    python = python_of(placement, host, program)
    executable = program.executable if isinstance(program, Serving) else None
    wanted = [("set_env", file) for file in sourced_files(placement, host, program)]
    wanted += [("folder", folder) for folder in folders]
    wanted += [("executable", str(Path(executable).expanduser()))] if executable else []
    wanted += [("python" if executable else "executable", python)]
    own = program.model_copy(update={"environment": cleaned(program.environment)})
    steps = environment_steps(without_key(placement), host, python, None, own)
    source = Path(probe.__file__).read_text(encoding="utf-8")
    # A bare name is looked for in the PATH of the program's environment.
    named = [_look(kind, path) for kind, path in wanted if Path(path).parent == Path()]
    tests = [_look(kind, path) for kind, path in wanted if Path(path).parent != Path()]
    environment = " && ".join([*steps, *named, f"exec {shlex.join([python, '-c', source])}"])
    return _inside("; ".join([*tests, environment]), f"pclr-doctor-{host}-{name}", program)


def _look(kind: str, path: str) -> str:
    quoted = shlex.quote(path)
    bare = Path(path).parent == Path() and kind in ("executable", "python")
    test = f"command -v {quoted} >/dev/null" if bare else _TESTS[kind].format(path=quoted)
    return f"{{ {test} || echo {shlex.quote(f'{_MARK}{kind}|{path}')}; }}"


def _inside(line: str, name: str, program: Program) -> str:
    """Return the line, or one that runs it in the program's container if the host has the image.

    Programs of a host are asked at the same time, so each needs a container of its own ``name``.
    """
    container = program.container
    if container is None:
        return line
    runtime, image = shlex.quote(container.runtime), shlex.quote(container.image)
    inside = in_container(line, container, name, [])
    return (
        f"if ! command -v {runtime} >/dev/null; then "
        f"echo {shlex.quote(f'{_MARK}runtime|{container.runtime}')}; "
        # Without this, ``run`` would fetch an image that is not there.
        f"elif ! {runtime} image inspect {image} >/dev/null 2>&1; then "
        f"echo {shlex.quote(f'{_MARK}image|{container.image}')}; else {inside}; fi"
    )


def absent_in(output: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, path) of all that the shell did not find."""
    for line in output.splitlines():
        if line.startswith(_MARK):
            kind, _, path = line.removeprefix(_MARK).partition("|")
            yield kind, path


def python_of(placement: Placement, host: str, program: Program) -> str:
    """Return the Python of a program: beside vLLM, or MindFormers' own."""
    if isinstance(program, Serving):
        executable = Path(program.executable).expanduser()
        is_python = executable.name.startswith("python")
        return str(executable if is_python else executable.with_name("python"))
    if program.container:
        return placement.training.python or "python"
    return placement.settings_of(host).python or placement.training.python or sys.executable
