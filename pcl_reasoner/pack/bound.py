"""Computes a lower bound on the number of rows of any packing, from the lengths alone.

lengths [7, 7, 4], rows of 10: 18 tokens would fit into 2 rows, but no two segments fit into one
-> 3
"""

import numpy as np
import numpy.typing as npt


def least_rows(lengths: npt.NDArray[np.int64], seq_length: int) -> int:
    """Return Martello and Toth's lower bound L2 on the number of rows; no packing has fewer.

    Every long segment (more than half a row) needs its own row. For any k ≤ seq_length / 2, the
    other segments with at least k tokens do not fit beside segments longer than seq_length − k. At
    best they fill the free tokens beside the other long segments, and the rest needs further rows.
    The bound is the number of long segments plus the largest number of further rows for any k.

    Args:
        lengths: [n] tokens per segment, 1 ≤ length ≤ seq_length.
        seq_length: Tokens per row.

    Source: Martello and Toth, Lower bounds and reduction procedures for the bin packing problem,
        Discrete Applied Mathematics 28 (1990).
    """
    sizes = np.arange(seq_length + 1)
    histogram = np.bincount(lengths, minlength=seq_length + 1)
    shorter = np.concatenate([[0], np.cumsum(histogram)])  # [x]: number of segments shorter than x
    tokens = np.concatenate([[0], np.cumsum(histogram * sizes)])  # [x]: their tokens
    half = seq_length // 2
    shortest = np.arange(half + 1)
    beyond = seq_length - shortest + 1
    large = shorter[-1] - shorter[half + 1]
    long_rows = shorter[beyond] - shorter[half + 1]
    free_tokens = long_rows * seq_length - (tokens[beyond] - tokens[half + 1])
    overflow = tokens[half + 1] - tokens[shortest] - free_tokens
    more = np.maximum(0, -(-overflow // seq_length))
    return int((large + more).max())
