"""Field names of benchmarks, used by the contamination check and by the stage ``evaluate``.

{"id": 60, "problem": "Every …", "solution": "\\boxed{204}", "url": "…"}   math-ai/aime24
{"ID": "2024-II-4", "Problem": "Let …", "Solution": "…", "Answer": 33}    Maxwell-Jia/AIME_2024
{"question_id": "abc301_a", "question_content": "You are given …", …}    LiveCodeBench
"""

from collections.abc import Iterable, Mapping
from typing import Any

PROBLEM_FIELDS = ("problem", "question", "Problem", "Question", "question_content")
ANSWER_FIELDS = ("answer", "Answer")
ID_FIELDS = ("id", "ID", "question_id")


def first_of(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The value of the first field that is present and not null; None if there is none."""
    return next((record[name] for name in names if record.get(name) is not None), None)
