"""What is wrong with hosts before a start, told by this machine's own answers."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts import checks, facts
from pcl_reasoner.hosts.checks import Needs, check_hosts


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def needs(folder: Path, *files: Path, size: int = 1000) -> Needs:
    return Needs(folder / "run", files, size, folder / "cache")


def placement(port: int, **changes: Any) -> Placement:
    return Placement(hosts=["127.0.0.1", "127.0.0.2"], master_port=port, **changes)


def test_fit_hosts_leave_nothing_behind(tmp_path: Path, port: int) -> None:
    file = tmp_path / "weights"
    file.write_text("x")
    assert check_hosts("local", needs(tmp_path, file), placement(port)) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    asked = needs(tmp_path, tmp_path / "absent", size=1 << 62)
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        wrong = check_hosts("local", asked, placement(listener.getsockname()[1]))
    assert [line.split(": ")[0] for line in wrong] == [
        *["127.0.0.1", "127.0.0.1", "127.0.0.2"],
        *["127.0.0.1", "127.0.0.2"],
    ]
    assert "checkpoints take 4611686018.4 GB: free space, or keep fewer." in wrong[0]
    assert "in use" in wrong[1]
    assert "in use" not in wrong[2]
    assert wrong[3].endswith("absent is not there.")


def test_another_version_and_a_wrong_clock_are_told(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = facts.versions()
    monkeypatch.setattr(checks, "versions", lambda: {**here, "mindspore": "2.7.9"})
    real = checks._ask

    def late(*given: Any) -> list[checks.Answer]:
        return [
            replace(answer, heard=answer.heard + 5 * (answer.rank == 1)) for answer in real(*given)
        ]

    monkeypatch.setattr(checks, "_ask", late)
    wrong = check_hosts("local", needs(tmp_path), placement(port))
    assert len(wrong) == 3
    assert wrong[0] == (
        f"127.0.0.1: mindspore is {here['mindspore']}, here 2.7.9: install the same on all hosts."
    )
    assert wrong[2].startswith("127.0.0.2: its clock is 5.") or wrong[2].startswith(
        "127.0.0.2: its clock is 4."
    )
    assert "behind" in wrong[2]


def test_a_python_that_is_not_there_is_told(tmp_path: Path, port: int) -> None:
    other = placement(port, per_host={"127.0.0.2": {"python": "/no/python"}})
    [wrong] = check_hosts("local", needs(tmp_path), other)
    assert wrong.startswith("127.0.0.2: there is no such program there")


def test_versions_tell_a_changed_checkout(tmp_path: Path) -> None:
    assert facts.versions()["mindspore"] == "2.7.2"
    code = {"a.py": "1", "room/b.py": "2"}
    handlers = {"pclr_ms.py": "3", "c.py": "4"}
    checkout = write(tmp_path / "checkout" / "pcl_reasoner", code)
    write(tmp_path / "checkout" / "handlers", handlers)
    installed = write(tmp_path / "site" / "pcl_reasoner", code)
    write(installed / "handlers", handlers)
    assert facts._code(checkout) == facts._code(installed)
    (installed / "handlers" / "c.py").write_text("5")
    assert facts._code(checkout) != facts._code(installed)


def write(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("said", "dies"),
    [
        ("Total Count : 2\\nNPU ID : 0\\nChip Count : 2\\nNPU ID : 1\\nChip Count : 2\\n", 4),
        ("Total Count : 8\\n", 8),
        ("dcmi module initialize failed\\n", None),
    ],
)
def test_devices_are_those_that_npu_smi_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, dies: int | None
) -> None:
    assert facts.devices() is None
    program = tmp_path / "npu-smi"
    program.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.devices() == dies


def test_too_few_devices_are_told(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "npu-smi"
    program.write_text("#!/bin/sh\necho 'Chip Count : 1'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    wrong = check_hosts("local", needs(tmp_path), placement(port, devices_per_host=2))
    assert wrong == [
        f"{host}: npu-smi lists 1 devices, devices_per_host is 2."
        for host in ("127.0.0.1", "127.0.0.2")
    ]
