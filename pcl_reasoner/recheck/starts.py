"""Compares every start of a server with a proof, before the server is asked anything else.

    POST {base}/completions   the log-probs of a few stored texts, against the trained checkpoint's
    GET {root}/metrics        process_start_time_seconds 1795522160.62: which start it was

A server that this process restarts is compared again, and so is one that somebody else restarts:
its requests fail, or its start time has changed after an answer, which is then not used.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from pcl_reasoner.answers.exchange import exchange
from pcl_reasoner.answers.failures import GivenUp, Passing
from pcl_reasoner.answers.prompt_log_probs import complete, prompt_log_probs
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet_server import CHECK_TIMEOUT, Server
from pcl_reasoner.inference.requests import prompt_body
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.recheck.difference import Difference, difference
from pcl_reasoner.recheck.texts import Proof, Text, read_proof
from pcl_reasoner.weights.identity import weights_hash

_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.M)
_PLAIN = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Log-probs are those of the model itself, whatever the stage samples with."""

Note = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Start:
    """One start of a server.

    Args:
        url: Its base URL.
        time: Start time of its process, in seconds since 1970; None if it does not report one.
        restarts: How often this process has restarted it; None if somebody else started it.
    """

    url: str
    time: float | None
    restarts: int | None

    @property
    def is_known(self) -> bool:
        """True if another start of the same server would differ."""
        return self.time is not None or self.restarts is not None


class Recheck:
    """Compares the servers of a stage with a proof (`fleet_server.Weights`).

    Args:
        proof: The proof.
        settings: Uses the model's name.
        note: Called with the figures of every start that was compared.
    """

    def __init__(self, proof: Proof, settings: SamplingConfig, note: Note) -> None:
        self.proof, self.note = proof, note
        self.settings = settings.model_copy(update=_PLAIN)
        self._compared: set[Start] = set()
        self._starts: dict[str, Start] = {}

    async def give(self, http: httpx.AsyncClient, server: Server) -> None:
        """Return once this start of the server agrees with the proof.

        Raises:
            Passing: The failure may be temporary.
            httpx.TransportError: The connection failed; this may be temporary, too.
            StageError: It computes something else, or gives no log-probs.
        """
        start = await _start_of(http, server)
        self._starts[server.url] = start
        if start.is_known and start in self._compared:
            return
        theirs = [await self._log_probs(http, server, text) for text in self.proof.texts]
        found = difference(theirs, [text.log_probs for text in self.proof.texts])
        if not found.within(self.proof.limits):
            raise StageError(_failure(server, found, self.proof))
        if start not in self._compared:
            self._compared.add(start)
            self.note(self._facts(start, found))

    async def check_after(self, http: httpx.AsyncClient, server: Server) -> None:
        """Check after an answer that a server of somebody else was not restarted.

        Raises:
            Passing: It was, so the answer must not be used.
        """
        known = self._starts.get(server.url)
        if server.supervised is not None or known is None or known.time is None:
            return
        now = await _start_of(http, server)
        if now.time is not None and now not in self._compared:
            raise Passing("it was restarted, so it must be compared again", kind="restarted")

    async def _log_probs(self, http: httpx.AsyncClient, server: Server, text: Text) -> Any:
        ids = text.token_ids
        body = prompt_body(ids, self.settings)
        answer: dict[str, Any] = {}
        try:
            answer = await complete(http, server.url, body)
            return np.array(prompt_log_probs(answer, ids), np.float32)
        except (GivenUp, Passing) as failure:
            if isinstance(failure, Passing) and not answer:
                raise
            raise StageError(
                f"{server.url}: gives no log-probs of a stored text of {len(ids)} tokens "
                f"({failure}), so it cannot be compared with {self.proof.folder}. Start it with "
                "vLLM, as for the stage prove."
            ) from failure

    def _facts(self, start: Start, found: Difference) -> dict[str, Any]:
        figures = {name: getattr(found, name) for name in ("tokens", "mean", "p99", "largest")}
        return {
            "url": start.url,
            "started": start.time,
            "restarts": start.restarts,
            "proof": self.proof.folder.name,
            "weights": self.proof.weights,
            **figures,
        }


def recheck_of(
    proof: Path | None, model: Path, settings: SamplingConfig, note: Note
) -> Recheck | None:
    """Return what compares a stage's servers with a proof; None if the stage has no proof.

    Args:
        proof: What a stage `prove` wrote; None if there is none.
        model: The Hugging Face folder that the servers must have.
        settings: Uses the model's name and the context length.
        note: Called with the figures of every start that was compared.

    Raises:
        StageError: The proof is one of other weights, or cannot be read.
    """
    if proof is None:
        return None
    found = read_proof(proof, settings.max_model_len - 1)
    here = weights_hash(model)
    if found.weights != here:
        raise StageError(
            f"{proof}: is a proof of weights {found.weights[:16]}, and {model} has {here[:16]}. "
            "Name the stage prove of this model in the input proof, or leave the input out."
        )
    return Recheck(found, settings, note)


async def _start_of(http: httpx.AsyncClient, server: Server) -> Start:
    time = None
    try:
        answer = await exchange(http, "GET", f"{server.root}/metrics", seconds=CHECK_TIMEOUT)
        if answer.status_code == 200 and (found := _STARTED.search(answer.text)):
            time = float(found[1])
    except (httpx.TransportError, Passing, ValueError):
        pass
    restarts = server.supervised.restarts if server.supervised is not None else None
    return Start(server.url, time, restarts)


def _failure(server: Server, found: Difference, proof: Proof) -> str:
    limits = proof.limits
    log = "Its log is where you ran it: this stage did not start it."
    if server.supervised is not None:
        log = f"Its log: {server.supervised.log}."
    return (
        f"{server.url}: does not compute what the trained checkpoint computes. Log-probs of "
        f"{found.tokens} tokens in {len(proof.texts)} texts of the proof differ by "
        f"{found.mean:.3g} nats on average (limit {limits.mean:g}), 99th percentile "
        f"{found.p99:.3g} (limit {limits.p99:g}), largest {found.largest:.3g} (limit "
        f"{limits.largest:g}). It is asked nothing further. {log} Compare its "
        f"folder, --dtype and other arguments with those of the servers in {proof.folder}/"
        "proof.json. `pclr-ms run RECIPE --from prove` names the cause; docs/walk/proof.md helps."
    )
