"""The process that compiles one rank's graph.

    python -m pcl_reasoner.precompile.rank mindformers.yaml RANK WORLD

MindFormers' Trainer runs from its YAML as on a cluster, but only compiles the graph instead of
training. The result is written to result.json, errors to standard error.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.cpu_ranks import mindspore_2_7 as version


def main() -> None:
    """Compile the rank and write the result."""
    path, rank, world = sys.argv[1:]
    began = time.monotonic()
    groups = version.pretend(int(rank), int(world))
    # Imports mindformers, so ``pretend`` must have run before.
    from pcl_reasoner.worker.entry import import_mindformers, read_config, train

    import_mindformers()
    config, _ = read_config(path, [], None)

    def done(network: Any, seconds: float) -> None:
        value = {
            "compile_seconds": round(seconds, 1),
            "all_seconds": round(time.monotonic() - began, 1),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "parameters": version.parameters_of(network, groups),
        }
        write_atomically(Path("result.json"), json.dumps(value))

    version.compile_in_place_of_training(done)
    train(config)


if __name__ == "__main__":
    main()
