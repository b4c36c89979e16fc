"""Runs commands on a host: on this machine, or on another machine over SSH with a key login.

    ssh -o BatchMode=yes … node02 'exec /opt/venv/bin/python -m pcl_reasoner.hosts.keeper'

ssh never asks for input. If a host's key is unknown or the host refuses our key, an error says so.
User, port and key are set in the OpenSSH configuration file that the launch file names.
"""

import shlex
import subprocess
from pathlib import Path

from pcl_reasoner.core.schema import Ssh

LOCAL, SSH = "local", "ssh"
_ALIVE_COUNT = 3

_REASONS = (
    ("Can't open user config file", "the file of placement.ssh.config cannot be read"),
    ("Could not resolve hostname", "the name is not known: correct it, or the name service"),
    ("Connection refused", "no SSH server answers there: start sshd, or correct the port"),
    ("timed out", "it does not answer: is it up, and is the link?"),
    ("No route to host", "there is no route to it: is it up, and is the link?"),
    ("Network is unreachable", "its network cannot be reached from here"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key differs from the one in known_hosts"),
    (
        "Host key verification failed",
        "its host key is not known here: check it and add it to known_hosts (ssh-keyscan)",
    ),
    (
        "Permission denied",
        "it refuses our key: put the public key into its authorized_keys, or name user and key "
        "in the file of placement.ssh.config",
    ),
    ("command not found", "there is no such program there: set per_host.<name>.python"),
    ("No such file or directory", "there is no such program there: set per_host.<name>.python"),
)


def command_on(
    host: str, command: list[str], how: str, ssh: Ssh, notice_seconds: float
) -> list[str]:
    """Return the local command that runs another command on a host.

    Args:
        host: The host's name.
        command: Program and arguments to run on the host.
        how: ``local`` or ``ssh``.
        ssh: The configuration file, and how long to wait for an answer.
        notice_seconds: Seconds until ssh closes the connection after the network link is cut.
    """
    if how == LOCAL:
        return command
    interval = max(1, round(notice_seconds / _ALIVE_COUNT))
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "ConnectTimeout": ssh.connect_seconds,
        "ServerAliveInterval": interval,
        "ServerAliveCountMax": _ALIVE_COUNT,
        # Always a new connection: a shared one may be older than the failure.
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "RequestTTY": "no",
        "LogLevel": "ERROR",
    }
    config = ["-F", str(Path(ssh.config).expanduser())] if ssh.config else []
    flags = [text for name, value in options.items() for text in ("-o", f"{name}={value}")]
    return ["ssh", *config, *flags, "--", host, f"exec {shlex.join(command)}"]


def ask(command: list[str], text: str, seconds: float) -> tuple[str, str]:
    """Run a command with a text as standard input, and return its output.

    Args:
        command: The command, from `command_on`.
        text: Its standard input.
        seconds: Time limit of the command.

    Returns:
        Standard output and error output. If there is no answer: an empty text, and the reason.
    """
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", f"it does not answer within {seconds:.0f} s"
    except OSError as error:
        return "", str(error)
    return done.stdout, done.stderr


def reason_in(text: str) -> str:
    """Return why a connection failed: a known reason in the output of ``ssh``, or its last line."""
    for part, reason in _REASONS:
        if part in text:
            return reason
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it stopped answering"
