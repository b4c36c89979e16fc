"""Prints the table of rehearsals for docs/benchmarks.md: every layout, and the old log-probs.

    python tests/rehearse/table.py [NAME …]

It takes 25 minutes on two cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from rehearsals import LAYOUTS, OLD_SCORES, cluster_config, rehearsed

from pcl_reasoner.rehearse.compare import Comparison, summary

QUANTITIES = ("loss", "gradient norm", "figures of a step", "gradient", "parameter")


def errors(found: Comparison) -> dict[str, float]:
    """Quantity -> its largest relative error."""
    return dict(summary(found))


def main() -> None:
    """Print a row per layout."""
    print(f"| layout | {' | '.join(QUANTITIES)} | gradient, old log-probs | loss, old | seconds |")
    print("|---" * (len(QUANTITIES) + 4) + "|")
    for name in sys.argv[1:] or LAYOUTS:
        data, tensor, stages, settings = LAYOUTS[name]
        config = cluster_config(data, tensor, stages, **settings)
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            ours = errors(rehearsed(config, Path(folder) / "ours"))
            seconds = time.monotonic() - began
            old = None
            if tensor > 1:
                path = os.environ.get("PYTHONPATH", "")
                os.environ["PYTHONPATH"] = f"{OLD_SCORES}{os.pathsep}{path}"
                old = errors(rehearsed(config, Path(folder) / "old"))
                os.environ["PYTHONPATH"] = path
        columns = [f"{ours[quantity]:.1e}" for quantity in QUANTITIES]
        columns += [f"{old[name]:.1e}" if old else "" for name in ("gradient", "loss")]
        print(f"| {name} | {' | '.join(columns)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
