"""Compares a probe batch's logits, computed by transformers and by MindFormers.

``python -m pcl_reasoner.worker.logits`` computes them in a separate process, because both
frameworks keep their memory until the process ends.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import last_lines
from pcl_reasoner.runner import failed_graphs
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.weights.stream import read_files, weight_files

PROGRAM = "pcl_reasoner.worker.logits"
TOLERANCE = 1e-4
"""Allowed difference / largest logit; not 0, as the frameworks add float32 in different orders."""


def compare_apart(hugging_face: Path, mindformers: list[Path]) -> dict[str, Any]:
    """Compute and compare the logits in a separate process.

    Args:
        hugging_face: The folder that transformers loads.
        mindformers: The safetensors files that MindFormers loads. Their names are MindFormers' or
            Hugging Face's; MindFormers translates the latter.

    Returns:
        ``tokens``: shape of the probe batch. ``largest``: transformers' largest absolute logit.
        ``difference``: largest absolute difference of a logit. ``tolerance``: TOLERANCE.

    Raises:
        StageError: The models do not fit into this machine's memory, the logits could not be
            computed, or they differ.
    """
    _check_memory(hugging_face)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        paths = [answer, *(path.resolve() for path in (hugging_face, *mindformers))]
        env = {"HF_HUB_OFFLINE": "1", "GLOG_v": "3", "LOG_MF_PATH": str(Path(folder) / "log")}
        env[failed_graphs.VARIABLE] = folder
        command = [sys.executable, "-m", PROGRAM, *map(str, paths)]
        log = Path(folder) / "output.log"
        with Supervised.here(command, log, environment={**os.environ, **env}) as process:
            code = process.wait()
        if code:
            output = last_lines(log)
            raise StageError(f"{hugging_face}: the logits could not be computed:\n{output}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    check_difference(found, hugging_face)
    return found


def check_difference(found: dict[str, Any], hugging_face: Path) -> None:
    """Raise StageError if logits differ by more than TOLERANCE allows, or are NaN."""
    if not found["difference"] <= TOLERANCE * found["largest"]:
        raise StageError(
            f"{hugging_face}: logits by transformers and by MindFormers differ by "
            f"{found['difference']:.3g}, expected at most {TOLERANCE:g} of the largest, "
            f"{found['largest']:.3g}. The weights are not the same model."
        )


def _check_memory(hugging_face: Path) -> None:
    """Raise StageError if memory is too small for both models in float32.

    Three copies are counted, because one model is in memory twice while it is loaded.
    """
    tensors = read_files(weight_files(hugging_face)).values()
    needed = 3 * 4 * sum(tensor.size // tensor.item_bytes for tensor in tensors)
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    if needed > pages * size:
        raise StageError(
            f"{hugging_face}: comparing logits takes {needed / 2**30:.1f} GiB of memory, "
            f"{pages * size / 2**30:.1f} GiB are free. Omit --logits: every tensor's hash is "
            "compared without it too."
        )
