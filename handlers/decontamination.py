"""The contamination check as a MindFormers handler.

handler:
  - {type: DecontaminationHandler, benchmark: aime.jsonl, threshold: 0.9}
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.stage import ContaminationConfig, read_questions

if TYPE_CHECKING:
    import datasets


class DecontaminationHandler:
    """Takes benchmark questions out of a data set; the stage ``contamination`` decides alike.

    Args:
        benchmark: File or folder of questions, several, or name -> path.
        field: The column that is compared.
        threads: CPU threads for the embedding.
        settings: Those of ContaminationConfig: threshold, ngrams, containment, model …
    """

    def __init__(
        self, benchmark: Any, field: str = "problem", threads: int = 2, **settings: Any
    ) -> None:
        paths = [benchmark] if isinstance(benchmark, str | Path) else benchmark
        named = paths if isinstance(paths, dict) else {str(path): path for path in paths}
        self.questions = read_questions({name: Path(path) for name, path in named.items()})
        self.field, self.threads, self.config = field, threads, ContaminationConfig(**settings)

    def __call__(self, dataset: datasets.Dataset) -> datasets.Dataset:
        """Return the rows that are in no benchmark, in their order, with all their columns."""
        texts = [text or "" for text in dataset[self.field]]
        findings = check(texts, self.questions, self.config, self.threads)
        kept = [row for row, text in enumerate(texts) if text.strip() and findings.clean(row)]
        dropped = len(dataset) - len(kept)
        logging.getLogger(__name__).info("%d of %d rows taken out", dropped, len(dataset))
        return dataset.select(kept)
