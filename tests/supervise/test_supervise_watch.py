"""A command's secret comes by standard input: no command line shows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pcl_reasoner.supervise import watch


def watched(
    name: str, said: bytes, held: bool = True, silence: str = "0"
) -> tuple[int, bytes, bytes]:
    """Exit code and what is printed; the pipe is held open to the end, or closed at once."""
    words = [sys.executable, "-I", watch.__file__, "1", silence, name]
    command = ["bash", "-c", "echo value=${SECRET-none}"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*words, *command], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(said)
        process.stdin.flush()
        if not held:
            process.stdin.close()
        code = process.wait(20)
        return code, process.stdout.read(), process.stderr.read()


@pytest.mark.parametrize(
    ("name", "said", "printed"),
    [
        ("SECRET", b"s3 cret\n", b"value=s3 cret\n"),
        ("SECRET", b"\n...", b"value=\n"),
        ("", b"...", b"value=none\n"),
    ],
)
def test_the_first_line_is_the_variable(name: str, said: bytes, printed: bytes) -> None:
    assert watched(name, said) == (0, printed, b"")


@pytest.mark.parametrize("said", [b"", b"half a li"])
def test_nothing_is_started_where_the_starter_is_gone_before(said: bytes) -> None:
    code, printed, told = watched("SECRET", said, held=False)
    assert (code, printed) == (1, b"")
    assert b"whoever started this is gone" in told


def test_nothing_is_started_where_the_link_is_cut_before() -> None:
    """The pipe stays open, and nothing more comes."""
    code, printed, _ = watched("SECRET", b"half a li", silence="0.3")
    assert (code, printed) == (1, b"")
