"""``python -m pcl_reasoner.hardware_check PART FOLDER``: run one part and write its outcome."""

import importlib
import sys
from pathlib import Path

from pcl_reasoner.hardware_check.outcome import Outcome, Setting
from pcl_reasoner.hardware_check.parts import PARTS


def main(name: str, folder: Path) -> None:
    """Run a part by its name."""
    part = PARTS[name]
    module = importlib.import_module(f"{__package__}.{part.module}")
    outcome: Outcome = getattr(module, part.function)(Setting.read(folder), folder)
    outcome.write(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
