"""Settings of the stage ``perplexity``."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from pcl_reasoner.core.kinds import Suffix
from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds
from pcl_reasoner.perplexity.old_log_probs_stage import OldLogProbsConfig


class PerplexityConfig(OldLogProbsConfig):
    """How perplexities are computed. The keys of ``old_log_probs`` are for the engine ``model``."""

    engine: Literal["model", "server"] = "model"
    """``model``: the trainer's own forward pass; ``server``: vLLM's prompt log-probs."""
    seq_length: int = Field(gt=0)
    """Limit on the tokens of prompt and response together; engine ``model``: tokens per row."""
    over_length: Literal["error", "drop"] = "error"
    """Handling of a longer response: raise an error, or drop it."""
    encode_text: bool = False
    """Encode the responses' texts with the policy's tokenizer, instead of using their token ids:
    for responses of another model. The columns token_ids and n_tokens are then the policy's."""
    system: str | None = None
    """Text of the system turn; None for no system turn."""
    suffix: Suffix = ""
    """Text that is appended to the problem in the user's turn, or a text for each kind."""
    template: FileName | None = None
    """A jinja file that replaces the model's own chat template."""
    served_model: str = "policy"
    """The model's name on the server."""
    concurrency: Annotated[int, NOT_HASHED] = Field(16, gt=0)
    """Maximum requests in flight, over all servers together."""
    request_timeout: Annotated[float, NOT_HASHED] = Field(1800.0, gt=0)
    """Seconds to wait for an answer, including the time in the server's queue."""
    retries: Annotated[int, NOT_HASHED] = Field(3, ge=0)
    """How often a request is sent again after a temporary failure."""

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The policy's servers, with room for one token more, because they always generate one."""
        if self.engine != "server":
            return []
        model = (self.served_model, self.seq_length + 1, self.template)
        return [ServerNeeds("sampling", "policy", *model)]
