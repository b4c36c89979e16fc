"""The result of a check, and the number of rows that other thresholds would flag.

text 17    "Every morning Ada walks 8 kilometers …"
match      question aime-2024-I-01, cosine 0.9873, window 0, rule "embedding+ngrams"
sweep      0.50: 31 rows by embedding, 31 by embedding or n-grams, 33 by any rule … 0.95: 1, 2, 4
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.duplicates import Duplicate
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.scores import SWEEP, Match


@dataclass(frozen=True)
class Findings:
    """The result of a check.

    Args:
        texts: The distinct texts, in order of appearance.
        text_of_row: Row -> index of its text.
        questions: Fingerprints of the benchmark questions, indexed by ``Match.question``.
        matches: One per distinct text.
        duplicates: Index of a text -> the earlier text that it nearly repeats.
        embedder: Name, dimension and hash of the embedder; None when nothing was embedded.
        encoding: The encoder; and if it has a faster pass, the number of texts scored again in
            float32 and the largest change of a cosine. None when nothing was embedded.
    """

    texts: list[str]
    text_of_row: list[int]
    questions: list[Fingerprint]
    matches: list[Match]
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    embedder: dict[str, Any] | None = None
    encoding: dict[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        """Number of benchmark questions, embedder and encoding, for the report."""
        facts = {"benchmark_questions": len(self.questions), "embedder": self.embedder}
        return {**facts, "encoding": self.encoding} if self.encoding else facts

    def clean(self, row: int) -> bool:
        """True if a row is neither flagged nor a near-duplicate."""
        text = self.text_of_row[row]
        return self.matches[text].rule is None and text not in self.duplicates


def sweep(findings: Findings, config: ContaminationConfig) -> dict[str, dict[str, int]]:
    """Count the rows that other thresholds would flag.

    Returns:
        Threshold -> number of rows that the embedding alone flags, that the embedding or the
        n-grams flag, and that any rule flags. Only the threshold varies. The configured threshold
        is included.
    """
    matches = [findings.matches[text] for text in findings.text_of_row]
    limit = config.containment if config.use_ngrams else float("inf")
    result = {}
    for threshold in sorted({*SWEEP, config.threshold}):
        near = [_is_near(m, threshold, config.sure_threshold) for m in matches]
        shared = [m.best_containment >= limit for m in matches]
        result[f"{threshold:.2f}" if threshold in SWEEP else repr(threshold)] = {
            "embedding": sum(near),
            "with_ngrams": sum(a or b for a, b in zip(near, shared, strict=True)),
            "all_rules": sum(
                a or b or m.by_signature for a, b, m in zip(near, shared, matches, strict=True)
            ),
        }
    return result


def _is_near(match: Match, threshold: float, sure: float) -> bool:
    """True if the cosine of a match flags its text at a threshold."""
    if match.cosine is None or match.cosine < threshold:
        return False
    return match.supported or match.cosine >= sure


def near_misses(matches: Sequence[Match], count: int) -> list[int]:
    """The unflagged texts that are closest to a question, closest first.

    Returns:
        Indices of distinct texts. Closeness is the cosine; without embedding, the containment.
    """
    closeness = [m.containment if m.cosine is None else m.cosine for m in matches]
    unflagged = [index for index, match in enumerate(matches) if match.rule is None]
    # Sorting is stable, so the earlier of two equally close texts comes first.
    return sorted(unflagged, key=lambda index: -closeness[index])[:count]
