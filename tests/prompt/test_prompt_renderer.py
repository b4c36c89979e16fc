"""The process that renders: its texts are jinja's own, and no template outlives its limits."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pcl_reasoner.prompt import renderer
from pcl_reasoner.prompt.renderer import TemplateFailure, render
from pcl_reasoner.synthetic.base_model import CHAT_TEMPLATE

TEXTS = ["1 + 1?", "<b> & 'ü' \"求解\"\r\n\t\u2028\x00", "lone \ud800 surrogate", "👩‍🏫"]
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(renderer, "SECONDS", 0.5)
    renderer._renderer.close()
    yield
    renderer._renderer.close()


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_that_of_jinja_in_this_process(text: str) -> None:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    variables: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "add_generation_prompt": True,
        "tools": None,
    }
    expected = environment.from_string(CHAT_TEMPLATE).render(**variables)
    assert text in expected
    assert render(CHAT_TEMPLATE, variables) == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (LOOP, r"more than 0\.5 seconds"),
        ("{{ (9 ** 99999999) | string }}", r"more than 0\.5 seconds"),
        ("{{ 'a' * 10 ** 10 }}", "too much memory"),
        ("{{ 'a'.center(10 ** 10) }}", "too much memory"),
        ("{{ '%09999999999d' % 1 }}", "too much memory"),
        ("{% set a = 'a' %}{{ a * 2 ** 26 }}", "over 33554432 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ range(10 ** 9) }}", "OverflowError"),
        ("{{ 1 | round(precision='x') }}", "TypeError"),
    ],
)
def test_a_limit_ends_the_template_and_not_the_next_one(
    template: str, why: str, short_limit: None
) -> None:
    with pytest.raises(TemplateFailure, match=why):
        render(template, {})
    assert render("{{ a }}", {"a": 1}) == "1"


def test_a_killed_process_is_replaced() -> None:
    render("x", {})
    process = renderer._renderer._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert render("y", {}) == "y"


def test_threads_get_their_own_answers() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: render("{{ a }}", {"a": number}), range(200)))
    assert found == [str(number) for number in range(200)]


def _in_child(queue: Any) -> None:
    queue.put(render("{{ a }}", {"a": "child"}))


def test_a_forked_process_starts_its_own() -> None:
    assert render("{{ a }}", {"a": "parent"}) == "parent"
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == "child"
    child.join(60)
    assert render("{{ a }}", {"a": "parent"}) == "parent"
