"""Bytes between the ranks, which are processes of one machine, over Unix sockets in a folder."""

import threading
import time
from collections import defaultdict, deque
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path


class Mailbox:
    """The messages of one rank. A message waits under its sender and key until the rank takes it.

    Args:
        rank: The rank that owns it.
        folder: The folder with the sockets of all ranks.
        limit_seconds: Longest wait for a message, and for another rank's socket.
    """

    def __init__(self, rank: int, folder: Path, limit_seconds: float) -> None:
        self.rank, self.folder, self.limit_seconds = rank, folder, limit_seconds
        self.waiting: dict[tuple[int, str], deque[bytes]] = defaultdict(deque)
        self.changed = threading.Condition()
        self.links: dict[int, Connection] = {}
        self.sending = threading.Lock()
        own = folder / str(rank)
        own.unlink(missing_ok=True)  # a killed run leaves it
        self.listener = Listener(str(own), family="AF_UNIX", backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._read, args=(link,), daemon=True).start()

    def _read(self, link: Connection) -> None:
        try:
            sender = int(link.recv_bytes())
            while True:
                key = link.recv_bytes().decode()
                self._keep(sender, key, link.recv_bytes())
        except (EOFError, ConnectionResetError):  # the sender has ended
            return

    def _keep(self, sender: int, key: str, data: bytes) -> None:
        with self.changed:
            self.waiting[sender, key].append(data)
            self.changed.notify_all()

    def send(self, to: int, key: str, data: bytes) -> None:
        """Send bytes to a rank; a rank may send to itself.

        Raises:
            TimeoutError: The rank's socket does not exist.
        """
        if to == self.rank:
            self._keep(to, key, data)
            return
        with self.sending:
            link = self.links.get(to) or self._connect(to)
            link.send_bytes(key.encode())
            link.send_bytes(data)

    def _connect(self, to: int) -> Connection:
        until = time.monotonic() + self.limit_seconds
        while True:
            try:
                link = Client(str(self.folder / str(to)), family="AF_UNIX")
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"rank {self.rank} waited {self.limit_seconds:g} s for the start of rank "
                        f"{to}. Read that rank's log."
                    ) from None
                time.sleep(0.02)
        link.send_bytes(str(self.rank).encode())
        self.links[to] = link
        return link

    def take(self, sender: int, key: str) -> bytes:
        """Return the next message of a sender under a key.

        Raises:
            TimeoutError: No such message came. The text lists the messages that did come, because
                the ranks may communicate in different orders.
        """
        with self.changed:
            here = (sender, key)
            if self.changed.wait_for(lambda: self.waiting.get(here), self.limit_seconds):
                message = self.waiting[here].popleft()
                if not self.waiting[here]:
                    del self.waiting[here]
                return message
            others = [known for known, messages in self.waiting.items() if messages]
        raise TimeoutError(
            f"rank {self.rank} waited {self.limit_seconds:g} s for rank {sender} at {key}; "
            f"messages (sender, key) that wait: {others}. Read that rank's log."
        )
