"""Log-probs of responses by the trainer's own forward pass, as in the stage ``old_log_probs``."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.perplexity.old_log_probs import Evaluation, evaluate, forward_config
from pcl_reasoner.perplexity.old_log_probs_stage import OldLogProbsConfig
from pcl_reasoner.perplexity.segments import trained_tokens

_PADDING = 0
"""Token that fills the end of a row; no other token attends to it."""


def log_probs_by_model(
    config: PerplexityConfig,
    segments: pa.Table,
    policy: Path,
    work: Path,
    log: Path,
    context: StageContext,
) -> npt.NDArray[np.float64]:
    """Return the mean log π over each response's tokens, [segments].

    Args:
        config: The settings of the stage.
        segments: At least one segment (segments.py).
        policy: Hugging Face folder of the weights.
        work: Folder for rows and values; values that a killed run left in it are kept.
        log: File for the output of the process.
        context: Receives progress; has the environment of the process.

    Raises:
        StageError: There are no weights, or the forward pass failed.
    """
    settings = {name: getattr(config, name) for name in OldLogProbsConfig.model_fields}
    trainer = forward_config(loss="sft", entropy=False, **settings)
    evaluation = Evaluation(trainer, policy, segments, _PADDING)
    found = evaluate(evaluation, work, log, context)
    sums = np.array([values.sum(dtype=np.float64) for (values,) in found])
    return sums / trained_tokens(segments)
