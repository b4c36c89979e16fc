"""Disturb runs in every way that the project claims to survive, and keep a log.

    python tests/drill 100                      100 trials of each kind
    python tests/drill 100 --kind kills         of one kind
    python tests/drill --again                  the bad trials of the log once more
    python tests/drill --seed 4f1c-kills-17     one trial, again
    python tests/drill --table                  write the table into docs/reliability.md

The log, build/drill/log.jsonl, has one line per trial; a drill that was interrupted continues. The
seeds come from the clock. A line's seed repeats its trial.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

from drill import main  # noqa: E402

if __name__ == "__main__":
    raise SystemExit(main())
