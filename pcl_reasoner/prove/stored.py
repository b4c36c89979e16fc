"""The stored prompts and responses that a proof compares.

    problem_id 9f0c…, sample_index 3, input_ids [151644, …, 27, …], labels [−100, …, 27, …]

They are rows of the stage ``tokenize``. Here every token but the first has a label, so that the
log-probs of the prompts are compared, too.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.rows import list_at
from pcl_reasoner.pack.tokens import IGNORED


def stored_segments(samples: Path, count: int, longest: int) -> pa.Table:
    """Return stored segments of evenly spaced ranks by length: the shortest, the longest, others.

    Args:
        samples: The folder that ``tokenize`` wrote.
        count: Maximum number of segments.
        longest: Tokens after which a segment is cut.

    Raises:
        StageError: No segment has two tokens.
    """
    table = read_arrow_folder(samples)
    lengths = table["length"].to_numpy()
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] >= 2]
    if not len(order):
        raise StageError(f"{samples}: has no stored response with two tokens. Nothing is proved.")
    places = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    rows = []
    for index in order[places].tolist():
        ids = list_at(table["input_ids"], index)[:longest].tolist()
        found = table.slice(index, 1).select(["problem_id", "sample_index"]).to_pylist()[0]
        labels = [IGNORED, *ids[1:]]
        filled = {"length": len(ids), "reward": 1.0, "pass_rate": 1.0}
        rows.append({**found, "input_ids": ids, "labels": labels, **filled})
    return pa.Table.from_pylist(rows, schema=SEGMENTS)
