"""Bytes between the processes of one machine, over Unix sockets in a folder."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path


class Mailbox:
    """The messages of one rank. A message waits under its sender and key until the rank takes it.

    Args:
        rank: Its own.
        folder: Where all ranks have their sockets.
        limit_s: Seconds that it waits for a message, and for another rank to be there.
    """

    def __init__(self, rank: int, folder: Path, limit_s: float = 120) -> None:
        self.rank, self.folder, self.limit_s = rank, folder, limit_s
        self.waiting: dict[tuple[int, str], deque[bytes]] = defaultdict(deque)
        self.changed = threading.Condition()
        self.links: dict[int, Connection] = {}
        self.sending = threading.Lock()
        self.listener = Listener(str(folder / str(rank)), family="AF_UNIX", backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._read, args=(link,), daemon=True).start()

    def _read(self, link: Connection) -> None:
        sender = int(link.recv_bytes())
        try:
            while True:
                key = link.recv_bytes().decode()
                self._keep(sender, key, link.recv_bytes())
        except EOFError:
            return

    def _keep(self, sender: int, key: str, data: bytes) -> None:
        with self.changed:
            self.waiting[sender, key].append(data)
            self.changed.notify_all()

    def send(self, to: int, key: str, data: bytes) -> None:
        """Send bytes to a rank, itself included."""
        if to == self.rank:
            self._keep(to, key, data)
            return
        with self.sending:
            link = self.links.get(to) or self._connect(to)
            link.send_bytes(key.encode())
            link.send_bytes(data)

    def _connect(self, to: int) -> Connection:
        until = time.monotonic() + self.limit_s
        while True:
            try:
                link = Client(str(self.folder / str(to)), family="AF_UNIX")
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise TimeoutError(f"rank {self.rank}: rank {to} is not there") from None
                time.sleep(0.02)
        link.send_bytes(str(self.rank).encode())
        self.links[to] = link
        return link

    def take(self, sender: int, key: str) -> bytes:
        """The next message of a sender under a key.

        Raises:
            TimeoutError: None came; what else is there is said, as orders may differ.
        """
        with self.changed:
            if self.changed.wait_for(lambda: self.waiting[sender, key], self.limit_s):
                return self.waiting[sender, key].popleft()
            others = [known for known, messages in self.waiting.items() if messages]
        raise TimeoutError(
            f"rank {self.rank} waited {self.limit_s:g} s for rank {sender} at {key}; "
            f"there are: {others}"
        )
