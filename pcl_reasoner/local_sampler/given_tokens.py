"""Log-probs of given tokens by the local sampler, which decodes them one by one with its cache.

[[1, 17, 402, 2], [1, 88]] -> [[-0.4, -2.1, -0.3], [-1.7]]
"""

from pathlib import Path

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from pcl_reasoner.local_sampler.draw import log_probs_of
from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout, LocalSampler


def log_probs_of_given(folder: Path, tokens: list[list[int]]) -> list[NDArray[np.float32]]:
    """Return log π of every token but the first of each list, as the sampler draws with it.

    Args:
        folder: A Hugging Face folder of a Qwen2 model.
        tokens: Lists of at least two token ids; all are decoded together.

    Raises:
        StageError: The sampler cannot load the model, or its cache would be too large.
    """
    count, longest = len(tokens), max(map(len, tokens))
    sampler = LocalSampler(folder)
    sampler.prepare(Layout(count, PROMPT_MULTIPLE, rows=count, slots=PROMPT_MULTIPLE + longest))
    logits, padding = sampler.read([ids[:1] for ids in tokens], list(range(count)))
    found = np.zeros((longest - 1, count), np.float32)
    for place in range(1, longest):
        # A list that has ended repeats its last token; nobody reads these values.
        chosen = np.array([ids[min(place, len(ids) - 1)] for ids in tokens], np.int64)
        found[place - 1] = log_probs_of(logits, chosen)
        slot = Tensor(np.array([PROMPT_MULTIPLE + place - 1], np.int32))
        logits = sampler.step(Tensor(chosen.astype(np.int32)), slot, padding).asnumpy()
    return [row[: len(ids) - 1] for row, ids in zip(found.T, tokens, strict=True)]
