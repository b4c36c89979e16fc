"""Logits of a probe batch by transformers and by MindFormers, compared.

They are computed by ``python -m pcl_reasoner.worker.logits``, in a process of its own: both
frameworks keep their memory until the process ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights.stream import read_files, weight_files

PROGRAM = "pcl_reasoner.worker.logits"
TOLERANCE = 1e-4
"""Largest difference, as a share of the largest logit: float32 sums in another order."""


def compare_apart(hugging_face: Path, mindformers: list[Path]) -> dict[str, Any]:
    """Compare logits in a process of its own.

    Args:
        hugging_face: The folder that transformers loads.
        mindformers: The safetensors files that MindFormers loads, by its own names or Hugging
            Face's, which it then translates itself.

    Returns:
        ``tokens``, ``largest`` logit, ``difference``: the largest between the two, ``tolerance``.

    Raises:
        StageError: They do not fit this machine's memory, differ, or could not be computed.
    """
    _check_memory(hugging_face)
    with tempfile.TemporaryDirectory() as place:
        request, answer = Path(place) / "request.json", Path(place) / "answer.json"
        files = [str(file.resolve()) for file in mindformers]
        asked = {"hugging_face": str(hugging_face.resolve()), "mindformers": files}
        request.write_text(json.dumps(asked), encoding="utf-8")
        env = {"HF_HUB_OFFLINE": "1", "GLOG_v": "3", "LOG_MF_PATH": str(Path(place) / "log")}
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, str(request), str(answer)],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            lines = "\n".join(done.stderr.splitlines()[-15:])
            raise StageError(f"{hugging_face}: the logits could not be computed:\n{lines}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    check_difference(found, hugging_face)
    return found


def check_difference(found: dict[str, Any], hugging_face: Path) -> None:
    """Raise StageError where logits differ by more than rounding, or are not numbers."""
    if not found["difference"] <= TOLERANCE * found["largest"]:
        raise StageError(
            f"{hugging_face}: logits by transformers and by MindFormers differ by "
            f"{found['difference']:.3g}, expected at most {TOLERANCE:g} of the largest, "
            f"{found['largest']:.3g}. The weights are not the same model."
        )


def _check_memory(hugging_face: Path) -> None:
    """Both models in float32, one of them twice while it is loaded."""
    values = sum(
        tensor.size // tensor.item_bytes
        for tensor in read_files(weight_files(hugging_face)).values()
    )
    needed = 3 * 4 * values
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    if needed > pages * size:
        raise StageError(
            f"{hugging_face}: comparing logits takes {needed / 2**30:.1f} GiB of memory, "
            f"{pages * size / 2**30:.1f} GiB are free. Leave --logits out; every tensor's hash is "
            "compared anyway."
        )
