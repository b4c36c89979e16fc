"""The largest differences of log-probs with which two passes count as the same."""

from pydantic import Field

from pcl_reasoner.core.stage import StageConfig


class Limits(StageConfig):
    """The largest differences |log π of the server − log π of the checkpoint|, in nats."""

    mean: float = Field(gt=0)
    """Of the mean over all tokens."""
    p99: float = Field(gt=0)
    """Of the 99th percentile."""
    largest: float = Field(gt=0)
    """Of the largest difference."""
