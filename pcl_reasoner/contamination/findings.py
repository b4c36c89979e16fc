"""The result of a check, and the number of rows that other thresholds would flag.

text 17    "Every morning Ada walks 8 kilometers …"
match      question aime-2024-I-01, cosine 0.9873, window 0, rule "embedding+ngrams+likeness"
sweep      0.50: 31 rows by embedding, 31 by embedding or n-grams, 33 by any rule … 0.95: 1, 2, 4
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.scores import SWEEP, Match
from pcl_reasoner.embedding.duplicates import Duplicate
from pcl_reasoner.second_opinion.decisions import Judged


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
        judged: What the judge was asked, and what it changed; None: there is no judge.
    """

    texts: list[str]
    text_of_row: list[int]
    questions: list[Fingerprint]
    matches: list[Match]
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    embedder: dict[str, Any] | None = None
    encoding: dict[str, Any] | None = None
    judged: Judged | None = None

    def facts(self) -> dict[str, Any]:
        """Number of benchmark questions, embedder and encoding, for the report."""
        facts = {"benchmark_questions": len(self.questions), "embedder": self.embedder}
        if self.encoding:
            facts["encoding"] = self.encoding
        return {**facts, "judge": self.judged.info()} if self.judged else facts

    def verdicts(self, text: int) -> dict[str, Any]:
        """The judge's verdicts on a text, for its record; empty if there is no judge."""
        if self.judged is None:
            return {}
        asked = [
            {
                "benchmark": self.questions[suspect.question].benchmark,
                "benchmark_id": self.questions[suspect.question].id,
                "verdict": opinion.verdict,
                "text": opinion.text,
            }
            for suspect, opinion in self.judged.asked.get(text, ())
        ]
        return {"judge": asked, "cleared": self.judged.cleared.get(text)}

    def clean(self, row: int) -> bool:
        """True if a row is neither flagged nor a near-duplicate."""
        text = self.text_of_row[row]
        return self.matches[text].rule is None and text not in self.duplicates


def sweep(findings: Findings, config: ContaminationConfig) -> dict[str, dict[str, int]]:
    """Count the rows that other thresholds would flag.

    Returns:
        Threshold -> number of rows that the embedding flags, that the embedding or the n-grams
        flag, and that any rule flags. Only the threshold varies. The configured threshold is
        included.
    """
    matches = [findings.matches[text] for text in findings.text_of_row]
    limit = config.containment if config.use_ngrams else float("inf")
    result = {}
    for threshold in sorted({*SWEEP, config.threshold}):
        near = [(m.supported_cosine or 0.0) >= threshold for m in matches]
        shared = [m.best_containment >= limit for m in matches]
        result[f"{threshold:.2f}" if threshold in SWEEP else repr(threshold)] = {
            "embedding": sum(near),
            "with_ngrams": sum(a or b for a, b in zip(near, shared, strict=True)),
            "all_rules": sum(
                a or b or m.by_likeness for a, b, m in zip(near, shared, matches, strict=True)
            ),
        }
    return result


def near_misses(matches: Sequence[Match], count: int) -> list[int]:
    """The unflagged texts that are closest to a question, closest first.

    Returns:
        Indices of distinct texts. Closeness is the log-odds; without signatures, the cosine;
        without both, the containment.
    """
    unflagged = [index for index, match in enumerate(matches) if match.rule is None]
    # Sorting is stable, so the earlier of two equally close texts comes first.
    return sorted(unflagged, key=lambda index: -closeness(matches[index]))[:count]


def closeness(match: Match) -> float:
    """How close a text is to its question: by the figure that decides, see ``near_misses``."""
    known = (match.log_odds, match.cosine, match.containment)
    return next(value for value in known if value is not None)
