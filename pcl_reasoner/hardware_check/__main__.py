"""``python -m pcl_reasoner.hardware_check PART FOLDER``: run one part and write its outcome."""

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from pcl_reasoner.hardware_check.outcome import Setting
from pcl_reasoner.hardware_check.parts import PARTS


def main(name: str, folder: Path) -> None:
    """Run the part ``name``: read setting.json in ``folder``, and write outcome.json there."""
    part = PARTS[name]
    module = importlib.import_module(f"{__package__}.{part.module}")
    setting = Setting(**json.loads((folder / "setting.json").read_text(encoding="utf-8")))
    outcome = getattr(module, part.function)(setting, folder)
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
