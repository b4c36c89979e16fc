"""Hosts as network namespaces of this machine, each with an OpenSSH server of its own.

launcher 10.97.K.254 ── bridge ── veth ── 10.97.K.1   namespace with sshd
                               ── veth ── 10.97.K.2
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PORT = 2222

SERVER = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key_{number}
PidFile {folder}/sshd_{number}.pid
AuthorizedKeysFile {folder}/key.pub
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
MaxStartups 100
"""

CLIENT = """
Host *
    User root
    Port {port}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
"""


def why_not() -> str | None:
    """Why hosts cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    absent = [name for name in ("ip", "ssh", "ssh-keygen") if shutil.which(name) is None]
    if not Path("/usr/sbin/sshd").exists():
        absent.append("sshd")
    if absent:
        return f"needs {', '.join(absent)}"
    probe = f"pclp{os.getpid()}"
    made = subprocess.run(
        ["ip", "link", "add", f"{probe}a", "type", "veth", "peer", "name", f"{probe}b"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        return f"no veth pair can be made: {made.stderr.strip()}"
    run("ip", "link", "del", f"{probe}a")
    return None


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass
class Hosts:
    """A bridge with some hosts on it.

    Args:
        folder: For keys and settings.
        count: Hosts.
        net: Third number of the addresses: other benches have others.
        mounts: Host number -> shell lines that its server's mount namespace begins with.
    """

    folder: Path
    count: int
    net: int = os.getpid() % 180 + 20
    mounts: dict[int, str] = field(default_factory=dict)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def address(self, number: int) -> str:
        return f"10.97.{self.net}.{number}"

    @property
    def addresses(self) -> list[str]:
        return [self.address(number) for number in range(1, self.count + 1)]

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    def name(self, number: int) -> str:
        return f"pcl{self.net}h{number}"

    def __enter__(self) -> Hosts:
        self._remove()  # what a killed run of the tests left
        self.folder.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._keys()
        try:
            bridge = f"pclbr{self.net}"
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "addr", "add", f"{self.address(254)}/24", "dev", bridge)
            run("ip", "link", "set", bridge, "up")
            for number in range(1, self.count + 1):
                self._host(number, bridge)
                self.serve(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _keys(self) -> None:
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "key"))
        known = []
        for number in range(1, self.count + 1):
            file = self.folder / f"host_key_{number}"
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file))
            kind, key = file.with_suffix(".pub").read_text().split()[:2]
            known.append(f"[{self.address(number)}]:{PORT} {kind} {key}\n")
        (self.folder / "known_hosts").write_text("".join(known))
        self.config.write_text(CLIENT.format(port=PORT, folder=self.folder))

    def _host(self, number: int, bridge: str) -> None:
        name, outer, inner = (
            self.name(number),
            f"pclv{self.net}n{number}",
            f"pcli{self.net}n{number}",
        )
        run("ip", "netns", "add", name)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        run("ip", "link", "set", inner, "netns", name)
        run("ip", "link", "set", outer, "master", bridge)
        run("ip", "link", "set", outer, "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", inner)
        run("ip", "-n", name, "link", "set", inner, "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def serve(self, number: int) -> None:
        """Start a host's server; its mounts are its own."""
        settings = self.folder / f"sshd_{number}"
        values = {"port": PORT, "address": self.address(number), "number": number}
        settings.write_text(SERVER.format(folder=self.folder, **values))
        first = self.mounts.get(number, "true")
        line = f"{first} && exec /usr/sbin/sshd -D -e -f {settings}"
        with (self.folder / f"sshd_{number}.log").open("ab") as log:
            server = subprocess.Popen(
                ["ip", "netns", "exec", self.name(number), "bash", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.servers.append(server)
        until = time.monotonic() + 60
        probe = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", self.address(number), "true"]
        while subprocess.run(probe, capture_output=True).returncode:
            assert time.monotonic() < until, f"{self.name(number)}: sshd does not answer"
            time.sleep(0.1)

    def cut(self, number: int) -> None:
        """Cut a host's link."""
        run("ip", "link", "set", f"pclv{self.net}n{number}", "down")

    def mend(self, number: int) -> None:
        """Join it again."""
        run("ip", "link", "set", f"pclv{self.net}n{number}", "up")

    def processes(self, number: int) -> list[int]:
        """What runs in a host's namespace."""
        words = ["ip", "netns", "pids", self.name(number)]
        return [int(word) for word in subprocess.check_output(words, text=True).split()]

    def kill(self, number: int) -> None:
        """Take a host away: everything in it is killed, and its link cut."""
        self.cut(number)
        for process in self.processes(number):
            with suppress(ProcessLookupError):  # one that died with another
                os.kill(process, signal.SIGKILL)

    def left(self) -> list[str]:
        """Command lines of what runs on the hosts beside their servers."""
        found = []
        for number in range(1, self.count + 1):
            for process in self.processes(number):
                try:
                    text = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
                except OSError:
                    continue
                if text and b"sshd" not in text:
                    found.append(f"{self.address(number)}: {text.decode()}")
        return found

    def __exit__(self, *_: object) -> None:
        self._remove()
        for server in self.servers:
            server.wait()

    def _remove(self) -> None:
        for number in range(1, self.count + 1):
            name = self.name(number)
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for word in listed.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
            subprocess.run(["ip", "link", "del", f"pclv{self.net}n{number}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", f"pclbr{self.net}"], capture_output=True)
