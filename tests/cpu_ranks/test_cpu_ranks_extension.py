"""What ranks on a CPU need is said, one sentence each; and the environment that asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.cpu_ranks import extension
from pcl_reasoner.cpu_ranks.variables import (
    LIBRARY,
    SOCKETS,
    limit_seconds,
    requested,
    variables,
)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("platform.machine", "aarch64", "need x86-64, this machine is aarch64"),
        ("metadata.version", "2.10.0", r"checked with MindSpore 2\.7\.2 and 2\.9\.0 .* 2\.10\.0"),
        ("shutil.which", None, r"g\+\+ is missing.*apt-get install g\+\+"),
        ("sysconfig.get_path", "/absent", "Python.h is missing.*apt-get install python3-dev"),
    ],
)
def test_what_is_missing_is_said(
    place: str, value: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "platform.machine": "x86_64",
        "metadata.version": "2.7.2",
        "shutil.which": "/usr/bin/g++",
        "sysconfig.get_path": str(tmp_path),
    }
    (tmp_path / "Python.h").touch()
    for name, works in (found | {place: value}).items():
        module, function = name.split(".")
        monkeypatch.setattr(getattr(extension, module), function, lambda *_, answer=works: answer)
    with pytest.raises(StageError, match=said):
        extension.build(tmp_path)


def test_a_rank_is_requested_by_two_paths_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LIBRARY, raising=False)
    monkeypatch.delenv(SOCKETS, raising=False)
    assert not requested()
    library = tmp_path / "ranks.so"
    library.touch()
    monkeypatch.setenv(LIBRARY, str(library))
    with pytest.raises(InputError, match=f"{SOCKETS} is '': expected .* an existing folder"):
        requested()
    for name, value in variables(library, Path("/tmp")).items():
        monkeypatch.setenv(name, value)
    assert requested()
    monkeypatch.setenv(SOCKETS, "/tmp/" + "x" * 100)
    with pytest.raises(InputError, match="at most 95 characters"):
        requested()


def test_a_wait_has_a_limit_that_can_be_set() -> None:
    assert limit_seconds({}) == 300
    assert limit_seconds({"PCL_CPU_RANKS_LIMIT": "7"}) == 7
