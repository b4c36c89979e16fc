"""Where MindSpore writes a graph that it could not compile: by itself into the working directory.

./rank_0/om/analyze_fail.ir -> runs/v15_opg/logs/sample-1a2b3c4d/rank_0/om/analyze_fail.ir
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MS_OM_PATH"
"""MindSpore's environment variable for this folder, read when a compile fails. MindSpore 2.7 has no
option for it: ``save_graphs_path`` is not used unless all graphs are saved."""


@contextmanager
def failed_graphs_in(folder: Path) -> Iterator[None]:
    """Let this process and those that it starts write failed graphs into a folder.

    Args:
        folder: The folder; MindSpore creates it. A person's own choice is left as it is.
    """
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = str(folder.absolute())
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
