"""The sampling fields that the stages ``sample`` and ``evaluate`` share, under the same names."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import FileName, ServerNeeds, StageConfig


class SamplingConfig(StageConfig):
    """How responses are drawn. Every field that changes them is sent or applied explicitly."""

    renamed = {"max_tokens": "max_new_tokens"}
    renamed_values = {"engine": {"embedded": "local"}}

    engine: Literal["local", "server"] = "server"
    """``server``: an OpenAI-compatible server; ``local``: a small model on this CPU."""
    n: int = Field(8, gt=0)
    """Responses a problem."""
    temperature: float = Field(0.6, ge=0)
    """0 takes the most likely token."""
    top_k: int = Field(40, ge=0)
    """Only this many most likely tokens may be drawn; 0 = all."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Only the most likely tokens whose probability together reaches this may be drawn."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Only tokens with this share of the largest probability may be drawn."""
    repetition_penalty: float = Field(1.0, gt=0)
    """Makes tokens already in prompt or response less likely; 1 = off."""
    max_new_tokens: int | None = Field(None, gt=0)
    """Longest response in tokens; None = what the prompt leaves of the context."""
    max_model_len: int = Field(131072, gt=0)
    """Longest prompt and response together, in tokens."""
    seed: int = 0
    """Start of all random streams."""
    system: str | None = None
    """Text of the system turn; None for no system turn of ours."""
    suffix: str = ""
    """Appended to the problem in the user turn."""
    template: FileName | None = None
    """A jinja file instead of the weights' own chat template."""
    served_model: str = "policy"
    """The name under which the server offers the model."""
    concurrency: int = Field(64, gt=0)
    """Requests under way at the same time, over all servers."""
    request_timeout: float = Field(7200.0, gt=0)
    """Seconds to wait for an answer, the server's queue included."""
    retries: int = Field(3, ge=0)
    """How often a request is sent again after a failure that may pass."""
    max_failed: float = Field(0.05, ge=0, le=1)
    """Share of failed responses above which the stage stops: failures count as wrong answers."""
    batch: int = Field(400, gt=0)
    """Rows that the local sampler decodes at once."""

    model_role: ClassVar[str] = "policy"
    """The stage's input that has the weights."""

    def asked_urls(self, placement: Placement) -> list[str]:
        """The policy's servers, where a server answers."""
        return placement.server_urls if self.engine == "server" else []

    def server(self) -> ServerNeeds | None:
        """What a server must offer; None where the local sampler answers."""
        if self.engine != "server":
            return None
        return ServerNeeds(self.model_role, self.served_model, self.max_model_len)
