"""Settings of the stage ``prove``, and the largest differences that it accepts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds
from pcl_reasoner.perplexity.old_log_probs_stage import OldLogProbsConfig
from pcl_reasoner.recheck.limits import Limits

Dtype = Literal["float32", "bfloat16", "float16"]


LIMITS: dict[Dtype, Limits] = {
    "float32": Limits(mean=1e-4, p99=1e-3, largest=1e-2),
    "float16": Limits(mean=0.01, p99=0.1, largest=0.5),
    "bfloat16": Limits(mean=0.06, p99=0.4, largest=2.0),
}
"""Data type of the server or of our pass, whichever is coarser -> limits. They are our own choice.

bfloat16: between sound pairs of engines, whose root mean square is 0.031 to 0.041 (Qwen2.5-0.5B,
vLLM against two trainers: ServiceNow/Fast-LLM pull request 525) with single tokens up to 0.32
(Qwen3-1.7B, vLLM against transformers: vllm-project/vllm issue 18352), and an export with wrong
heads, whose mean was 0.075 to 0.178 (Qwen3-4B on Ascend 910B: vllm-project/vime issue 274).
float16 has 3 bits more than bfloat16, so rounding is 8 times as fine. float32: our measurements on
a CPU (docs/walk/proof.md). On a GPU the same pull request measured 0.0022: raise the limits there.
"""


class ProveConfig(OldLogProbsConfig):
    """Which responses are compared, and how. The other keys are those of ``old_log_probs``."""

    engine: Literal["local", "server"] = "server"
    """``server``: the policy's vLLM servers; ``local``: the local sampler."""
    seq_length: int = Field(2048, gt=0)
    """Tokens per row; of a longer prompt and response, the first tokens are compared."""
    segments: int = Field(8, gt=0)
    """Number of stored prompts and responses that are compared, of all lengths."""
    server_dtype: Dtype | None = None
    """Data type in which the servers compute; None: the same as ``precision``."""
    limits: Limits | None = None
    """Largest differences; None: those of the coarser data type."""
    suspects: bool = True
    """Look for the cause of a difference: apply each suspect to our pass and compare again."""
    template: FileName | None = None
    """A jinja file with which the servers replace the weights' own chat template."""
    served_model: str = "policy"
    """The model's name on the server."""
    max_model_len: int | None = Field(None, gt=0)
    """Context of servers that the stage starts; None: ``seq_length`` + 1. Give that of the stages
    that follow, so that what is proved is what they start."""
    concurrency: Annotated[int, NOT_HASHED] = Field(4, gt=0)
    """Maximum requests in flight, per server."""
    request_timeout: Annotated[float, NOT_HASHED] = Field(1800.0, gt=0)
    """Seconds to wait for an answer."""
    retries: Annotated[int, NOT_HASHED] = Field(3, ge=0)
    """How often a request is sent again after a temporary failure."""

    @property
    def context_tokens(self) -> int:
        """Context that servers must have: vLLM always generates one token more."""
        return max(self.seq_length + 1, self.max_model_len or 0)

    def accepted(self) -> Limits:
        """Return the limits that hold."""
        used = {self.precision, self.server_dtype or self.precision}
        if self.engine == "local":
            used = {self.precision}
        coarser = next(name for name in ("bfloat16", "float16", "float32") if name in used)
        return self.limits or LIMITS[coarser]

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The policy's servers, with the exported weights."""
        if self.engine != "server":
            return []
        return [
            ServerNeeds("sampling", "model", self.served_model, self.context_tokens, self.template)
        ]
