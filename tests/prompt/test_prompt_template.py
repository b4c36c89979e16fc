"""Rendering equals transformers', and the template says how turns begin and end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pack_helpers import CHATML, write_model

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.template import ChatTemplate, load_template, prompt_messages

MESSAGES = [
    {"role": "system", "content": "Think <first>."},
    {"role": "user", "content": "1 + 1 = 'ü'?"},
    {"role": "assistant", "content": "<think>x</think>2"},
    {"role": "user", "content": "sure?"},
]
BLOCKS = """{%- if tools %}
    never
{%- endif %}
{% for message in messages %}
    {% if loop.index0 == 3 %}
        {% break %}
    {% endif %}
    {{ message | tojson }}{{ bos_token }}
{% endfor %}
{% if add_generation_prompt %}
GO{{ eos_token }}
{% endif %}
"""


@pytest.mark.parametrize("template", [CHATML, BLOCKS])
@pytest.mark.parametrize("prompt", [True, False])
def test_equal_to_transformers(tmp_path: Path, template: str, prompt: bool) -> None:
    from transformers import AutoTokenizer

    folder = write_model(tmp_path / "model", template, bos_token="<|im_start|>")
    reference = AutoTokenizer.from_pretrained(str(folder))
    expected = reference.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=prompt)
    assert load_template(folder).render(MESSAGES, prompt) == expected
    assert "ü" in expected


def test_end_of_turn_is_the_templates_and_not_the_base_models_eos(tmp_path: Path) -> None:
    template = load_template(write_model(tmp_path / "model"))
    assert template.eos_token == "<|endoftext|>"
    assert template.end_of_turn == "<|im_end|>"
    bare = ChatTemplate("{{ messages[-1].content }}", {"eos_token": "</s>"})
    assert bare.end_of_turn == "</s>"


def test_where_a_template_comes_from(tmp_path: Path) -> None:
    named = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "the default"},
    ]
    folder = write_model(tmp_path / "model", chat_template=named)
    assert load_template(folder).source == "the default"
    (folder / "chat_template.jinja").write_text("beside")
    assert load_template(folder).source == "beside"
    (tmp_path / "given.jinja").write_text("given")
    assert load_template(folder, str(tmp_path / "given.jinja")).source == "given"


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", chat_template=None)
    with pytest.raises(StageError, match="no chat template"):
        load_template(folder)
    with pytest.raises(StageError, match="cannot be read"):
        load_template(folder, str(tmp_path / "absent.jinja"))
    (tmp_path / "bad.jinja").write_text("{% if %}")
    with pytest.raises(StageError, match="not valid jinja"):
        load_template(folder, str(tmp_path / "bad.jinja"))
    (folder / "tokenizer_config.json").write_text(json.dumps([1]))
    with pytest.raises(StageError, match="must be a JSON object"):
        load_template(folder)


def test_a_template_can_refuse_and_cannot_reach_out() -> None:
    with pytest.raises(StageError, match="roles user: only assistants"):
        ChatTemplate("{{ raise_exception('only assistants') }}").render(MESSAGES[1:2], True)
    escape = ChatTemplate("{{ ''.__class__.__mro__ }}")
    with pytest.raises(StageError, match="cannot render"):
        escape.render(MESSAGES[:1], True)


def test_prompt_messages() -> None:
    assert prompt_messages("1+1?", None, "") == [{"role": "user", "content": "1+1?"}]
    assert prompt_messages("1+1?", "Be brief.", " Box it.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1? Box it."},
    ]
