"""The process that a sandbox's command starts."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from sandbox_helpers import PYTHON

from pcl_reasoner.sandbox import engines
from pcl_reasoner.sandbox.engines import ENVIRONMENT, Command

WHO = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
capabilities = [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")]
found = [os.getresuid(), os.getresgid(), os.getgroups(), capabilities, dict(os.environ)]
print(json.dumps([*found, os.getcwd(), os.getsid(0) == os.getpid(), os.read(FILE, 5).decode()]))
"""
USER = 64321
NONE = "0" * 16


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process as another user")
@pytest.mark.parametrize("program", ["setpriv", "a program that is nowhere"])
def test_as_root_a_sandbox_starts_as_another_user_without_any_right(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SETPRIV", program)
    monkeypatch.setenv("A_SECRET", "of this process")
    with tempfile.TemporaryFile() as file:
        file.write(b"given")
        file.seek(0)
        code = WHO.replace("FILE", str(file.fileno()))
        command = Command([PYTHON, "-I", "-S", "-c", code], USER, [file])
        output, errors = command.start().communicate(timeout=60)
    ids = [[USER] * 3, [USER] * 3, [], [NONE] * 4]
    assert json.loads(output) == [*ids, ENVIRONMENT, "/", True, "given"], errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process as another user")
def test_a_program_that_the_user_may_not_read_is_not_started(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    program = shutil.copy("/bin/true", hidden / "true")
    process = Command([str(program)], USER).start()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 126
    assert b"Permission denied" in errors


def test_a_program_that_is_not_there_is_named_and_its_files_are_closed() -> None:
    with tempfile.TemporaryFile() as file:
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            Command(["no-such-program"], None, [file]).start()
        assert file.closed
