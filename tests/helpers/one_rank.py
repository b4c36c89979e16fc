"""Runs a Python program as a rank on a CPU, without msrun.

python one_rank.py RANK WORLD SOCKETS LIBRARY PROGRAM [WORD …]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from pcl_reasoner.cpu_ranks.become import become

if __name__ == "__main__":
    rank, world, folder, library, program, *words = sys.argv[1:]
    become(int(rank), int(world), Path(folder), Path(library))
    sys.argv = [program, *words]
    sys.path[:0] = [str(Path(program).parent), str(Path(__file__).parent)]
    runpy.run_path(program, run_name="__main__")
