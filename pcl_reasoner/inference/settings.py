"""The sampling fields; they are the same in the stages ``sample`` and ``evaluate``."""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pcl_reasoner.core.kinds import Suffix
from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds, StageConfig

SECONDS_PER_TOKEN = 0.2
"""Our choice if request_timeout is not given: seconds that one token of a response may take, the
time in the server's queue included. ``pclr-ms plan`` expects about 0.05 s on a 910C."""
SHORTEST_TIMEOUT = 7200.0
"""Our choice, too: seconds for short responses."""


class SamplingConfig(StageConfig):
    """How responses are sampled. Every field that affects them is sent or applied explicitly."""

    renamed = {"max_tokens": "max_new_tokens"}
    renamed_values = {"engine": {"embedded": "local"}}

    engine: Literal["local", "server"] = "server"
    """``server``: an OpenAI-compatible server; ``local``: a small model on this CPU."""
    n: int = Field(8, gt=0)
    """Responses per problem."""
    temperature: float = Field(0.6, ge=0)
    """0 always takes the most likely token."""
    top_k: int = Field(40, ge=0)
    """Sample only from this many most likely tokens; 0 = all."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Sample only from the fewest most likely tokens whose summed probability reaches this."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Sample only tokens with at least this fraction of the largest probability."""
    repetition_penalty: float = Field(1.0, gt=0)
    """Values above 1 make tokens in the prompt or response less likely; 1 = off."""
    max_new_tokens: int | None = Field(None, gt=0)
    """Maximum response length in tokens; None: the rest of the context after the prompt."""
    max_model_len: int = Field(131072, gt=0)
    """Maximum length of prompt and response together, in tokens."""
    seed: int = 0
    """Seed from which the seeds of all responses are derived."""
    system: str | None = None
    """Text of the system turn; None: no system turn is added."""
    suffix: Suffix = ""
    """Appended to the problem in the user turn; a text, or a text for each kind of problem."""
    template: FileName | None = None
    """A jinja file instead of the weights' own chat template."""
    served_model: str = "policy"
    """The model's name on the server."""
    concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Maximum requests in flight, over all servers together."""
    request_timeout: Annotated[float | None, NOT_HASHED] = Field(None, gt=0)
    """Seconds to wait for an answer, including the time in the server's queue; None: 0.2 per token
    of the longest allowed response, and at least 7200."""
    retries: Annotated[int, NOT_HASHED] = Field(3, ge=0)
    """How often a request is sent again after a temporary failure."""
    max_failed: Annotated[float, NOT_HASHED] = Field(0.05, ge=0, le=1)
    """Share of failed responses above which the stage stops; a failure counts as incorrect."""
    batch: int = Field(400, gt=0)
    """Rows that the local sampler decodes together."""

    model_role: ClassVar[str] = "policy"
    """The stage's input that holds the weights."""

    def answer_seconds(self) -> float:
        """Seconds to wait for an answer: ``request_timeout``, or enough for the longest one."""
        longest = self.max_new_tokens or self.max_model_len
        return self.request_timeout or max(SHORTEST_TIMEOUT, longest * SECONDS_PER_TOKEN)

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The policy's servers; none with the local sampler."""
        if self.engine != "server":
            return []
        model = (self.served_model, self.max_model_len, self.template)
        return [ServerNeeds("sampling", self.model_role, *model)]
