"""Defines the order of the columns that the loader returns and the model and losses take.

loader, model   input_ids, labels, position_ids, segment_ids, rewards, …, the mask
a loss          log_probs, mean, rewards, segment_weights, …

A ``construct`` must spell out its parameters, because MindSpore parses its source. A test checks
every ``construct`` against this order.
"""

PASS_RATES, ADVANTAGES = "pass_rates", "advantages"
OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN = "old_log_probs", "old_log_probs_mean"
OPTIONAL_COLUMNS = (PASS_RATES, ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN)
"""Columns that only some data sets have."""
LOSS_COLUMNS = (
    *("rewards", "segment_weights", "token_weights", "trained", "segment_ids"),
    *OPTIONAL_COLUMNS,
)
"""The columns that a loss takes after log_probs and mean. A loss that needs only the first few
of them ends the parameters of its ``construct`` with ``*others``."""
ROW_COLUMNS = (
    *("input_ids", "labels", "position_ids", "segment_ids"),
    *("rewards", "segment_weights", "token_weights"),
    *OPTIONAL_COLUMNS,
)
"""The columns of a row that the model takes, before the mask."""


def column_names(compressed_mask: bool) -> list[str]:
    """Return all names in order; the mask is last, as MindFormers adds offsets to the last column.

    Args:
        compressed_mask: True for ``actual_seq_len`` [G], False for the dense ``attention_mask``
            [1, S, S].
    """
    return [*ROW_COLUMNS, "actual_seq_len" if compressed_mask else "attention_mask"]
