"""The curation stages, in the order in which they process the data.

Rows are streamed: Arrow batches carry the long columns in source order, part by part, on this
machine or on others (the data engine). DuckDB has a memory limit, spills to disk beyond it, and
reads only the short columns of all parts. Its results for a part are matched with the part's rows,
so no stage sorts the texts or holds all of them in memory.
"""

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
