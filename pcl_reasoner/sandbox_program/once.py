"""One request to the candidate's functions in a process that is not ours: what ``http`` runs.

    standard input    {"word": "6f1c…", "code": "def f(x): …", "request": {"op": "run", …}}
    standard output   whatever the candidate prints, and at last a line:  6f1c… {"value": 8}

The word marks the reply among the candidate's own output. A candidate that finds it can write any
reply, which is no more than it can return; the expected value is not here.
"""

from __future__ import annotations

import os
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcl_reasoner.sandbox_program.calls import answer_calls
    from pcl_reasoner.sandbox_program.messages import dumps, loads
    from pcl_reasoner.sandbox_program.solution import load_solution
    from pcl_reasoner.sandbox_program.tester import run_shared


def run_once() -> None:
    """Answer the request of standard input."""
    told = loads(sys.stdin.readline().strip())
    sys.setrecursionlimit(50_000)
    # Files in place of the pipes: nobody would read a pipe before the end.
    with tempfile.TemporaryFile() as question, tempfile.TemporaryFile() as answer:
        question.write(dumps(told["request"]) + b"\n")
        question.seek(0)
        given, taken = os.dup(question.fileno()), os.dup(answer.fileno())
        if "tests" in told:
            run_shared(told["code"], told["tests"], given, taken)
        else:
            answer_calls(lambda: load_solution(told["code"]), given, taken)
        answer.seek(0)
        reply = answer.readline().decode("utf-8", "replace").strip()
    sys.stdout.write(f"\n{told['word']} {reply}\n")
    sys.stdout.flush()
