"""Runs the stage ``rl`` in a process of its own, which a kill point may end.

python rl_kill_run.py OUTPUT '{"problems": …}' '{"max_rounds": 3, …}'
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["PCLR_TEST_RUNNER"] = str(os.getpid())

from rl_stage_helpers import run_rl  # noqa: E402

if __name__ == "__main__":
    inputs = {name: Path(path) for name, path in json.loads(sys.argv[2]).items()}
    counts, context, _ = run_rl(Path(sys.argv[1]), inputs, **json.loads(sys.argv[3]))
    print(json.dumps({"counts": counts.model_dump(), "warnings": context.warnings}))
