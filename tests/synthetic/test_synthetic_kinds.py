"""Each kind of task is graded by its verifier: what is right earns 1, the bad habit 0."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.formats.reading import read_line
from pcl_reasoner.formats.records import ReadLimits, Row
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.synthetic.kinds import FENCE, Task, make_tasks
from pcl_reasoner.synthetic.reward_model import write_reward_model
from pcl_reasoner.verifiers.preference import answer_text, score_all
from pcl_reasoner.verifiers.preference_config import RewardModelConfig
from pcl_reasoner.verifiers.preference_scorers import Pair
from pcl_reasoner.verifiers.small_batch import Answered, grade_batch


def converted(one: Task) -> Row:
    """The task as a record of its published form, read by convert's reader."""
    record: dict[str, Any] = {
        "code": {
            "problem": one.problem,
            "tests": json.dumps(one.checks),
            "solutions": [f"{FENCE}python\n{one.solution}\n{FENCE}"],
        },
        "instruction": {"prompt": one.problem, **one.checks},
    }[one.kind]
    format = {"code": "deepcoder", "instruction": "ifeval"}[one.kind]
    found = read_line(format, json.dumps(record).encode(), ReadLimits())
    assert isinstance(found, Row), found
    assert (found.kind, found.problem) == (one.kind, one.problem)
    return found


def test_programs_and_lists_of_words() -> None:
    """The solution that the source gives passes its own tests, too."""
    need("unshare")
    rng, taken = random.Random(3), set[str]()
    tasks = make_tasks(rng, "code", 8, [2, 3, 4], taken)
    tasks += make_tasks(rng, "instruction", 8, [2, 3, 4], taken)
    batch, expected = [], []
    for one in tasks:
        checks = json.loads(converted(one).checks)
        texts = {one.right: 1.0, one.careless: 0.0}
        if one.kind == "code":
            texts[f"</think>\n{FENCE}python\n{checks['reference']}\n{FENCE}"] = 1.0
        for text, reward in texts.items():
            batch.append(Answered(one.problem, one.kind, "", checks, text, "stop"))
            expected.append(reward)
    with Sandboxes("unshare", 2, PYTHON, Limits()) as sandboxes:
        found = grade_batch(batch, sandboxes)
    assert [verdict.reward for verdict in found] == expected
    # A forgotten operation is a wrong value, not a crash.
    reasons = {json.loads(one.detail or "{}").get("reason") for one in found}
    assert reasons == {None, "wrong"}


def test_a_curt_greeting_scores_less(tmp_path: Path) -> None:
    tasks = make_tasks(random.Random(3), "chat", 5, [0], set())
    texts = [text for one in tasks for text in (one.problem, one.right, one.careless)]
    write_reward_model(tmp_path / "model", texts)
    pairs = [
        Pair((one.problem, index), one.problem, answer_text(text, with_thinking=False) or "")
        for one in tasks
        for index, text in enumerate((one.right, one.careless))
    ]
    config = RewardModelConfig(engine="local", max_model_len=512)
    context = StageContext("grade", tmp_path / "quarantined.jsonl")
    scores = score_all(config, pairs, len(pairs), tmp_path, context, tmp_path / "model").scores
    # Three of its tokens are courteous; without any, the score is the offset.
    for one in tasks:
        assert scores[one.problem, 0] > -1.0
        assert scores[one.problem, 1] == pytest.approx(-3.0, abs=1e-4)


def test_more_tasks_than_there_are_is_an_error() -> None:
    """20 names and 10 places."""
    assert len(make_tasks(random.Random(0), "chat", 200, [0], set())) == 200
    with pytest.raises(StageError, match="201 distinct .* of kind chat .*200 .* chat_problems"):
        make_tasks(random.Random(0), "chat", 201, [0], set())
