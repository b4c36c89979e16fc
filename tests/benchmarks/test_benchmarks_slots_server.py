"""benchmarks/slots_server.py: lengths are those of the seeds, and empty places are counted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PLAN = {"1 + 1?": {"ids": [1, 414, 287], "tokens": 90}, "7 + 1?": {"ids": [1, 2], "tokens": 8}}


@pytest.fixture(scope="module")
def slots() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "slots_server.py"
    spec = importlib.util.spec_from_file_location("slots_server", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def body(text: str, n: int, seed: int, most: int = 4096) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": text}]
    return {"messages": messages, "n": n, "seed": seed, "max_tokens": most}


def test_a_response_has_the_length_of_its_seed_however_it_is_asked_for(slots: ModuleType) -> None:
    answers = slots.Answers(PLAN, 0.3)
    together = answers.lengths(body("1 + 1?", 8, 40))
    assert together == [answers.lengths(body("1 + 1?", 1, 40 + i))[0] for i in range(8)]
    assert len(set(together)) > 4
    assert answers.lengths(body("1 + 1?", 8, 40, most=85)) == [min(n, 85) for n in together]
    assert slots.Answers(PLAN, 0.0).lengths(body("7 + 1?", 3, 1)) == [8, 8, 8]


def test_an_answer_has_ids_text_and_counts_of_its_length(slots: ModuleType) -> None:
    answers = slots.Answers(PLAN, 0.0)
    said = json.loads(answers.completion(body("1 + 1?", 2, 0), [5, 90]))
    assert said["prompt_token_ids"] == [1, 414, 287]
    assert said["usage"] == {"prompt_tokens": 3, "completion_tokens": 95}
    assert [len(choice["token_ids"]) for choice in said["choices"]] == [5, 90]
    assert [len(choice["message"]["content"]) for choice in said["choices"]] == [20, 360]
    short, long = (choice["token_ids"] for choice in said["choices"])
    assert long[:5] == short
    assert set(long) <= set(range(300, 500))


def test_the_time_with_under_half_of_the_places_busy_is_added_up(
    slots: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(slots.time, "perf_counter", lambda: now)
    places = slots.Places(4, 1000.0)
    places.change(0)
    assert places.under_half == 0.0  # nothing was asked yet
    places.first = places.seen = now
    # Busy from each time on: 1 at 101 (one second of none before), 2 at 104, 4 at 110, 1 at 120.
    for at, change in ((101.0, 1), (104.0, 1), (110.0, 2), (120.0, -3), (127.0, -1)):
        now = at
        places.change(change)
    assert places.under_half == (101 - 100) + (104 - 101) + (127 - 120)
    assert places.busy == 0
