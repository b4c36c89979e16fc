"""How tokens and output weights are cut into chunks, and the bytes that this takes, by count.

The count is of a rank: its rows, and its part of the vocabulary under tensor parallelism. Left out
are a few numbers a token, and what a device's kernels take for themselves.
"""

from __future__ import annotations

PIECES = 8
"""In which a chunk's [V, H] is added to the weights' gradient."""
SMALL = 8192
"""Weights of fewer rows are added at once."""
FLOAT32 = 4


def chunk_length(chunk_tokens: int, rows: int, length: int) -> int:
    """Tokens of each row that make a chunk.

    Args:
        chunk_tokens: Tokens a chunk, over all rows.
        rows: Rows that a rank holds.
        length: Tokens a row.
    """
    return min(max(chunk_tokens // rows, 1), length)


def weight_pieces(size: int) -> tuple[tuple[int, int], ...]:
    """(first, last) rows of the weights whose gradient is added up at a time; small ones at once.

    Args:
        size: Rows of the weights that a rank holds.
    """
    step = size if size < SMALL else -(-size // PIECES)
    return tuple((first, min(first + step, size)) for first in range(0, size, step))


def full_logits_bytes(tokens: int, vocabulary: int) -> int:
    """All logits in float32, once; [tokens, vocabulary]."""
    return tokens * vocabulary * FLOAT32


def chunked_bytes(
    chunk_tokens: int, vocabulary: int, hidden: int, compute_bytes: int = 2, entropy: bool = False
) -> dict[str, int]:
    """Bytes alive at the three moments at which most are: logits, and the weights' gradient.

    Args:
        chunk_tokens: Tokens of a rank whose logits exist at a time.
        vocabulary: Rows of the output weights that a rank holds.
        hidden: Their columns.
        compute_bytes: Of a number in the matrix products.
        entropy: Whether entropies are made.
    """
    logits, weights = chunk_tokens * vocabulary, vocabulary * hidden
    share = 1 / len(weight_pieces(vocabulary))
    # A piece as it is cut out, in float32, and added: what is whole or float32 is not copied.
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
    """The most of ``chunked_bytes``, less what the weights' gradient takes with full logits too.

    That is the product in the compute type, and its float32. Arguments as there.
    """
    gradient = FLOAT32 + (compute_bytes if compute_bytes < FLOAT32 else 0)
    moments = chunked_bytes(chunk_tokens, vocabulary, hidden, compute_bytes, entropy)
    return max(moments.values()) - gradient * vocabulary * hidden
