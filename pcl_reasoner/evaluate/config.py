"""Settings of the stage ``evaluate``."""

from typing import ClassVar

from pydantic import Field

from pcl_reasoner.inference.settings import SamplingConfig


class EvaluateConfig(SamplingConfig):
    """How a model is evaluated: the sampling fields, with more responses per question."""

    n: int = Field(32, gt=0)
    """Responses per question; scores are averages over them."""

    model_role: ClassVar[str] = "model"
