"""The reward model whose scores are known by hand, and a stand-in for its server."""

from __future__ import annotations

from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from completion_server import CompletionServer, send
from servers import serving
from tokenizers import Tokenizer

from pcl_reasoner.synthetic.reward_model import COURTEOUS, OFFSET, SLOPE, write_reward_model

TEXTS = ["Greet Ben.", "Good day, Ben, and how are you?", "1 + 1 is 2. Say it to Mia."] * 4


def write(folder: Path) -> Path:
    write_reward_model(folder, TEXTS)
    return folder


def conversation(problem: str, answer: str) -> str:
    """What the model reads, as its chat template writes it."""
    turns = [("user", problem), ("assistant", answer)]
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


@lru_cache
def _tokenizer(folder: Path) -> Any:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def expected_score(folder: Path, problem: str, answer: str) -> float:
    """The score by counting words: no weights are read.

    RMSNorm sees a last hidden state of (1000, 0, share), so it divides by a number that is
    sqrt(1 + share² / 1000²) times larger than that by which the weights multiply.
    """
    tokens = (
        _tokenizer(folder).encode(conversation(problem, answer), add_special_tokens=False).tokens
    )
    courteous = sum(token.removeprefix("Ġ").lower() in COURTEOUS for token in tokens)
    share = courteous / len(tokens)
    return (SLOPE * share + OFFSET) / (1 + share**2 / 1000**2) ** 0.5


class ScoreServer(CompletionServer):
    """A pooling server, as vLLM has it: the score of an answer is the number that it ends with.

    ``scores`` replaces a text's scores, ``named`` the model's name in answers.
    """

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.models = [{"id": "reward", "max_model_len": 512}]
        self.scores: dict[str, list[float]] = {}
        self.named = "reward"

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        return classified(body, self.scores, self.named)

    def asked_about(self) -> list[str]:
        """The answers that were to be scored, without those of the trial."""
        # A request that the client cut off has no messages.
        bodies = [body for body in self.asked if "messages" in body]
        texts = [body["messages"][-1]["content"] for body in bodies]
        return [text for text in texts if text != TRIAL]


TRIAL = "2"
"""The answer of the short conversation with which a server is tried."""


def classified(
    body: dict[str, Any], scores: dict[str, list[float]] | None = None, named: str = "reward"
) -> dict[str, Any]:
    """The JSON that vLLM 0.32 answers at /classify."""
    assert body["use_activation"] is False and body["add_generation_prompt"] is False
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"]
    text = body["messages"][-1]["content"]
    found = (scores or {}).get(text) or [float(text.split()[-1])]
    item = {"index": 0, "label": "reward", "probs": found, "num_classes": len(found)}
    return {"id": "classify-1", "object": "list", "model": named, "data": [item]}


def too_long(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """Refuse as vLLM 0.32 does."""
    message = "This model's maximum context length is 512 tokens. However, your prompt contains …"
    error = {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}
    send(handler, 400, {"error": error})
    return True


def not_json(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """What vLLM 0.32 says if a score is NaN."""
    message = "Out of range float values are not JSON compliant"
    send(handler, 400, {"error": {"message": message, "type": "BadRequestError", "param": None}})
    return True


def scoring(folder: Path, how: str = "", slow: float = 0.0, **keys: Any) -> dict[str, Any]:
    """A launch file's placement whose ``scoring`` starts a stand-in for vLLM's pooling server."""
    return serving(folder, how, slow, "scoring", "stand_in_pooling.py", **keys)
