"""How a host is reached, and why it is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pcl_reasoner.core.schema import Ssh
from pcl_reasoner.supervise.connection import command_on, reason_in

WORDS = ["/opt/my venv/bin/python", "-m", "x", "a'b", "$HOME"]


def options(command: list[str]) -> dict[str, str]:
    given = [command[at + 1] for at, word in enumerate(command) if word == "-o"]
    return dict(option.split("=", 1) for option in given)


def test_on_this_machine_the_words_are_the_command() -> None:
    assert command_on("node01", WORDS, "local", Ssh(), 10) == WORDS


def test_ssh_never_asks_and_checks_the_hosts_key() -> None:
    given = options(command_on("node01", WORDS, "ssh", Ssh(connect_seconds=7), 10))
    assert given["BatchMode"] == given["StrictHostKeyChecking"] == "yes"
    assert given["PasswordAuthentication"] == given["KbdInteractiveAuthentication"] == "no"
    assert given["ConnectTimeout"] == "7"
    assert (given["ControlMaster"], given["ControlPath"]) == ("no", "none")


@pytest.mark.parametrize("notice", [2, 3, 10, 60])
def test_a_cut_link_ends_the_connection_in_time(notice: float) -> None:
    given = options(command_on("node01", WORDS, "ssh", Ssh(), notice))
    seconds = int(given["ServerAliveInterval"]) * int(given["ServerAliveCountMax"])
    assert notice - 2 <= seconds <= max(3, notice)


def test_the_configuration_file_is_the_launch_files(tmp_path: Path) -> None:
    command = command_on("node01", WORDS, "ssh", Ssh(config=str(tmp_path / "config")), 10)
    assert command[:3] == ["ssh", "-F", str(tmp_path / "config")]
    assert "-F" not in command_on("node01", WORDS, "ssh", Ssh(), 10)


def test_the_hosts_shell_gets_the_words_back() -> None:
    command = command_on("node01", ["printf", "%s|", *WORDS], "ssh", Ssh(), 10)
    assert command[-3:-1] == ["--", "node01"]
    there = subprocess.check_output(["sh", "-c", command[-1]], text=True)
    assert there.split("|")[:-1] == WORDS


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ssh: Could not resolve hostname x: Name or service not known", "name is not known"),
        ("ssh: connect to host x port 22: Connection refused", "no SSH server answers"),
        ("ssh: connect to host x port 22: Connection timed out", "does not answer"),
        ("No ED25519 host key is known\nHost key verification failed.", "key is not known here"),
        ("root@x: Permission denied (publickey).", "refuses our key"),
        ("Can't open user config file c: No such file or directory", "ssh.config cannot be read"),
        ("bash: line 1: /opt/python: No such file or directory", "per_host.<name>.python"),
        ("first\n\nsomething else \n", "something else"),
        ("", "it stopped answering"),
    ],
)
def test_why_a_host_cannot_be_reached_is_said_in_words(said: str, words: str) -> None:
    assert words in reason_in(said)
