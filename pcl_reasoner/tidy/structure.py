"""Checks that a response is complete: it ended, and it has its think and answer parts.

<think>2 + 3 = 5</think><answer>\\\\boxed{5}</answer>   None: complete
<think>2 + 3 = 5</think>                             missing_tag
"""

import re
from typing import Literal

from pcl_reasoner.tidy.config import Tags

Problem = Literal[
    "no_tokens",
    "not_stopped",
    "special_token",
    "missing_tag",
    "repeated_tag",
    "out_of_place",
    "empty_think",
    "empty_answer",
]
"""Why a response is incomplete. ``no_tokens``: it is empty. ``not_stopped``: sampling did not end
with an end token. ``special_token``: its text has a token like <|im_start|>. ``out_of_place``: its
tags are in another order, or there is text before, between or after the parts."""

_THINK, _ANSWER = ("<think>", "</think>"), ("<answer>", "</answer>")
_FORMS: dict[Tags, tuple[tuple[str, ...], re.Pattern[str]]] = {
    "think_answer": (
        (*_THINK, *_ANSWER),
        re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL),
    ),
    "think_only": (_THINK, re.compile(r"\s*<think>(.*)</think>(.*)", re.DOTALL)),
}
_SPECIAL = re.compile(r"<([|｜])[\w▁]{1,64}\1>")
"""Special tokens by their form, e.g. Qwen's <|im_end|> and DeepSeek's <｜User｜>: those of the
model that wrote the response may differ from the policy's."""


def structure_problem(text: str, finish_reason: str | None, tags: Tags) -> Problem | None:
    """Return the first reason for which a response is incomplete; None if it is complete.

    Args:
        text: The response, think part included, without its end token.
        finish_reason: Why sampling ended; only ``stop`` is a complete response.
        tags: The parts that it must have. White space around the parts is allowed.
    """
    if finish_reason != "stop":
        return "not_stopped"
    if _SPECIAL.search(text):
        return "special_token"
    wanted, form = _FORMS[tags]
    counts = [text.count(tag) for tag in wanted]
    if 0 in counts:
        return "missing_tag"
    if max(counts) > 1:
        return "repeated_tag"
    parts = form.fullmatch(text)
    if parts is None:
        return "out_of_place"
    think, answer = parts.groups()
    if not think.strip():
        return "empty_think"
    return None if answer.strip() else "empty_answer"
