"""Checks that a server tokenizes prompts exactly as this package does for training.

    POST {root}/tokenize {"model": "policy", "messages": [{"role": "user", "content": "1 + 1?"}]}
    -> {"count": 24, "tokens": [1, 414, 287, …]}

With another template or tokenizer, the server would answer other prompts than training uses. Only
worse scores would show it.
"""

from collections.abc import Sequence

import httpx

from pcl_reasoner.answers.pages import Tokens, read_page
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.fleet import Fleet
from pcl_reasoner.inference.fleet_server import Server

PROMPTS_COMPARED = 8
"""Prompts compared before sampling starts: the shortest, the longest and some in between.

During sampling, the prompt tokens of every answer with ``prompt_token_ids`` are compared, too."""
_SHOWN = 8
"""Tokens shown before and after the first difference."""


async def compare_templates(
    fleet: Fleet, server: Server, prompts: Sequence[Prompt], dialogue: Dialogue
) -> bool:
    """Compare a server's tokens with ours, for up to PROMPTS_COMPARED of the prompts.

    Returns:
        True if all are equal; False if the server has no /tokenize.

    Raises:
        StageError: The tokens differ. The message shows the first difference.
    """
    by_length = sorted(prompts, key=lambda prompt: len(prompt.ids))
    last = len(by_length) - 1
    indices = {round(last * i / max(PROMPTS_COMPARED - 1, 1)) for i in range(PROMPTS_COMPARED)}
    for prompt in (by_length[index] for index in sorted(indices)):
        served = await _tokens(fleet, server, prompt)
        if served is None:
            return False
        compare(prompt, served, dialogue, server.url)
    return True


async def _tokens(fleet: Fleet, server: Server, prompt: Prompt) -> list[int] | None:
    body = {
        "model": fleet.settings.served_model,
        "messages": prompt.messages,
        "add_generation_prompt": True,
    }
    try:
        page = await read_page(fleet.http, "POST", f"{server.root}/tokenize", Tokens, json=body)
    except httpx.TransportError:
        return None
    return page.tokens if page else None


def compare(prompt: Prompt, served: list[int], dialogue: Dialogue, url: str) -> None:
    """Check that a server's tokens of a prompt (``served``) are equal to ours.

    Raises:
        StageError: The tokens differ. The message shows the first difference.
    """
    ours = prompt.ids
    if served == ours:
        return
    pairs = zip(ours, served, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(served)))
    shown = slice(max(same - _SHOWN, 0), same + _SHOWN)
    raise StageError(
        f"{url}: tokenizes a prompt differently from this stage, from token {same} on (problem "
        f"{prompt.problem_id}: got {len(served)} tokens, expected {len(ours)}).\n"
        f"  expected: {ours[shown]} {dialogue.decode(ours[shown])!r}\n"
        f"  got:      {served[shown]} {dialogue.decode(served[shown])!r}\n"
        "Start the server with this model's tokenizer, and with --chat-template FILE if the "
        "stage's key template names a file."
    )
