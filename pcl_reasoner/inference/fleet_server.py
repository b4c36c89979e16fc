"""The state of one server of a fleet, and its limit of requests in flight.

GET {root}/metrics   vllm:num_requests_running{engine="0",model_name="policy"} 192.0
                     vllm:num_requests_waiting{engine="0",model_name="policy"} 64.0
                     vllm:prompt_tokens_total{engine="0",model_name="policy"} 1.234567e+06
                     vllm:generation_tokens_total{engine="0",model_name="policy"} 98765.0
-> a quarter of the server's samples waits (WAITING_SHARE): its limit stays as it is
-> as long as the sum of its tokens grows, its engine does not hang

Source: vLLM 0.13.0 and 0.32.0, vllm/v1/metrics/loggers.py: the counters' names without ``_total``,
which prometheus_client adds.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import httpx

from pcl_reasoner.answers.exchange import exchange
from pcl_reasoner.answers.failures import Passing
from pcl_reasoner.core.serving import STALL_SECONDS
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

CHECK_TIMEOUT = 10.0
"""Seconds to wait for a connection, and for an answer about a server's models or queue."""
WAITING_SHARE = 0.25
"""Share of a server's samples that may wait, so that a slot that becomes free is filled at once."""

_GAUGE = re.compile(r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? (\d+(?:\.\d+)?)$", re.M)
_TOKENS = re.compile(r"^vllm:(?:prompt|generation)_tokens_total(?:\{[^}]*\})? (\S+)$", re.M)


class Load(NamedTuple):
    """What a server reports at /metrics, of all its engines."""

    running: float
    """Samples that run."""
    waiting: float
    """Samples that wait."""
    tokens: float | None
    """Tokens that it has read and made since it was started; None if it does not say."""


@dataclass
class Server:
    """A server and its state."""

    url: str
    limit: int = 1
    """Maximum requests in flight on it."""
    has_queue: bool = False
    """True if the server reports its queue at /metrics."""
    has_waited: bool = False
    """True if any sample has waited there. Until then, a limit that is reached is doubled."""
    outstanding: int = 0
    failures: int = 0
    """Failures in a row."""
    rests_until: float = 0.0
    """Event-loop time until which it gets no requests."""
    on_trial: bool = False
    """True while a single request tests whether the server has recovered."""
    api_key: str | None = field(default=None, repr=False)
    """The API key that it requires; None or empty if it requires none."""
    supervised: SupervisedServer | None = None
    useful: bool = False
    """True once an answer of it could be used."""
    unusable: str | None = None
    """Why it is asked no more: none of its answers could be used, or it hangs."""
    up: bool = True
    """False while it is being restarted."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the current server process is lost; a restart creates a new event."""
    confirmed: bool = False
    """True if it is known to have the fleet's weights (`Weights`); False after a failure."""
    tokens: float | None = None
    """The server's tokens when they were read last."""
    moved_at: float = 0.0
    """Event-loop time when it was last seen to make progress, or to have nothing to do."""
    giving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it gets the fleet's weights."""

    @property
    def given_up(self) -> bool:
        """True if it was lost and will not be restarted, or if its answers cannot be used."""
        is_lost = self.supervised is not None and self.supervised.given_up is not None
        return is_lost or self.unusable is not None

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return self.url.removesuffix("/v1")

    def can_take(self, now: float) -> bool:
        """Return whether it can take a request now. After a failure it gets one at a time."""
        ready = self.up and self.rests_until <= now and not (self.failures and self.on_trial)
        return ready and self.outstanding < self.limit

    async def load(self, http: httpx.AsyncClient) -> Load | None:
        """Return what it reports of its requests; None if it reports no queue."""
        try:
            answer = await exchange(http, "GET", f"{self.root}/metrics", seconds=CHECK_TIMEOUT)
        except (httpx.TransportError, Passing):
            return None
        text = answer.text if answer.status_code == 200 else ""
        found = {"running": 0.0, "waiting": 0.0}
        gauges, tokens = _GAUGE.findall(text), _TOKENS.findall(text)
        for name, value in gauges:
            found[name] += float(value)
        return Load(**found, tokens=sum(map(float, tokens)) if tokens else None) if gauges else None

    @property
    def stall_seconds(self) -> float:
        """Seconds without progress after which it counts as lost."""
        return self.supervised.serving.stall_seconds if self.supervised else STALL_SECONDS

    def stalled_for(self, load: Load, is_asked: bool, now: float) -> float:
        """Return the seconds for which its requests have made no progress.

        The gauges do not count: an engine that hangs may not have reported its requests before.

        Args:
            load: What it reports now.
            is_asked: False while its requests wait for something else, e.g. for its weights.
            now: Event-loop time.
        """
        works = is_asked and self.up and self.outstanding > 0 and load.tokens is not None
        if not works or load.tokens != self.tokens:
            self.moved_at = now
        self.tokens = load.tokens
        return now - self.moved_at

    def adapt(self, settings: SamplingConfig, running: float, waiting: float) -> bool:
        """Raise the limit if it is reached and nothing waits; lower it if too many samples wait.

        Args:
            settings: Uses ``n`` and ``concurrency``.
            running: Samples that run on the server.
            waiting: Samples that wait in its queue.

        Returns:
            True if the limit may have been raised.
        """
        n = max(settings.n, 1)
        surplus = waiting - max(WAITING_SHARE * (running + waiting), n)
        self.has_waited |= waiting > 0
        if waiting == 0 and self.outstanding >= self.limit:
            more = self.limit + (max(1, self.limit // 8) if self.has_waited else self.limit)
            self.limit = min(settings.concurrency, more)
            return True
        if surplus > 0:
            self.limit = max(1, self.outstanding - int(surplus / n))
        return False


class Weights(Protocol):
    """Weights that every server of a fleet must have before it is asked."""

    async def give(self, http: httpx.AsyncClient, server: Server) -> None:
        """Return once the server is known to have the weights; it may get them now.

        Raises:
            Passing: The failure may be temporary; until it succeeds, the server is not asked.
            httpx.TransportError: The connection failed; this may be temporary, too.
            StageError: The server cannot get the weights.
        """

    async def check_after(self, http: httpx.AsyncClient, server: Server) -> None:
        """Check after an answer that the server has had the weights since `give`.

        Raises:
            Passing: It has others now, or it was restarted, so the answer must not be used.
            httpx.TransportError: The connection failed, so nothing is known.
        """
