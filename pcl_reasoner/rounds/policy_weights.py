"""Gives vLLM servers the policy's current weights without a restart, and confirms that it worked.

    POST {root}/pause?mode=wait         requests in flight end first
    POST {root}/collective_rpc          {"method": "reload_weights",
                                         "kwargs": {"weights_path": "/runs/…/rounds/00017/weights"}}
                                        -> {"results": [null, null]}, one per worker
    POST {root}/reset_prefix_cache      -> {"success": true}
    POST {root}/resume
    POST {root}/update_weight_version   {"new_version": "3f9c0a…"}: a label of these weights
    POST {root}/v1/completions          log-probs of a fixed prompt

The pages exist in a server that was started with VLLM_SERVER_DEV_MODE=1. A server is asked only
when all of this is known (read and tried in vLLM 0.32.0):

1. The folder has the names and shapes of the first policy. vLLM keeps the old values of a weight
   that the folder lacks, and answers 200.
2. Every worker has answered. If one fails, the weights are incomplete and vLLM ends by itself, so
   such a server is never asked again before it was restarted.
3. The server computes log-probs of a fixed prompt with the new weights. All servers must agree
   (AGREEMENT), and a server must not repeat the log-probs of the previous weights exactly although
   the files differ. These are results of the kernels, so a packed copy or a captured graph with old
   weights is noticed, with any parallel layout. A checksum of parameters (/weight_checker) would
   not notice that; on a CPU, packed parameters are empty, and vllm-ascend has no such page.
4. A server that this process did not start still has the label after each answer. The label ends
   with the server's process, so a restart is noticed even if no request failed.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pcl_reasoner.answers.exchange import exchange, json_of
from pcl_reasoner.answers.failures import GivenUp, Passing, check_key, message_of
from pcl_reasoner.answers.prompt_log_probs import complete, prompt_log_probs
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet_server import Server
from pcl_reasoner.inference.requests import prompt_body
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.weight_folder import differ, shapes_of, version_of

AGREEMENT = 0.05
"""Largest mean difference of the prompt's log-probs between two servers, in nats per token.

Equal servers give equal numbers; in bfloat16 another parallel layout rounds differently, by about
0.01. Weights of another model differ by whole nats.
"""
_START_AGAIN = (
    "Start the server with VLLM_SERVER_DEV_MODE=1 in its environment (vLLM 0.32 or later), "
    "--middleware pclr_guard.Guard and an API key; `pclr-ms run --dry-run` prints the command."
)


@dataclass(frozen=True)
class _Seen:
    """The log-probs that a server gave, and the folder of its weights."""

    url: str
    folder: Path
    log_probs: list[float]


class PolicyWeights:
    """The policy's current weights, and what is known about the servers that have them.

    It is used for a whole stage, by one fleet after another (`fleet_server.Weights`).

    Args:
        policy: The Hugging Face folder of the first policy.
        prompt: Token ids of the fixed prompt, at least 2.
        settings: Uses the model's name.
        warn: Called with each warning.
    """

    def __init__(
        self,
        policy: Path,
        prompt: Sequence[int],
        settings: SamplingConfig,
        warn: Callable[[str], None],
    ) -> None:
        self.policy, self.prompt, self.settings, self.warn = policy, list(prompt), settings, warn
        self.folder: Path | None = None
        """Folder of the current weights; None before the first call of `load`."""
        self.label = ""
        self.seconds = 0.0
        """Longest time that a server took to get and confirm the weights, since this was set."""
        self._version: object = None
        self._expected: _Seen | None = None
        self._seen: dict[object, _Seen] = {}

    def load(self, folder: Path) -> bool:
        """Make a folder's weights the current ones; servers get them when they are next used.

        Args:
            folder: A complete Hugging Face folder that every server's host can read.

        Returns:
            False if they are the current weights already.

        Raises:
            StageError: The folder is incomplete, or its weights have other names or shapes than
                the first policy's.
        """
        _check(folder, self.policy)
        version = version_of(folder)
        if self.folder == folder and self._version == version:
            return False
        self.folder, self._version = folder, version
        self.label, self._expected = secrets.token_hex(8), None
        return True

    async def give(self, http: httpx.AsyncClient, server: Server) -> None:
        """Return once the server is known to have the current weights; see `fleet_server.Weights`.

        Raises:
            Passing: The failure may be temporary. A server of this process has to be restarted.
            httpx.TransportError: The connection failed; this may be temporary, too.
            StageError: The server cannot get the weights, or computes with other weights.
        """
        began = time.monotonic()
        if server.supervised is not None:
            has_them = server.supervised.holds == self.folder
        else:
            has_them = await self._label(http, server) == self.label
        if not has_them:
            await self._replace(http, server)
        await self._confirm(http, server)
        self.seconds = max(self.seconds, time.monotonic() - began)

    async def check_after(self, http: httpx.AsyncClient, server: Server) -> None:
        """Check that a server of somebody else still has the label.

        Raises:
            Passing: It has another label, or none.
            httpx.TransportError: The connection failed, so nothing is known.
        """
        if server.supervised is not None:
            return
        found = await self._label(http, server)
        if found is not None and found != self.label:
            raise Passing(
                "it was restarted, or somebody else replaced its weights", kind="other weights"
            )

    async def _label(self, http: httpx.AsyncClient, server: Server) -> str | None:
        """Return the label of a server's weights; None if it has no labels."""
        answer = await http.get(f"{server.root}/weight_info")
        if answer.status_code == 404:
            return None
        return str(_value(server, "/weight_info", answer).get("weight_version"))

    async def _replace(self, http: httpx.AsyncClient, server: Server) -> None:
        """Replace a server's weights by the current ones."""
        supervised = server.supervised
        if supervised is not None:
            supervised.holds = None
        await _post(http, server, "/pause", params={"mode": "wait"})
        await self._reload(http, server)
        reset = await _post(http, server, "/reset_prefix_cache")
        if reset.get("success") is False:
            raise Passing("/reset_prefix_cache: the prefix cache is in use")
        await _post(http, server, "/resume")
        if supervised is not None:
            supervised.holds = self.folder
        else:
            await self._set_label(http, server)

    async def _reload(self, http: httpx.AsyncClient, server: Server) -> None:
        assert self.folder is not None
        path = str(self.folder.resolve())
        request: dict[str, Any] = {
            "json": {"method": "reload_weights", "kwargs": {"weights_path": path}}
        }
        if server.supervised is not None:
            # Reading the weights takes no longer than a start, which includes it.
            request["timeout"] = server.supervised.serving.start_seconds
        try:
            results = (await _post(http, server, "/collective_rpc", **request)).get("results")
            if not results or any(result is not None for result in results):
                raise Passing(f"/collective_rpc: got {results}, expected null for each worker")
        except Passing as failure:
            if server.supervised is not None:
                raise
            raise StageError(
                f"{server.url}: could not load the weights in {path}: {failure}. Its weights are "
                "incomplete now, and it stays paused. Check that its host can read this folder, "
                "restart it, and run again."
            ) from failure

    async def _set_label(self, http: httpx.AsyncClient, server: Server) -> None:
        page = "/update_weight_version"
        answer = await exchange(
            http, "POST", f"{server.root}{page}", json={"new_version": self.label}
        )
        if answer.status_code == 404:
            self.warn(
                f"{server.url}: has no {page} (vLLM before 0.32). If it is restarted while it has "
                "no request, that is not noticed, and it answers with other weights."
            )
            return
        _value(server, page, answer)

    async def _confirm(self, http: httpx.AsyncClient, server: Server) -> None:
        """Check the log-probs that a server computes for the fixed prompt."""
        assert self.folder is not None
        try:
            answer = await complete(http, server.url, prompt_body(self.prompt, self.settings))
        except GivenUp as refusal:
            raise StageError(
                f"{server.url}: refuses to compute log-probs of a prompt: {refusal}. {_START_AGAIN}"
            ) from refusal
        found = _Seen(server.url, self.folder, prompt_log_probs(answer, self.prompt))
        if self._expected is None:
            self._expected = found
        _check_agreement(found, self._expected)
        name = server.supervised or server.url
        if (before := self._seen.get(name)) is not None:
            await asyncio.to_thread(_check_change, found, before)
        self._seen[name] = found


async def _post(
    http: httpx.AsyncClient, server: Server, page: str, **request: Any
) -> dict[str, Any]:
    return _value(server, page, await exchange(http, "POST", f"{server.root}{page}", **request))


def _value(server: Server, page: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON of a developer page's answer; empty if it is no JSON object.

    Raises:
        Passing: The status is not 200.
        StageError: The server has no such page, or requires another API key.
    """
    check_key(server.url, answer)
    if answer.status_code == 404:
        raise StageError(f"{server.url}: has no page {page}. {_START_AGAIN}")
    if answer.status_code != 200:
        status = answer.status_code
        raise Passing(f"{page}: status {status}: {message_of(answer)}", status)
    try:
        value = json_of(answer)
    except Passing:
        return {}
    return value if isinstance(value, dict) else {}


def _check(folder: Path, policy: Path) -> None:
    """Check that a folder is complete, and has weights of the policy's names and shapes."""
    absent = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if absent:
        raise StageError(f"{folder}: missing {', '.join(absent)}; servers need a complete folder.")
    found, expected = shapes_of(folder), shapes_of(policy)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise StageError(
                f"{folder}: {name} has the shape {found.get(name, 'none: it is missing')}, "
                f"expected {expected.get(name, 'none: there is no such weight')}, as in {policy}. "
                "A running server can take only weights of the same model."
            )


def _check_agreement(found: _Seen, expected: _Seen) -> None:
    pairs = zip(found.log_probs, expected.log_probs, strict=True)
    difference = sum(abs(a - b) for a, b in pairs) / len(found.log_probs)
    if not difference <= AGREEMENT:
        raise StageError(
            f"{found.url} and {expected.url} compute with different weights: log-probs of a prompt "
            f"differ by {difference:.3g} nats per token, the limit is {AGREEMENT}. Both were given "
            f"{found.folder}. Start them with the same vLLM, --dtype and quantization."
        )


def _check_change(found: _Seen, before: _Seen) -> None:
    same = found.log_probs == before.log_probs and found.folder != before.folder
    if same and differ(found.folder, before.folder):
        raise StageError(
            f"{found.url}: computes with the previous weights, from {before.folder}, although it "
            f"was given {found.folder}. Start it with --enforce-eager: a captured graph may use a "
            "copy of the weights."
        )
