"""Compares a probe batch's logits by transformers and by MindFormers, on the CPU.

weights/logits.py starts it as ``python -m pcl_reasoner.worker.logits ANSWER FOLDER FILE…``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.train.adapt import CPU_MODEL_KEYS
from pcl_reasoner.weights.logits import TOLERANCE
from pcl_reasoner.weights.model_config import ModelShape, read_shape
from pcl_reasoner.weights.names import EMBEDDINGS

SEQUENCES, LENGTH = 2, 32


def probe(vocabulary: int) -> Any:
    """Return token ids [2, 32], the same for every model with this vocabulary size."""
    import numpy as np

    drawn = np.random.default_rng(20260101).integers(0, vocabulary, (SEQUENCES, LENGTH))
    return drawn.astype(np.int32)


def transformers_logits(folder: Path, tokens: Any) -> Any:
    """Return the logits [2, 32, vocabulary] that transformers computes in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.from_numpy(tokens).long()).logits.numpy()


def mindformers_logits(files: list[Path], shape: ModelShape, tokens: Any) -> Any:
    """Return the float32 logits [2, 32, vocabulary] of MindFormers' own loader and model."""
    from pcl_reasoner.trainer import mindformers_1_8 as version

    version.prepare_before_import()
    import mindspore as ms
    import numpy as np
    from mindformers.models.llama import LlamaConfig, LlamaForCausalLM

    version.install_cpu_operators()
    settings = {**shape.model_dump(), **CPU_MODEL_KEYS}
    config = LlamaConfig(batch_size=SEQUENCES, seq_length=LENGTH, qkv_has_bias=True, **settings)
    model = LlamaForCausalLM(config=config)
    weights: dict[str, Any] = {}
    for file in files:
        weights |= ms.load_checkpoint(str(file), format="safetensors")
    if EMBEDDINGS in weights:
        weights = model.convert_weight_dict(weights, model_config=config)
    absent, _ = ms.load_param_into_net(model, weights)
    if absent:
        raise StageError(f"{files[0].parent}: MindFormers finds no values for {absent[:8]}.")
    model.set_train(False)
    later = np.triu(np.ones((SEQUENCES, 1, LENGTH, LENGTH), np.uint8), 1)  # 1 is forbidden
    hidden = model.model(ms.Tensor(tokens), attention_mask=ms.Tensor(later))
    return model.lm_head(hidden).reshape(SEQUENCES, LENGTH, -1).asnumpy()


def main(answer: Path, folder: Path, *files: Path) -> None:
    """Compare the frameworks' logits; write the result (parity.json's ``logits``) to ``answer``."""
    import mindspore as ms
    import numpy as np

    ms.set_device("CPU")
    shape = read_shape(folder)
    assert shape is not None
    tokens = probe(shape.vocab_size)
    expected = transformers_logits(folder, tokens)
    actual = mindformers_logits(list(files), shape, tokens)
    found = {
        "tokens": [SEQUENCES, LENGTH],
        "largest": float(np.abs(expected).max()),
        "difference": float(np.abs(expected - actual).max()),
        "tolerance": TOLERANCE,
    }
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
