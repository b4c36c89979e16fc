"""Fingerprints: hashes and vectors that find a benchmark question without its text.

    {"format": 3, "benchmark": "aime24", "embedder": {"name": "…", "dimension": 384, "sha256": "…"},
     "window_tokens": 256, "ngram_size": 8, "mask_numbers": true,
     "questions": [{"id": "aime-2024-I-01", "year": 2024, "text": "9f0c…", "answer": "41b7…",
                    "grams": "base64 of uint64", "numbers": "base64 of uint64 [2, terms]",
                    "formulas": "…", "concepts": "…", "asked": "…",
                    "vectors": "base64 of float32 [windows, 384]", "halves": "… [2, 384]"}]}

``text`` is the hash of the question's words, numbers unmasked. With it, a question that is also
given as text is compared only once. ``answer`` is the hash of the answer, salted with ``text``; a
short answer can still be found by trying all short answers. The purpose of
fingerprints is that the package does not contain the test set as text.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.contamination.ngrams import QuestionGrams, question_grams
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import expanded
from pcl_reasoner.embedding.embed import Embedder
from pcl_reasoner.embedding.encoders import Vectors
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.signature.index import FAMILIES, Signature, signature

FORMAT = 3
SHIPPED = Path(__file__).parent / "shipped"
"""Folder of the fingerprints in the package, one file per benchmark: aime24.json, aime25.json."""


@dataclass(frozen=True)
class Question:
    """A benchmark question; ``benchmark`` is a name, ``id`` the question's id in this benchmark."""

    benchmark: str
    id: str
    text: str
    year: int | None = None
    answer: str | None = None


@dataclass(frozen=True)
class Fingerprint:
    """The data by which a question is recognised.

    Args:
        benchmark: The benchmark's name.
        id: The question's id in the benchmark.
        grams: Hashes of its n-grams and of all its words.
        signature: Hashes of its numbers, formulas and concepts, and how often they occur elsewhere.
        vectors: Unit vectors of its windows, float32 [windows, dimension]; None: not embedded.
        halves: Unit vectors of its first and second half, float32 [2, dimension]. They find a
            problem that contains only half of the question. None: not embedded.
        text: Its text; None if only the fingerprint is available.
        year: Year of the contest.
    """

    benchmark: str
    id: str
    grams: QuestionGrams
    signature: Signature
    vectors: Vectors | None = None
    halves: Vectors | None = None
    text: str | None = None
    year: int | None = None


@dataclass(frozen=True)
class Settings:
    """Settings that must be equal in a fingerprint and the check; see ContaminationConfig."""

    window_tokens: int
    ngram_size: int
    mask_numbers: bool


def shipped_names() -> list[str]:
    """Names of the benchmarks whose fingerprints are in the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def make(
    questions: Sequence[Question],
    settings: Settings,
    embedder: Embedder | None,
    upstream: bool = False,
) -> list[Fingerprint]:
    """Make the fingerprints of questions.

    Args:
        questions: Questions with their texts.
        settings: Sizes of windows and n-grams, and number masking.
        embedder: The embedding model; None: no vectors.
        upstream: True, for the method ``upstream``: embed only the first window, and keep the chat
            template. False: embed all windows, without the chat template.
    """
    texts = [item.text if upstream else strip_template(item.text) for item in questions]
    vectors: list[Any] = [None] * len(texts)
    halves: list[Any] = [None] * len(texts)
    if embedder is not None and texts:
        vectors = list(embedder.encode(texts, settings.window_tokens, first_only=upstream))
        cut = [half for text in texts for half in halves_of(text)]
        rows = np.concatenate(embedder.encode(cut, settings.window_tokens, first_only=True))
        halves = list(rows.reshape(len(texts), 2, -1))
    return [
        Fingerprint(
            benchmark=item.benchmark,
            id=item.id,
            grams=question_grams(text, settings.ngram_size, settings.mask_numbers),
            signature=_signature(text, item.answer, settings),
            vectors=windows,
            halves=both,
            text=item.text,
            year=item.year,
        )
        for item, text, windows, both in zip(questions, texts, vectors, halves, strict=True)
    ]


def halves_of(text: str) -> tuple[str, str]:
    """Split a text into two halves at the middle of its words."""
    parts = text.split(" ")
    middle = len(parts) // 2
    return " ".join(parts[:middle]), " ".join(parts[middle:])


def _signature(text: str, answer: str | None, settings: Settings) -> Signature:
    """The signature of a question; its answer's key is salted with the hash of its words."""
    salt = question_grams(text, settings.ngram_size, settings.mask_numbers).text_hash
    return signature(strip_template(text), answer, salt)


def to_json(
    benchmark: str, found: Sequence[Fingerprint], settings: Settings, embedder: Embedder
) -> str:
    """The content of a fingerprint file, without the questions' texts.

    Args:
        benchmark: The benchmark's name in hits.jsonl.
        found: Fingerprints with vectors.
        settings: The settings with which the fingerprints were made.
        embedder: The embedder that made the vectors.
    """
    questions = [
        {
            "id": item.id,
            "year": item.year,
            "text": None if item.grams.text_hash is None else f"{item.grams.text_hash:016x}",
            "answer": None if item.signature.answer is None else f"{item.signature.answer:016x}",
            "grams": _pack(np.array(sorted(item.grams.grams), "<u8")),
            **{name: _pack(_terms(item.signature.terms[name])) for name in FAMILIES},
            "vectors": _pack(np.asarray(item.vectors, "<f4")),
            "halves": _pack(np.asarray(item.halves, "<f4")),
        }
        for item in found
    ]
    head = {
        "format": FORMAT,
        "benchmark": benchmark,
        "embedder": embedder.facts(),
        **vars(settings),
    }
    return json.dumps({**head, "questions": questions}, indent=1, sort_keys=True) + "\n"


def _terms(found: Mapping[int, int]) -> npt.NDArray[np.uint64]:
    """Hashes and counts of a family of terms, uint64 [2, terms], in the order of the hashes."""
    return np.array(sorted(found.items()), "<u8").reshape(-1, 2).T


def _counts(packed: str) -> dict[int, int]:
    """Hash of a term -> count: what ``_terms`` has packed."""
    terms, counts = _unpack(packed, "<u8").reshape(2, -1).tolist()
    return dict(zip(terms, counts, strict=True))


def load(path: Path, settings: Settings, embedder: Embedder | None) -> list[Fingerprint]:
    """Read a file of fingerprints.

    Args:
        path: The file.
        settings: The check's settings; those in the file must be equal.
        embedder: The embedder that must have made the vectors; None: vectors are not read.

    Raises:
        InputError: It is not a fingerprint file, or was made with other settings or another
            embedder.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        _check_settings(path, value, settings, embedder)
        dimension = value["embedder"]["dimension"] if embedder else None
        return [_fingerprint(value["benchmark"], item, dimension) for item in value["questions"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not a file of fingerprints ({type(error).__name__}: {error}). Make one with: "
            "pclr-ms contamination fingerprint QUESTIONS -o FILE"
        ) from error


def _check_settings(
    path: Path, value: Mapping[str, Any], settings: Settings, embedder: Embedder | None
) -> None:
    """Reject fingerprints made with other settings: comparing with them would find nothing."""
    if value["format"] != FORMAT:
        raise InputError(
            f"{path}: format must be {FORMAT}, got {value['format']}. Make the file again with "
            "pclr-ms contamination fingerprint."
        )
    for key, wanted in vars(settings).items():
        if value[key] != wanted:
            raise InputError(
                f"{path}: made with {key} {value[key]!r}, the check has {wanted!r}. Set {key} to "
                f"{value[key]!r}, or make fingerprints with pclr-ms contamination fingerprint."
            )
    theirs = value["embedder"]
    if embedder is not None and theirs["sha256"] != embedder.sha256:
        raise InputError(
            f"{path}: embedded by {theirs['name']} (weights {theirs['sha256'][:12]}), the check's "
            f"model is {embedder.name} (weights {embedder.sha256[:12]}). Set model to "
            f"{theirs['name']}, or make fingerprints with pclr-ms contamination fingerprint."
        )


def _fingerprint(benchmark: str, item: Mapping[str, Any], dimension: int | None) -> Fingerprint:
    grams = frozenset(_unpack(item["grams"], "<u8").tolist())
    vectors = halves = None
    if dimension is not None:
        vectors, halves = (
            _unpack(item[key], "<f4").reshape(-1, dimension).astype(np.float32)
            for key in ("vectors", "halves")
        )
    return Fingerprint(
        benchmark=benchmark,
        id=item["id"],
        grams=QuestionGrams(grams, int(item["text"], 16) if item["text"] else None),
        signature=Signature(
            {name: _counts(item[name]) for name in FAMILIES},
            int(item["answer"], 16) if item["answer"] else None,
        ),
        vectors=vectors,
        halves=halves,
        year=item["year"],
    )


def resolve(names: Sequence[str]) -> list[Path]:
    """Find the fingerprint files of benchmarks given by shipped name or by path.

    Raises:
        StageError: A name is neither a shipped benchmark nor a file.
    """
    files = []
    for name in names:
        file = expanded(name)
        if not file.is_file():
            file = SHIPPED / f"{name}.json"
        if not file.is_file():
            raise StageError(
                f"contamination: against {name}: neither a file nor one of the shipped "
                f"fingerprints ({', '.join(shipped_names())})."
            )
        files.append(file)
    return files


def _pack(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _unpack(text: str, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), kind)
