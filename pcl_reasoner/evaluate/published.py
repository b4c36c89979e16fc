"""Published AIME scores."""

from dataclasses import dataclass
from typing import Literal

SOURCE = "PCL-Reasoner-V1.5, arXiv 2601.14716, table of results (avg@32, per cent)"
ABSTRACT = "PCL-Reasoner-V1.5, arXiv 2601.14716, abstract (avg@32, per cent)"
ROUNDING = 0.05
"""Published scores have one decimal, so the exact score is within this many points."""


@dataclass(frozen=True)
class Published:
    """One model's published scores, in per cent."""

    model: str
    size: Literal["over 100B", "32B"]
    aime24: float
    aime25: float
    source: str = SOURCE


SCORES = (
    Published("DeepSeek-R1", "over 100B", 79.8, 70.0),
    Published("DeepSeek-R1-0528", "over 100B", 91.4, 87.5),
    Published("Qwen3-235B-A22B", "over 100B", 85.7, 81.5),
    Published("OpenAI-o3", "over 100B", 91.6, 88.9),
    Published("Gemini-2.5-Pro-0506", "over 100B", 90.8, 83.0),
    Published("Qwen3-32B", "32B", 81.4, 72.9),
    Published("QwQ-32B", "32B", 79.5, 69.5),
    Published("DeepSeek-R1-Distill-Qwen-32B", "32B", 72.6, 49.6),
    Published("Skywork-OR1-32B", "32B", 82.2, 73.3),
    Published("AM-Thinking-v1", "32B", 85.3, 74.4),
    Published("OpenReasoning-Nemotron-32B", "32B", 89.2, 84.2),
    Published("PCL-Reasoner-V1", "32B", 85.7, 84.2),
    Published("PCL-Reasoner-V1.5", "32B", 90.9, 85.7),
)

CONTRADICTION = Published("PCL-Reasoner-V1.5", "32B", 90.9, 85.6, ABSTRACT)
"""The same paper's abstract gives another AIME25 score than its table."""
