"""A child is ended with all that it started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from servers import runs, wait_for

from pcl_reasoner.supervise.child import Child

STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
pathlib.Path("pids").write_text(f"{os.getpid()} {inner.pid}")
time.sleep(600)
"""


def test_exit_code_and_log(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "print('said'); raise SystemExit(3)"]
    with Child(words, tmp_path, tmp_path / "logs" / "log", os.environ) as child:
        assert child.wait(60) == 3
    assert (tmp_path / "logs" / "log").read_text() == "said\n"


def test_one_that_ignores_the_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    with Child([sys.executable, "-c", STUBBORN], tmp_path, tmp_path / "log", os.environ) as child:
        file = tmp_path / "pids"
        wait_for(lambda: file.exists() and len(file.read_text().split()) == 2)
        assert child.wait(0.1) is None
        child.stop(0.2)
    assert child.poll() == -9
    wait_for(lambda: not any(runs(int(word)) for word in file.read_text().split()))
