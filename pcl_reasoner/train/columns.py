"""The columns that the loader gives and the model's ``construct`` takes, in their order."""

from __future__ import annotations


def column_names(compressed_mask: bool) -> list[str]:
    """Names in order; the mask is last because MindFormers offsets whatever is last.

    Args:
        compressed_mask: ``actual_seq_len`` [G] in place of the dense ``attention_mask`` [1, S, S].
    """
    return [
        "input_ids",
        "labels",
        "position_ids",
        "segment_ids",
        "rewards",
        "segment_weights",
        "token_weights",
        "actual_seq_len" if compressed_mask else "attention_mask",
    ]
