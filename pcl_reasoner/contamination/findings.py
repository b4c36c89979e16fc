"""What a check found, and what other thresholds would have found.

text 17    "Every morning Ada walks 8 kilometers …"
match      question aime-2024-I-01, cosine 0.9873, window 0, containment 1.0, rule "both"
sweep      0.50: 31 rows by the embedding, 31 with n-grams … 0.95: 1 and 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.duplicates import Duplicate
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.scores import SWEEP, Match

if TYPE_CHECKING:
    from pcl_reasoner.contamination.config import ContaminationConfig


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Args:
        texts: The distinct texts, in order of appearance.
        text_of_row: Row -> index of its text.
        questions: What was compared with; a match's question is an index of it.
        matches: One a distinct text.
        duplicates: Index of a text -> the earlier text that it nearly repeats.
        embedder: Name, dimension and hash of the embedder; None when nothing was embedded.
        encoding: What computed, texts scored again in float32, the largest movement of a cosine.
    """

    texts: list[str]
    text_of_row: list[int]
    questions: list[Fingerprint]
    matches: list[Match]
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    embedder: dict[str, Any] | None = None
    encoding: dict[str, Any] | None = None

    def clean(self, row: int) -> bool:
        """True when a row is neither flagged nor a near-duplicate."""
        text = self.text_of_row[row]
        return self.matches[text].rule is None and text not in self.duplicates


def sweep(findings: Findings, config: ContaminationConfig) -> dict[str, dict[str, int]]:
    """How many rows other thresholds would flag.

    Returns:
        Threshold -> rows that the embedding alone flags, and rows with n-grams as configured.
        The configured threshold is among them.
    """
    matches = [findings.matches[text] for text in findings.text_of_row]
    limit = config.containment if config.use_ngrams else float("inf")
    result = {}
    for threshold in sorted({*SWEEP, config.threshold}):
        near = [m.cosine is not None and m.cosine >= threshold for m in matches]
        shared = [m.best_containment >= limit for m in matches]
        either = sum(a or b for a, b in zip(near, shared, strict=True))
        result[f"{threshold:.2f}" if threshold in SWEEP else repr(threshold)] = {
            "embedding": sum(near),
            "with_ngrams": either,
        }
    return result


def near_misses(matches: Sequence[Match], count: int) -> list[int]:
    """Texts that came closest without being flagged, closest first.

    Returns:
        Indices of distinct texts; the measure is the cosine, or the containment without it.
    """

    def distance(index: int) -> tuple[float, int]:
        match = matches[index]
        return -(match.containment if match.cosine is None else match.cosine), index

    unflagged = [index for index, match in enumerate(matches) if match.rule is None]
    return sorted(unflagged, key=distance)[:count]
