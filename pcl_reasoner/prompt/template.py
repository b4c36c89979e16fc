"""Chat templates: messages -> the prompt text for training, sampling and judging.

    [{"role": "user", "content": "1 + 1?"}]
    -> "<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n"

Sampling, training and evaluation share this implementation, so that their prompts cannot differ.
It renders as transformers' ``apply_chat_template`` does, without importing transformers.
``inference/dialogue.py`` calls it for sampling, ``pack/encoder.py`` for training. The stages
``sample``, ``tokenize`` and ``evaluate`` have three keys for prompts: ``template`` is a file that
replaces the model's template, ``system`` the system turn, ``suffix`` a text after the problem.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.model_files import read_json

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
_PROBE = "the-answer"
"""Placeholder content of an assistant's turn, for finding the text that ends the turn."""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template, ready to render.

    Args:
        source: The jinja text.
        special_tokens: Name -> text, as in tokenizer_config.json (``eos_token`` …).
    """

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)

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
            StageError: The template is not valid jinja, rejects the messages, or uses a variable
                or function that is not provided.
        """
        try:
            return _compile(self.source).render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.special_tokens,
            )
        except (TemplateError, TypeError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise StageError(
                f"the chat template cannot render messages of roles {roles}: {error}. "
                "Name another one with the stage's key `template`."
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
    config = read_json(config_file)
    own_file = model_folder / "chat_template.jinja"
    if template_file is not None:
        source = _read(Path(template_file))
    elif own_file.is_file():
        source = _read(own_file)
    else:
        source = _own_template(config.get("chat_template"), model_folder)
    _compile(source)
    return ChatTemplate(source, _special_tokens(config))


def _own_template(value: Any, model_folder: Path) -> str:
    """Return tokenizer_config.json's template: a text, or the item ``default`` of a list."""
    if isinstance(value, list):
        value = {item["name"]: item["template"] for item in value}.get("default")
    if isinstance(value, str):
        return value
    raise StageError(
        f"{model_folder}: no chat template in tokenizer_config.json and no chat_template.jinja. "
        "Name a jinja file with the stage's key `template`."
    )


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> text of special tokens, given as a text or as ``{"content": text, …}``."""
    values = {name: config.get(name) for name in _SPECIAL_TOKENS}
    texts = {name: v.get("content") if isinstance(v, dict) else v for name, v in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(
            f"{path}: cannot be read ({error}). A template is a UTF-8 jinja file."
        ) from error


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    # transformers sets trim_blocks and lstrip_blocks, and published templates rely on both.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise StageError(
            f"the chat template is not valid jinja: {error}. Correct it, or name another one with "
            "the stage's key `template`."
        ) from error


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # jinja's own filter escapes HTML characters, which must not reach the model.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)
