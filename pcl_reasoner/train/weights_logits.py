"""Logits of a probe batch by transformers and by MindFormers, from the same weights, on the CPU.

Run as ``python -m pcl_reasoner.train.weights_logits REQUEST ANSWER``, in a process of its own: both
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

from pcl_reasoner.errors import StageError
from pcl_reasoner.train.config import ModelShape
from pcl_reasoner.train.shape import read_shape
from pcl_reasoner.train.weights_names import EMBEDDINGS
from pcl_reasoner.train.weights_stream import read_files, weight_files

SEQUENCES, LENGTH = 2, 32
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
            [sys.executable, "-m", __name__, str(request), str(answer)],
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


def probe(vocabulary: int) -> Any:
    """Token ids [2, 32], the same for every model of a vocabulary."""
    import numpy as np

    drawn = np.random.default_rng(20260101).integers(0, vocabulary, (SEQUENCES, LENGTH))
    return drawn.astype(np.int32)


def transformers_logits(folder: Path, tokens: Any) -> Any:
    """Logits [2, 32, vocabulary] in float32 by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.from_numpy(tokens).long()).logits.numpy()


def mindformers_logits(files: list[Path], shape: ModelShape, tokens: Any) -> Any:
    """Logits [2, 32, vocabulary] in float32 by MindFormers' own loading and model."""
    from pcl_reasoner.train import mindformers_1_8 as version

    version.prepare_before_import()
    import mindspore as ms
    import numpy as np
    from mindformers.models.llama import LlamaConfig, LlamaForCausalLM

    from pcl_reasoner.train.adapt import CPU_MODEL_KEYS

    version.install_cpu_operators()
    config = LlamaConfig(
        batch_size=SEQUENCES,
        seq_length=LENGTH,
        qkv_has_bias=True,
        **shape.model_dump(),
        **CPU_MODEL_KEYS,
    )
    model = LlamaForCausalLM(config=config)
    held: dict[str, Any] = {}
    for file in files:
        held |= ms.load_checkpoint(str(file), format="safetensors")
    if EMBEDDINGS in held:
        held = model.convert_weight_dict(held, model_config=config)
    absent, _ = ms.load_param_into_net(model, held)
    if absent:
        raise StageError(f"{files[0].parent}: MindFormers finds no values for {absent[:8]}.")
    model.set_train(False)
    later = np.triu(np.ones((SEQUENCES, 1, LENGTH, LENGTH), np.uint8), 1)  # 1 is forbidden
    hidden = model.model(ms.Tensor(tokens), attention_mask=ms.Tensor(later))
    return model.lm_head(hidden).reshape(SEQUENCES, LENGTH, -1).asnumpy()


def main(request: Path, answer: Path) -> None:
    """Compute both, and write what is in parity.json under ``logits``."""
    import mindspore as ms
    import numpy as np

    ms.set_device("CPU")
    asked = json.loads(request.read_text(encoding="utf-8"))
    folder = Path(asked["hugging_face"])
    shape = read_shape(folder)
    assert shape is not None
    tokens = probe(shape.vocab_size)
    files = [Path(file) for file in asked["mindformers"]]
    theirs = transformers_logits(folder, tokens)
    ours = mindformers_logits(files, shape, tokens)
    found = {
        "tokens": [SEQUENCES, LENGTH],
        "largest": float(np.abs(theirs).max()),
        "difference": float(np.abs(theirs - ours).max()),
        "tolerance": TOLERANCE,
    }
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
