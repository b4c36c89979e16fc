"""Computes how tokens and output weights are cut into chunks, and the bytes that this takes.

The bytes are per rank: for its rows and, under tensor parallelism, for its part of the vocabulary.
They do not include a few numbers per token, and the memory that a device's kernels need themselves.
"""

GRADIENT_PIECES = 8
"""Pieces in which a chunk's [V, H] gradient is added to the gradient of the weights."""
MIN_SPLIT_ROWS = 8192
"""Weights with fewer rows than this are added in one piece."""
FLOAT32 = 4


def chunk_length(chunk_tokens: int, rows: int, length: int) -> int:
    """Return the number of tokens of each row in a chunk.

    Args:
        chunk_tokens: Tokens per chunk, over all rows.
        rows: Number of rows that a rank holds.
        length: Tokens per row.
    """
    return min(max(chunk_tokens // rows, 1), length)


def weight_pieces(size: int) -> tuple[tuple[int, int], ...]:
    """Return the row ranges of the weights whose gradients are added one at a time.

    Each range is (first, last), without ``last``. Weights of fewer than MIN_SPLIT_ROWS rows have
    one range.

    Args:
        size: Number of rows of the weights that a rank holds.
    """
    step = size if size < MIN_SPLIT_ROWS else -(-size // GRADIENT_PIECES)
    return tuple((first, min(first + step, size)) for first in range(0, size, step))


def full_logits_bytes(tokens: int, vocabulary: int) -> int:
    """Return the bytes of all logits, [tokens, vocabulary] in float32, weight_log_probs once."""
    return tokens * vocabulary * FLOAT32


def chunked_bytes(
    chunk_tokens: int, vocabulary: int, hidden: int, compute_bytes: int = 2, entropy: bool = False
) -> dict[str, int]:
    """Return the bytes of logits and the weights' gradient at the three moments with the most.

    Args:
        chunk_tokens: Tokens per rank whose logits exist at a time.
        vocabulary: Rows of the output weights that a rank holds.
        hidden: Columns of the output weights.
        compute_bytes: Bytes per number in the matrix products.
        entropy: Whether entropies are computed.
    """
    logits, weights = chunk_tokens * vocabulary, vocabulary * hidden
    share = 1 / len(weight_pieces(vocabulary))
    # Copies of a piece: cut out, converted to float32, added (below). One piece of all is not
    # cut out, and float32 is not converted.
    copies = (compute_bytes if share < 1 else 0) + (FLOAT32 if compute_bytes < FLOAT32 else 0)
    return {
        # Backward: π, one-hot, their difference. For entropies: logits, log π, π, π log π.
        "logits of a chunk": FLOAT32 * weights + (4 if entropy else 3) * FLOAT32 * logits,
        "a chunk's part is added": (FLOAT32 + compute_bytes) * weights
        + round(share * (copies + FLOAT32) * weights)
        + compute_bytes * logits,
        "pieces are joined": (FLOAT32 if share == 1 else 2 * FLOAT32) * weights,
    }


def extra_bytes(
    chunk_tokens: int, vocabulary: int, hidden: int, compute_bytes: int = 2, entropy: bool = False
) -> int:
    """Return the largest of ``chunked_bytes``, minus the weights' gradient as full logits need it.

    With full logits, too, that gradient takes the matrix product in the compute type and its
    float32 copy. Args as in ``chunked_bytes``.
    """
    gradient = FLOAT32 + (compute_bytes if compute_bytes < FLOAT32 else 0)
    moments = chunked_bytes(chunk_tokens, vocabulary, hidden, compute_bytes, entropy)
    return max(moments.values()) - gradient * vocabulary * hidden
