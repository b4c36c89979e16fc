"""The first process in a sandbox: it runs one child process per test, and reports how each ended.

    init    -> {"started": true}
    checker -> {"language": "python", "code": "print(int(input()) * 2)", "limits": {…}, …}
    init    -> {"ready": true}                              or {"failed": "the compiler's error"}
    checker -> {"start": "program", "stdin": "3\\n", "seconds": 6.0}
    init    -> {"end": {"code": 0, "stdout": "6\\n", "limit": null, …}}

While a child runs that talks to the checker (``calls``, ``tester``), its lines go through:

    checker -> {"line": "…"}          init -> {"line": "…"}          checker -> {"stop": true}

``lines`` of the start are written at once, and after ``replies`` lines the child is stopped.
``output_bytes`` of the start is in place of the general limit of output.

Messages are lines of JSON on standard input and standard output. As process 1 of its namespace this
process cannot be killed from within, and its memory cannot be read: it is not dumpable. It never
holds an expected value. After a test it kills every other process and removes all files.
"""

from __future__ import annotations

import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pcl_reasoner.sandbox_program.child_run import ERROR_BYTES, ChildRun
    from pcl_reasoner.sandbox_program.pipes import Messages, send
    from pcl_reasoner.sandbox_program.processes import end_others, guard_first_process, limit_all

SOURCE, BINARY = "candidate.cpp", "candidate"
"""Files in the working directory, the only folder that a candidate can write to."""


class Init:
    """Runs the children of one program."""

    def __init__(self) -> None:
        self.messages = Messages()
        self.program: dict[str, Any] = self.messages.next()
        self.limits: dict[str, Any] = self.program["limits"]
        self.binary = b""
        """The compiled program, if it is C++."""
        self.code: Any = None
        """The compiled program, if it is Python; None if it cannot be compiled."""

    def serve(self) -> None:
        """Answer messages until the checker ends."""
        failed = None
        if self.program["language"] == "cpp":
            failed = self.compile_cpp()
        else:
            self.compile_python()
        limit_all(self.limits)
        send({"ready": True} if failed is None else {"failed": failed})
        while True:
            message = self.messages.next()
            # A message for a test that has ended meanwhile is left out.
            if "start" in message:
                end = self.run(message)
                end["clean"] = clean()
                send({"end": end})

    def run(self, start: dict[str, Any]) -> dict[str, Any]:
        """Run one child with the files that it needs; return how it ended."""
        for name, text in start.get("files", {}).items():
            write_text(name, text)
        if start["start"] == "binary":
            with open(BINARY, "wb") as file:
                file.write(self.binary)
            os.chmod(BINARY, 0o500)
        return ChildRun(self.program, self.code, self.messages, start).run()

    def compile_cpp(self) -> str | None:
        """Compile C++; return the error, or None."""
        write_text(SOURCE, self.program["code"])
        # Its messages go to standard output, because only the end of standard error is kept.
        command = f"exec 2>&1; exec g++ -O2 -std=c++17 -w -pipe -o {BINARY} {SOURCE}"
        start = {"start": "compile", "argv": ["/bin/sh", "-c", command]}
        end = self.run({**start, "seconds": self.limits["compile_seconds"]})
        error = None
        if end["code"] == 0 and os.path.isfile(BINARY):
            with open(BINARY, "rb") as file:
                self.binary = file.read()
        else:
            error = end["limit"] or end["stdout"][:ERROR_BYTES] or "the compiler failed"
        clean()
        return error

    def compile_python(self) -> None:
        """Compile the program once for all tests, without running any of it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        size = self.limits["compile_megabytes"] << 20
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))
        try:
            self.code = compile(self.program["code"], "solution.py", "exec")
        except Exception:
            self.code = None  # each child will find and report the error
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def write_text(name: str, text: str) -> None:
    """Write a file in the working directory."""
    # A text from JSON may have half of a surrogate pair.
    with open(name, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)


def clean() -> bool:
    """Kill all other processes and remove all files; return whether that succeeded.

    Outside of a sandbox, nothing is killed or removed, and the process ends.
    """
    if not in_own_folder():
        sys.stderr.write(f"{os.getcwd()}: this is no sandbox's folder, so nothing is removed\n")
        os._exit(1)
    end_others()
    return remove_files(".")


def in_own_folder() -> bool:
    """Return whether the working directory was made for this sandbox."""
    folder = os.getcwd()
    if os.getpid() == 1:
        return folder == "/tmp"
    # The engine without namespaces makes a folder with this name for each sandbox.
    named = os.path.basename(folder).startswith("pclr-ms-sandbox-")
    return named and os.stat(folder).st_uid == os.getuid()


def remove_files(folder: str) -> bool:
    """Empty a folder; return False if a file is left, or removal takes longer than a second."""
    until = time.monotonic() + 1.0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    if not remove_files(entry.path):
                        return False
                    os.rmdir(entry.path)
                else:
                    os.unlink(entry.path)
                if time.monotonic() > until:
                    return False
    except (OSError, RecursionError):
        return False
    return True


def main() -> None:
    """Become a process that candidates cannot reach, and serve."""
    guard_first_process()
    send({"started": True})
    Init().serve()
