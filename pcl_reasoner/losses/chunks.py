"""Divides tokens into chunks and output weights into pieces, and computes the memory needed.

Memory is in bytes per rank; under tensor parallelism, a rank holds a part of the vocabulary.
Arrays with a few numbers per token and the workspace of a device's kernels are not included.
"""

GRADIENT_PIECES = 8
"""Number of pieces in which a chunk's [V, H] gradient is added to the weights' gradient."""
MIN_SPLIT_ROWS = 8192
"""The gradient of weights with fewer rows than this is added in one piece."""
FLOAT32 = 4


def chunk_length(chunk_tokens: int, rows: int, length: int) -> int:
    """Return the number of tokens per row in a chunk.

    Args:
        chunk_tokens: Tokens per chunk, all rows together.
        rows: Number of rows that a rank holds.
        length: Tokens per row.
    """
    return min(max(chunk_tokens // rows, 1), length)


def weight_pieces(size: int) -> tuple[tuple[int, int], ...]:
    """Divide the weights' rows into ranges, because gradients are added range by range.

    A range (first, last) excludes ``last``. Weights of fewer than MIN_SPLIT_ROWS rows have
    one range.

    Args:
        size: Number of rows of the weights that a rank holds.
    """
    step = size if size < MIN_SPLIT_ROWS else -(-size // GRADIENT_PIECES)
    return tuple((first, min(first + step, size)) for first in range(0, size, step))


def chunked_bytes(
    chunk_tokens: int, vocabulary: int, hidden: int, compute_bytes: int = 2, entropy: bool = False
) -> dict[str, int]:
    """Return name -> bytes of logits and weight gradients, one entry per peak of memory use.

    Args:
        chunk_tokens: Tokens per rank whose logits exist at a time.
        vocabulary: Rows of the output weights that a rank holds.
        hidden: Columns of the output weights.
        compute_bytes: Bytes per number in the matrix products.
        entropy: Whether entropies are computed.
    """
    logits, weights = chunk_tokens * vocabulary, vocabulary * hidden
    share = 1 / len(weight_pieces(vocabulary))
    # Copies of a piece: one is cut out, one is in float32, one is the sum (added below). A single
    # piece is not cut out, and float32 is not converted.
    copies = (compute_bytes if share < 1 else 0) + (FLOAT32 if compute_bytes < FLOAT32 else 0)
    return {
        # Backward: π, one-hot, their difference. For entropies: logits, log π, π, π log π.
        "logits of a chunk": FLOAT32 * weights + (4 if entropy else 3) * FLOAT32 * logits,
        "a chunk's part is added": (FLOAT32 + compute_bytes) * weights
        + round(share * (copies + FLOAT32) * weights)
        + compute_bytes * logits,
        "pieces are joined": (FLOAT32 if share == 1 else 2 * FLOAT32) * weights,
    }
