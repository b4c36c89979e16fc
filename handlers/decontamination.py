"""The contamination check as a MindFormers handler.

handler: [{type: DecontaminationHandler, benchmark: aime.jsonl, threshold: 0.9}]
"""

from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.reading import question_of, read_questions
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.handlers.common import report


class DecontaminationHandler:
    """Removes benchmark questions from a data set, as the stage ``contamination`` does.

    Args:
        benchmark: A file or folder of questions, a list of such paths, or name -> path.
        field: The column to compare; in ``conversations``, only the first user turn is compared.
        threads: CPU threads for the embedding.
        settings: Settings of ContaminationConfig: threshold, ngrams, containment, model …
    """

    def __init__(
        self, benchmark: Any, field: str = "problem", threads: int = 2, **settings: Any
    ) -> None:
        paths = [benchmark] if isinstance(benchmark, str | Path) else benchmark
        named = paths if isinstance(paths, dict) else {str(path): path for path in paths}
        self.questions = read_questions({name: Path(path) for name, path in named.items()})
        self.field, self.threads, self.config = field, threads, ContaminationConfig(**settings)

    def __call__(self, dataset: Any) -> Any:
        """Remove a datasets.Dataset's rows that are in a benchmark or have no text; keep the order.

        Raises:
            InputError: The data has no column ``field``.
        """
        if self.field not in dataset.column_names:
            raise InputError(
                f"DecontaminationHandler: field is {self.field}, the data has "
                f"{', '.join(dataset.column_names)}. Name the question's column with `field`."
            )
        rows = dataset.select_columns([self.field])
        texts = [question_of(row, self.field) or "" for row in rows]
        findings = check(texts, self.questions, self.config, self.threads)
        with_text = [row for row, text in enumerate(texts) if text.strip()]
        kept = [row for row in with_text if findings.clean(row)]
        dropped = {
            "contaminated": len(with_text) - len(kept),
            "no_problem": len(texts) - len(with_text),
        }
        report("DecontaminationHandler", len(texts), len(kept), dropped)
        return dataset.select(kept)
