from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from completion_server import CompletionServer
from sample_helpers import PROBLEMS, context

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.dialogue import Dialogue, Problem
from pcl_reasoner.pack.encoder import load_encoder, sample_of
from pcl_reasoner.prompt.template import prompt_messages
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(
    engine="server", n=2, max_new_tokens=40, max_model_len=200, system="Think.", suffix=" Box it."
)


@pytest.fixture
def server() -> Iterator[CompletionServer]:
    one = CompletionServer()
    one.pages["/version"] = lambda: {"version": "0.32.0"}
    yield one
    one.stop()


def run(inputs: dict[str, Path], output: Path, server: CompletionServer) -> Any:
    made = context(output, server_urls=[server.url])
    counts = sample(CONFIG, inputs, output, made)
    compared = counts.info["servers"][0]["template_compared"]
    assert compared == (not any("has no /tokenize" in warning for warning in made.warnings))
    return compared


def test_what_is_asked_is_what_training_reads(inputs: dict[str, Path]) -> None:
    encoder = load_encoder(inputs["policy"], CONFIG.system, CONFIG.suffix)
    dialogue = Dialogue(inputs["policy"], CONFIG)
    for text in PROBLEMS:
        prompt = dialogue.prompt(Problem("x", text))
        messages = prompt_messages(text, CONFIG.system, CONFIG.suffix)
        assert prompt.messages == messages
        assert prompt.ids == encoder.prompt_ids(messages)
        record = {"problem": text, "response": "8"}
        packed = sample_of(record, CONFIG.system, CONFIG.suffix)
        assert encoder.prompt_ids(packed.messages) == prompt.ids


def test_a_server_that_reads_our_tokens_is_asked(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    encoder = load_encoder(inputs["policy"])
    server.tokenize = encoder.prompt_ids
    assert run(inputs, tmp_path, server) is True
    assert len(server.asked) == 3


def test_a_server_that_reads_others_is_not_asked_and_the_first_difference_is_shown(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    encoder = load_encoder(inputs["policy"])
    # Another template: no system turn.
    server.tokenize = lambda messages: encoder.prompt_ids(messages[1:])
    with pytest.raises(StageError) as raised:
        run(inputs, tmp_path, server)
    assert not server.asked
    message = str(raised.value)
    # Both begin with <|im_start|>; then "system" and "user" are not spelled alike.
    shown = re.search(r"from token (\d+) on", message)
    assert shown is not None
    place = int(shown[1])
    texts = [f"{text} Box it." for text in PROBLEMS]
    shortest = min(texts, key=lambda text: len(encoder.ids(text)))
    with_system = [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": shortest},
    ]
    ours, theirs = encoder.prompt_ids(with_system), encoder.prompt_ids(with_system[1:])
    assert ours[:place] == theirs[:place]
    assert ours[place] != theirs[place]
    assert f"got {len(theirs)} tokens, expected {len(ours)}" in message
    assert "system" in message.split("expected:")[1].splitlines()[0]
    assert "system" not in message.split("got:")[1].splitlines()[0]
    assert "--chat-template" in message


def test_a_server_without_tokenize_is_asked_and_that_is_said(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    assert run(inputs, tmp_path, server) is False
    (served,) = json.loads((tmp_path / "sampling.json").read_text())["responses"]["servers"]
    assert served["template_compared"] is False


def test_every_answers_prompt_is_compared_too(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    encoder = load_encoder(inputs["policy"])
    plain, ids = server.completion, encoder.prompt_ids
    server.completion = (
        lambda body: {  # type: ignore[method-assign]
            **plain(body),
            "prompt_token_ids": [*ids(body["messages"])[:-1], 5],
        }
    )
    with pytest.raises(StageError, match="tokenizes a prompt differently from this stage"):
        run(inputs, tmp_path, server)
    assert '"sample_index"' not in (tmp_path / "responses.partial.jsonl").read_text()
