"""The process that compiles one rank's graph: ``python -m pcl_reasoner.precompile.rank JOB``.

JOB is a JSON file: {"config": "mindformers.yaml", "rank": 64, "world": 128, "result":
"result.json"}. MindFormers' Trainer runs from its YAML as on a cluster, up to the point where
training would start. The result is written to ``result``, errors to standard error.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.precompile import mindspore_2_7 as version


def main(arguments: list[str] | None = None) -> None:
    """Compile the rank and write the result."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    began = time.monotonic()
    groups = version.pretend(job["rank"], job["world"])
    # Imports mindformers, so ``pretend`` must have run before.
    from pcl_reasoner.worker.entry import import_mindformers, read_config, train

    import_mindformers()
    config, _ = read_config(job["config"], [], None)

    def done(network: Any, seconds: float) -> None:
        value = {
            "compile_seconds": round(seconds, 1),
            "all_seconds": round(time.monotonic() - began, 1),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "parameters": version.parameters_of(network, groups),
        }
        write_atomically(Path(job["result"]), json.dumps(value))

    version.compile_in_place_of_training(done)
    train(config)


if __name__ == "__main__":
    main()
