"""The curation stages, in the order in which the data walks through them.

Rows go by as a stream: Arrow batches carry the long columns in source order, part by part, here or
on other machines (the data engine). DuckDB, which has a memory limit and spills beyond it, sees
only the short columns of all parts. What it works out for a part is put beside the part's rows, so
no stage ever sorts or holds the texts.
"""

from __future__ import annotations

from pcl_reasoner.curate.convert import ConvertConfig, convert
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.unique import UniqueConfig, unique

__all__ = [
    "ConvertConfig",
    "DifficultyConfig",
    "LengthsConfig",
    "UniqueConfig",
    "convert",
    "difficulty",
    "lengths",
    "unique",
]
