"""The order of columns, here alone: what the loader gives and what Cells take.

loader, model   input_ids, labels, position_ids, segment_ids, rewards, …, the mask
a loss          log_probs, mean, rewards, segment_weights, …

A ``construct`` must spell its parameters out, as MindSpore reads its source; a test holds every one
of them to this order.
"""

from __future__ import annotations

PASS_RATES, ADVANTAGES = "pass_rates", "advantages"
OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN = "old_log_probs", "old_log_probs_mean"
OPTIONAL_COLUMNS = (PASS_RATES, ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN)
"""Columns that not all data have."""
LOSS_COLUMNS = (
    *("rewards", "segment_weights", "token_weights", "trained", "segment_ids"),
    *OPTIONAL_COLUMNS,
)
"""What a loss takes after log_probs and mean; one that needs only the first of them ends with
``*others``."""
ROW_COLUMNS = (
    *("input_ids", "labels", "position_ids", "segment_ids"),
    *("rewards", "segment_weights", "token_weights"),
    *OPTIONAL_COLUMNS,
)
"""What the model takes of a row, before the mask."""


def column_names(compressed_mask: bool) -> list[str]:
    """Names in order; the mask is last because MindFormers offsets whatever is last.

    Args:
        compressed_mask: ``actual_seq_len`` [G] in place of the dense ``attention_mask`` [1, S, S].
    """
    return [*ROW_COLUMNS, "actual_seq_len" if compressed_mask else "attention_mask"]
