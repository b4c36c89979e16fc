"""Reads the log-probs of sampled tokens from a choice of a chat completion.

    {"token_ids": [27, 2], "finish_reason": "stop",
     "logprobs": {"content": [{"token": "<", "logprob": -0.4, …}, {"token": "", "logprob": -0.1}]}}
    -> [-0.4, -0.1]

vLLM computes them from the model's logits before temperature and truncation (``--logprobs-mode
raw_logprobs``, its default). At temperature 1 without truncation, the tokens were sampled from that
distribution.
"""

from collections.abc import Sequence

from pcl_reasoner.answers.chat import Choice
from pcl_reasoner.core.errors import StageError

_ABSENT = -9999.0
"""vLLM writes this number (0.32) if it has no log-prob of a token."""
_ROUNDING = 1e-3
"""A log-prob may be above 0 by this much."""
_ADVICE = (
    "Serve the policy with vLLM 0.32 or later, with its default --logprobs-mode, without "
    "--reasoning-parser, and with the model's own end tokens."
)


def log_probs_of(choice: Choice, token_ids: Sequence[int], url: str) -> list[float]:
    """Return the log-prob of every token of a response, its end token included.

    Args:
        choice: A choice of the server's answer.
        token_ids: The response's tokens. If the server ended the response with a token that is not
            an end token of the model, an end token was appended that nobody sampled; it has no
            log-prob, so such a response is refused.
        url: The server's base URL, for errors.

    Raises:
        StageError: The choice has no log-probs, another number of them, or other values.
    """
    if choice.token_ids is None:
        raise StageError(f"{url}: sends no token_ids, so log-probs have no tokens. {_ADVICE}")
    try:
        values = [entry["logprob"] for entry in choice.logprobs["content"]]
    except (LookupError, TypeError) as error:
        raise StageError(
            f"{url}: sends no log-probs of the sampled tokens, which the request asked for. "
            f"{_ADVICE}"
        ) from error
    if len(values) != len(token_ids):
        raise StageError(
            f"{url}: sends {len(values)} log-probs for a response of {len(token_ids)} tokens, its "
            f"end token included (finish_reason {choice.finish_reason}). {_ADVICE}"
        )
    for place, value in enumerate(values):
        if type(value) not in (float, int) or not _ABSENT < value <= _ROUNDING:
            raise StageError(
                f"{url}: the log-prob of token {place} of a response is {value!r}, which is no "
                f"log-prob. {_ADVICE}"
            )
    return [float(value) for value in values]
