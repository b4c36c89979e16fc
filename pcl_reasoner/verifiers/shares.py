"""The interval of a share: 8 of 10 responses are correct, so 49 to 94 of 100 may be."""

import math

Z = 1.959964
"""Standard deviations on each side of a 95 % interval."""


def wilson(found: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share.

    Args:
        found: Cases that count.
        total: All cases, at least one.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference
    (1927).
    """
    share, spread = found / total, Z * Z / total
    centre = (share + spread / 2) / (1 + spread)
    reach = Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)
