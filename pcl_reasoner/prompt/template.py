"""Chat templates: messages -> the prompt text for training, sampling and judging.

    [{"role": "user", "content": "1 + 1?"}]
    -> "<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n"

Sampling, training and evaluation share this implementation, so that their prompts cannot differ.
It renders as transformers' ``apply_chat_template`` does, without importing transformers.
``inference/dialogue.py`` calls it for sampling, ``pack/encoder.py`` for training. The stages
``sample``, ``tokenize`` and ``evaluate`` have three keys for prompts: ``template`` is a file that
replaces the model's template, ``system`` the system turn, ``suffix`` a text after the problem.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt import renderer
from pcl_reasoner.prompt.model_files import read_json, refuse_code

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
_PROBE = "the-answer"
"""Placeholder content of an assistant's turn, for finding the text that ends the turn."""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template, ready to render.

    Args:
        source: The jinja text.
        special_tokens: Name -> text, as in tokenizer_config.json (``eos_token`` …).
        where: Its file, for errors.
    """

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    where: str = "the recipe"

    @property
    def eos_token(self) -> str:
        """The end-of-sequence token's text; empty when the tokenizer has none."""
        return self.special_tokens.get("eos_token", "")

    @property
    def end_of_turn(self) -> str:
        """The text that ends an assistant's turn, e.g. ``<|im_end|>``.

        The template writes this text after the turn's content. The ``eos_token``, which is often
        another token in a base model, is returned only if the template writes nothing there.
        """
        user = {"role": "user", "content": "?"}
        turn = {"role": "assistant", "content": _PROBE}
        _, _, after = self.render([user, turn], add_generation_prompt=False).rpartition(_PROBE)
        return after.strip() or self.eos_token

    def render(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        """Render messages to text.

        Args:
            messages: Each is ``{"role": system, user or assistant, "content": text}``.
            add_generation_prompt: True to end with the start of an assistant's turn.

        Raises:
            StageError: The template is not valid jinja, rejects the messages, raises an error, or
                exceeds a limit of ``renderer.py``.
        """
        variables = {
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self.special_tokens,
        }
        try:
            return renderer.render(self.source, variables)
        except renderer.TemplateFailure as error:
            roles = ", ".join(message["role"] for message in messages)
            raise StageError(
                f"{self.where}: the chat template cannot render messages of roles {roles}: "
                f"{error}. Name another one with the stage's key `template`."
            ) from error


def prompt_messages(problem: str, system: str | None, suffix: str) -> list[dict[str, str]]:
    """Build the messages of a prompt: the system turn if there is one, then the user's turn.

    Args:
        problem: The problem's text.
        system: The system turn's text; None for no system turn.
        suffix: Appended to the problem without a separator.
    """
    messages = [{"role": "user", "content": problem + suffix}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def load_template(model_folder: Path, template_file: str | None = None) -> ChatTemplate:
    """Read a model folder's chat template and special tokens.

    Args:
        model_folder: Folder with tokenizer_config.json. The template is in chat_template.jinja or
            under ``chat_template`` in tokenizer_config.json. chat_template.jinja takes precedence,
            as in transformers.
        template_file: A jinja file to use instead of the model's own template.

    Raises:
        StageError: There is no template, it is not valid jinja, or a file cannot be read.
    """
    config_file = model_folder / "tokenizer_config.json"
    if not config_file.is_file():
        raise StageError(f"{config_file}: does not exist, but a model folder needs it.")
    refuse_code(model_folder)
    config = read_json(config_file)
    own_file = model_folder / "chat_template.jinja"
    file = config_file
    if template_file is not None:
        file = Path(template_file)
        source = read_template(file)
    elif own_file.is_file():
        file, source = own_file, read_template(own_file)
    else:
        source = _own_template(config.get("chat_template"), model_folder)
    try:
        renderer.render(source, None)
    except renderer.TemplateFailure as error:
        raise StageError(
            f"{file}: the chat template is not valid jinja: {error}. Correct it, or name another "
            "one with the stage's key `template`."
        ) from error
    return ChatTemplate(source, _special_tokens(config, config_file), str(file))


def _own_template(value: Any, model_folder: Path) -> str:
    """Return tokenizer_config.json's template: a text, or the item ``default`` of a list."""
    if isinstance(value, list):
        named = [item for item in value if isinstance(item, dict)]
        value = next((one.get("template") for one in named if one.get("name") == "default"), None)
    if isinstance(value, str):
        return value
    raise StageError(
        f"{model_folder}: no chat template in tokenizer_config.json and no chat_template.jinja. "
        "Name a jinja file with the stage's key `template`."
    )


def _special_tokens(config: Mapping[str, Any], file: Path) -> dict[str, str]:
    """Return name -> text of special tokens, given as a text or as ``{"content": text, …}``."""
    found = {}
    for name in _SPECIAL_TOKENS:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
        elif value is not None:
            raise StageError(
                f"{file}: {name} is {str(value)[:60]!r}, expected a text or an object with the "
                "text `content`. Fetch the model again."
            )
    return found


def read_template(path: Path) -> str:
    """Read a template's file.

    Raises:
        StageError: The file cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(
            f"{path}: cannot be read ({error}). A template is a UTF-8 jinja file."
        ) from error
