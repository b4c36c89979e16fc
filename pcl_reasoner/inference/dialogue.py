"""Renders a problem as a prompt, and decodes a model's tokens into the response's text.

Problem("5c18d5f0a1b2c3d4", "Tom has 3 apples …")
-> Prompt("5c18d5f0a1b2c3d4", [{"role": "user", "content": "Tom has 3 apples …"}], [1, 17, …])
"""

import copy
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import suffix_of
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.prompt.model_files import open_tokenizer, read_json
from pcl_reasoner.prompt.template import ChatTemplate, load_template, prompt_messages
from pcl_reasoner.prompt.trained import check_prompt
from pcl_reasoner.weights.model_config import end_tokens

_THINK = "<think>"


@dataclass(frozen=True)
class Problem:
    """A problem to answer; the key of a response is the problem's ``id`` and the sample index."""

    id: str
    text: str
    expected_tokens: float | None = None
    """Expected tokens per response, if known; problems with long responses are sent first."""
    kind: str = "math"
    """Its kind, which may decide the text after the problem."""


@dataclass(frozen=True)
class Prompt:
    """A problem's prompt, as messages (for a server) and as token ids."""

    problem_id: str
    messages: list[dict[str, str]]
    ids: list[int]
    expected_tokens: float | None = None


class Dialogue:
    """Renders prompts and decodes responses with a model folder's tokenizer and chat template.

    Args:
        folder: A Hugging Face model folder.
        settings: Uses ``system``, ``suffix``, ``template`` and ``max_new_tokens``.

    Raises:
        StageError: The folder has no tokenizer, template or end token, or the model was trained
            with another prompt.
    """

    def __init__(self, folder: Path, settings: SamplingConfig) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise StageError(
                f"{path}: does not exist. The role policy (model) needs a Hugging Face folder."
            )
        check_prompt(folder, settings.system, settings.suffix, settings.template)
        self._tokenizer = open_tokenizer(path)
        self.folder, self.settings = folder, settings
        self.template: ChatTemplate = load_template(folder, settings.template)
        self.ends = end_tokens(folder)
        self.end_of_turn: int | None = self._tokenizer.token_to_id(self.template.end_of_turn)
        self._opened = _opened_by(self.template)
        rows = read_json(folder / "config.json").get("vocab_size")
        tokens = self._tokenizer.get_vocab_size(with_added_tokens=True)
        last = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if isinstance(rows, int) and last >= rows:
            raise StageError(
                f"{path}: has the token id {last}, and the embedding has vocab_size {rows} rows in "
                f"{folder / 'config.json'}. The two files belong to different models: fetch the "
                "model again."
            )
        self.vocab_size = max(tokens, rows) if isinstance(rows, int) else tokens
        """Number of token ids: rows of the model's embedding, or tokens of the tokenizer."""

    def with_settings(self, settings: SamplingConfig) -> "Dialogue":
        """Return a dialogue with other sampling fields and the same prompts.

        Args:
            settings: Its ``system``, ``suffix`` and ``template`` must be those of this dialogue.
        """
        ours, theirs = ((one.system, one.suffix, one.template) for one in (self.settings, settings))
        if ours != theirs:
            raise ValueError(f"the prompts would differ: {theirs}, expected {ours}")
        other = copy.copy(self)
        other.settings = settings
        return other

    def prompt(self, problem: Problem) -> Prompt:
        """Render one problem, ending with the generation prompt."""
        suffix = suffix_of(self.settings.suffix, problem.kind)
        messages = prompt_messages(problem.text, self.settings.system, suffix)
        text = self.template.render(messages, add_generation_prompt=True)
        return Prompt(problem.id, messages, self.encode(text), problem.expected_tokens)

    def encode(self, text: str) -> list[int]:
        """Return a text's token ids; the text has all special tokens, so none is added."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def response(self, token_ids: list[int], finish_reason: str) -> str:
        """Return the text of sampled ids, without the end token at which sampling stopped.

        Some templates end with ``<think>`` (DeepSeek-R1). Then the text starts with it, as the
        text of a model that writes the tag itself; the ids are those that were sampled.
        """
        ended = finish_reason == "stop" and token_ids and token_ids[-1] in self.end_ids
        text = self.decode(token_ids[:-1] if ended else token_ids)
        return text if not text or text.lstrip().startswith(_THINK) else self._opened + text

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of token ids, including special tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    @property
    def end_ids(self) -> list[int]:
        """Ids that end a response: the template's end-of-turn id, then the model folder's ids."""
        return self.ends if self.end_of_turn is None else [self.end_of_turn, *self.ends]

    @property
    def pad_id(self) -> int:
        """The token that fills rows of training: the template's padding token, or an end token."""
        template = self.template
        text = template.special_tokens.get("pad_token") or template.eos_token
        found: int | None = self._tokenizer.token_to_id(text or template.end_of_turn)
        return self.ends[0] if found is None else found

    def response_limit(self, prompt: Prompt, context: int) -> int:
        """Return the maximum number of response tokens; below 1 if the prompt is too long.

        Args:
            prompt: The prompt.
            context: Maximum length of prompt and response together, in tokens.
        """
        left = context - len(prompt.ids)
        limit = self.settings.max_new_tokens
        return left if limit is None else min(left, limit)


def _opened_by(template: ChatTemplate) -> str:
    """Return what a template writes from ``<think>`` on before the response; "" if nothing."""
    prompt = template.render([{"role": "user", "content": "?"}], add_generation_prompt=True)
    before, tag, after = prompt.rpartition(_THINK)
    return tag + after if tag and not after.strip() else ""
