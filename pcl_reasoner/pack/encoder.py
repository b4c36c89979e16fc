"""Converts records to samples, and encodes samples with a model's tokenizer and chat template.

{"problem": "1 + 1?", "cot": "<think>…"} -> Sample([{"role": "user", …}], "1 + 1?", "<think>…")
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.kinds import Suffix, suffix_of
from pcl_reasoner.prompt.model_files import open_tokenizer
from pcl_reasoner.prompt.template import (
    ChatTemplate,
    load_template,
    prompt_messages,
    read_template,
)
from pcl_reasoner.prompt.vocabulary import read_vocabulary

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


@dataclass(frozen=True)
class Sample:
    """One prompt and its response, before they are encoded.

    Args:
        messages: The turns of the prompt.
        problem: The problem's text without template and suffix; the problem id is computed from it.
        response: The response's text.
        token_ids: The response's token ids as sampled; None to encode its text.
        finished: False if the response was cut off; then no end of turn is added.
    """

    messages: list[dict[str, str]]
    problem: str
    response: str
    token_ids: list[int] | None = None
    finished: bool = True


@dataclass(frozen=True)
class Encoder:
    """Encodes samples into the token ids of one model.

    Args:
        tokenizer: The model's tokenizer.
        template: The model's chat template, or its replacement.
        system: Text of the system turn; None for no system turn.
        suffix: Text that is appended to every problem, or a text for each kind of problem.
        think_newline: True to add V1's newline after ``<think>`` and before ``</answer>``.
    """

    PROMPT_KEYS: ClassVar = ("system", "suffix", "template", "think_newline")
    """Names of all arguments of load_encoder except ``model``."""

    tokenizer: Tokenizer
    template: ChatTemplate
    system: str | None = None
    suffix: Suffix = ""
    think_newline: bool = False

    @cached_property
    def identity(self) -> str:
        """A fingerprint of everything that affects the tokens."""
        template = [self.template.source, self.template.special_tokens]
        prompt = [self.system, self.suffix, self.think_newline]
        return fingerprint([self.tokenizer.to_str(), template, prompt])

    @cached_property
    def end_of_turn(self) -> list[int]:
        """Token ids that end an assistant's turn."""
        return self.ids(self.template.end_of_turn)

    def ids(self, text: str) -> list[int]:
        """Encode a text, with no special tokens added before or after it."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Encode a prompt, including the tokens that begin the assistant's turn."""
        return self.ids(self.template.render(messages, add_generation_prompt=True))

    def response_ids(self, sample: Sample) -> list[int]:
        """Return the response's sampled token ids if it has them; otherwise encode its text."""
        if sample.token_ids:
            return sample.token_ids
        if not sample.response:
            return []
        text = with_newlines(sample.response) if self.think_newline else sample.response
        return self.ids(text) + (self.end_of_turn if sample.finished else [])


def load_encoder(
    model: Path | str | Mapping[str, str],
    system: str | None = None,
    suffix: Suffix = "",
    template: str | None = None,
    think_newline: bool = False,
) -> Encoder:
    """Load the encoder of a model: its tokenizer and its chat template.

    Args:
        model: Folder with tokenizer.json and tokenizer_config.json, or a mapping with the paths
            ``vocab_file`` and ``merges_file``.
        system: See Encoder.
        suffix: See Encoder.
        template: A jinja file that replaces the model's own template.
        think_newline: See Encoder.

    Raises:
        InputError: The mapping does not name both files.
    """
    if isinstance(model, Mapping):
        tokenizer, chat = _from_vocabulary(model, template)
    else:
        tokenizer = open_tokenizer(Path(model) / "tokenizer.json")
        chat = load_template(Path(model), template)
    return Encoder(tokenizer, chat, system, suffix, think_newline)


def _from_vocabulary(
    files: Mapping[str, str], template: str | None
) -> tuple[Tokenizer, ChatTemplate]:
    """Load a vocabulary; without a tokenizer_config.json beside it, ``template`` is required."""
    if not (files.get("vocab_file") and files.get("merges_file")):
        raise InputError(
            "tokenizer must be a model's folder, or have vocab_file and "
            f"merges_file; got {', '.join(files) or 'nothing'}."
        )
    vocab_file = Path(files["vocab_file"])
    tokenizer = read_vocabulary(vocab_file, Path(files["merges_file"]))
    if template is None or (vocab_file.parent / "tokenizer_config.json").is_file():
        return tokenizer, load_template(vocab_file.parent, template)
    special = {key: text for key, text in files.items() if key.endswith("_token")}
    return tokenizer, ChatTemplate(read_template(Path(template)), special, template)


def with_newlines(response: str) -> str:
    """Add V1's newlines: after the first ``<think>`` and before the last ``</answer>``.

    Source: PCL-Reasoner-V1's length filter.
    """
    before, opened, rest = response.partition("<think>")
    if opened and not rest.startswith("\n"):
        response = f"{before}<think>\n{rest}"
    body, closed, after = response.rpartition("</answer>")
    if closed and not body.endswith("\n"):
        response = f"{body}\n</answer>{after}"
    return response


def sample_of(record: Mapping[str, Any], system: str | None, suffix: Suffix) -> Sample:
    """Convert a record of PCL-Reasoner-V1's or V1.5's data to a Sample.

    Args:
        record: A mapping with the key ``conversations`` ([{from, value}, …]), or with ``problem``
            or ``prompt``, and ``response`` or ``cot``. If the response was sampled, the record
            also has ``token_ids`` and ``finish_reason``. It may have its problem's ``kind``.
        system: Text of the system turn for a record without one; None for no system turn.
        suffix: Text that is appended to the prompt's last turn, or a text for each kind.

    Raises:
        ValueError: The record has no prompt or no response. The message is the reason under which
            it is counted as dropped, e.g. ``malformed_no_problem``.
    """
    after = suffix_of(suffix, record.get("kind"))
    if record.get("conversations") is not None:
        return _sample_of_conversation(record["conversations"], system, after)
    problem = record.get("problem") or record.get("prompt")
    if not isinstance(problem, str) or not problem:
        raise ValueError("malformed_no_problem")
    response = record.get("response", record.get("cot"))
    sampled = "finish_reason" in record
    if not sampled and not (isinstance(response, str) and response):
        raise ValueError("malformed_no_response")
    messages = prompt_messages(problem, system, after)
    finished = record.get("finish_reason", "stop") == "stop"
    return Sample(messages, problem, response or "", record.get("token_ids") or None, finished)


def _sample_of_conversation(turns: Any, system: str | None, suffix: str) -> Sample:
    """Convert a conversation: the last turn is the response, all turns before are the prompt."""
    try:
        pairs = [(turn["from"], turn["value"]) for turn in turns]
        messages = [{"role": _ROLES.get(who, who), "content": str(text)} for who, text in pairs]
        *prompt, last = messages
        question = next(turn for turn in prompt if turn["role"] == "user")
    except (TypeError, KeyError, ValueError, StopIteration) as error:
        raise ValueError("malformed_conversation") from error
    if last["role"] != "assistant" or not last["content"]:
        raise ValueError("malformed_no_response")
    problem = question["content"]
    prompt[-1]["content"] += suffix
    if system is not None and prompt[0]["role"] != "system":
        prompt.insert(0, {"role": "system", "content": system})
    return Sample(prompt, problem, last["content"])
