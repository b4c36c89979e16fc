"""Scores texts with a small reward model in this process, on a CPU and without a server.

The model is a Hugging Face folder of ``Qwen2ForSequenceClassification`` with one label: the
weights of Qwen2, and ``score.weight`` [1, hidden] in place of the output matrix. A text's score is
this row times the last token's hidden state. The local sampler's prefill computes it: the score is
the "vocabulary" of one token.

    [[1, 17, 402, 2], [1, 17, 88, 9, 2]] -> [-3.0, 1.27]
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout, LocalSampler
from pcl_reasoner.prompt.model_files import read_json
from pcl_reasoner.weights.stream import read_files, weight_files

CLASSIFIER = "Qwen2ForSequenceClassification"
SCORE = "score.weight"
"""Name of the output tensor, as in transformers."""
TEXTS = 32
"""Maximum number of texts that are scored together."""
ATTENTION_BYTES = 1 << 30
"""Maximum size of one layer's attention scores, which decides how many texts fit."""


class LocalScorer:
    """Scores texts with a reward model; one instance can be used for any number of texts.

    All texts are padded to the same length. Therefore a text's score does not depend on the texts
    that are scored with it, to the last bit.

    Args:
        folder: A Hugging Face folder of a Qwen2 model for sequence classification.
        max_tokens: Maximum tokens of a text; also limited by the model.

    Raises:
        StageError: The folder has another model, or more than one label; or the attention of one
            text does not fit into ATTENTION_BYTES.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        check_model(folder)
        self._sampler = LocalSampler(folder, SCORE)
        shape = self._sampler.shape
        self.longest = min(max_tokens, shape.max_position_embedding)
        """Maximum tokens of a text."""
        slots = -(-self.longest // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
        each = 4 * shape.num_heads * slots**2
        if each > ATTENTION_BYTES:
            raise StageError(
                f"{folder}: the attention of a text of {slots} tokens needs {each / 2**30:.1f} "
                f"GiB, the limit of the local scorer is {ATTENTION_BYTES >> 30} GiB. Lower "
                "max_model_len, or score with engine: server."
            )
        self._together = min(TEXTS, ATTENTION_BYTES // each)
        # The prefill copies keys and values to rows for decoding, which need one slot more.
        layout = Layout(self._together, slots, rows=self._together, slots=slots + 1)
        self._sampler.prepare(layout)

    def score(self, texts: list[list[int]]) -> NDArray[np.float32]:
        """Return the raw score of each text.

        Args:
            texts: Token ids of each text, 1 to ``longest``.

        Returns:
            [texts] float32.
        """
        scores = np.zeros(len(texts), np.float32)
        for start in range(0, len(texts), self._together):
            batch = texts[start : start + self._together]
            rows = [*range(len(batch)), *[0] * (self._together - len(batch))]
            logits, _ = self._sampler.read(batch, rows)
            scores[start : start + len(batch)] = logits[: len(batch), 0]
        return scores


def check_model(folder: Path) -> None:
    """Check that a folder has a reward model that the local scorer can read.

    Raises:
        StageError: It is a model of another class, or has more than one label.
    """
    found = read_json(folder / "config.json").get("architectures")
    if found != [CLASSIFIER]:
        raise StageError(
            f"{folder / 'config.json'}: architectures is {found}, the local scorer needs "
            f"[{CLASSIFIER!r}]. Give the folder of a reward model, or score with engine: server."
        )
    tensors = read_files(weight_files(folder))
    labels = tensors[SCORE].shape[0] if SCORE in tensors else 0
    if labels != 1:
        raise StageError(
            f"{folder}: {SCORE} has {labels} rows, a reward model has 1: one score per response."
        )
