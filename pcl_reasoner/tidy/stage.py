"""Stage ``tidy``: drops responses with a high perplexity, repeated phrases or a wrong structure.

The files and columns are those of its input. histograms.json has what the filters measured of all
responses that were read:

    {"perplexity": {"edges": [1, 1.189207, …], "counts": [0, 12, …], "limit": 20.0, …},
     "repeats": {…, "limit": 4}, "tokens": {…, "limit": null}}

A response that fails several filters is counted under the first in the order high_perplexity,
repeated_phrase, incomplete_structure. ``info`` counts each filter alone.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.tidy.config import TidyConfig
from pcl_reasoner.tidy.structure import Problem, structure_problem

if TYPE_CHECKING:
    import pyarrow as pa

    from pcl_reasoner.tidy.repeats import Tokens

_COLUMNS = ("problem_id", "sample_index", "response", "finish_reason", "token_ids")
_WHOLE_EDGES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_TOKEN_EDGES = (0.0, 64.0)


def tidy(
    config: TidyConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep the responses that pass all filters; writes the input's files and histograms.json.

    Args:
        config: The thresholds.
        inputs: ``responses``: an artifact with responses; it needs the column ``perplexity`` unless
            max_perplexity is null.
        output: The stage's folder.
        context: Receives progress and the dropped responses.

    Raises:
        StageError: There are no responses, a column is missing, or no response is left.

    Source: AM-Thinking-v1, arXiv 2505.08311, the filters of its SFT responses.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.tidy.reading import ResponseFiles

    responses = ResponseFiles(inputs["responses"])
    responses.require(_COLUMNS, "Give the stage responses of `sample`.")
    if config.max_perplexity is not None:
        responses.require(
            ["perplexity"], "Run the stage `perplexity` before, or set max_perplexity to null."
        )
    filtering = _Filtering(config, context, responses.total)
    kept = responses.rewrite(output, responses.schema, filtering.keep)
    write_json(output / "histograms.json", filtering.histograms())
    if not kept:
        raise StageError(
            f"no response is left of {responses.total} (dropped: {dict(filtering.dropped)}; "
            f"structure: {dict(filtering.structure)}). {output}/histograms.json shows what was "
            "measured: raise max_perplexity, set repeat to none, or set tags to think_only for "
            "responses without answer tags."
        )
    return Counts(
        unit="responses",
        read=responses.total,
        kept=kept,
        dropped=dict(sorted(filtering.dropped.items())),
        info={
            "failed": dict(sorted(filtering.failed.items())),
            "structure": dict(sorted(filtering.structure.items())),
        },
    )


class _Filtering:
    """Applies the filters to batches, and collects what they measure."""

    def __init__(self, config: TidyConfig, context: StageContext, total: int) -> None:
        self.config, self.context, self.total = config, context, total
        self.dropped = Counter[str]()
        """Reason -> responses; each response has one reason."""
        self.failed = Counter[str]()
        """Filter -> responses that it would drop alone."""
        self.structure = Counter[Problem]()
        """What is incomplete -> responses."""
        self.perplexities, self.repeats, self.tokens = array("d"), array("d"), array("d")

    def keep(self, file: str, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that pass all filters; the others are quarantined.

        Args:
            file: Name of the batch's file.
            first: Index of its first row in the file.
            batch: The responses.
        """
        import pyarrow as pa

        from pcl_reasoner.tidy.reading import tokens_at

        present = [name for name in batch.schema.names if name != "token_ids"]
        records = batch.select(present).to_pylist()
        reasons = []
        for index, record in enumerate(records):
            tokens = tokens_at(batch["token_ids"], index)
            reasons.append(self._reason(record, tokens, file, first + index))
        self.context.progress.update(len(self.tokens), self.total, "responses", file)
        return batch.filter(pa.array([reason is None for reason in reasons]))

    def _reason(self, record: Mapping[str, Any], tokens: Tokens, file: str, row: int) -> str | None:
        """Return why a response is dropped; None if it is kept."""
        problem = self._structure_problem(record, tokens)
        fails = {
            "high_perplexity": self._is_perplexing(record),
            "repeated_phrase": self._repeats(tokens),
            "incomplete_structure": problem is not None,
        }
        self.tokens.append(len(tokens))
        reasons = [reason for reason, fail in fails.items() if fail]
        self.failed.update(reasons)
        if problem:
            self.structure[problem] += 1
        if not reasons:
            return None
        self.dropped[reasons[0]] += 1
        shown = {name: record.get(name) for name in ("problem_id", "sample_index", "perplexity")}
        raw = {**shown, "structure": problem, "response": record["response"]}
        self.context.quarantine(file, row, reasons[0], json.dumps(raw, ensure_ascii=False))
        return reasons[0]

    def _is_perplexing(self, record: Mapping[str, Any]) -> bool:
        perplexity = record.get("perplexity")
        self.perplexities.append(float("nan") if perplexity is None else perplexity)
        limit = self.config.max_perplexity
        # Written so that NaN fails.
        return limit is not None and perplexity is not None and not perplexity <= limit

    def _repeats(self, tokens: Tokens) -> bool:
        from pcl_reasoner.tidy.repeats import longest_repeat, most_frequent

        size = self.config.min_tokens
        if self.config.repeat == "none":
            return False
        if self.config.repeat == "count":
            self.repeats.append(most_frequent(tokens, size))
            return self.repeats[-1] > self.config.max_occurrences
        found = longest_repeat(tokens, size)
        self.repeats.append(found.times if found else 1)
        return self.repeats[-1] >= self.config.times

    def _structure_problem(self, record: Mapping[str, Any], tokens: Tokens) -> Problem | None:
        # The stage `perplexity` gives null to a response without tokens.
        unscored = self.config.max_perplexity is not None and record["perplexity"] is None
        if not len(tokens) or unscored:
            return "no_tokens"
        return structure_problem(
            record["response"] or "", record["finish_reason"], self.config.tags
        )

    def histograms(self) -> dict[str, Any]:
        """Return histograms of perplexity, repeats and lengths; ``limit`` is the threshold."""
        from pcl_reasoner.tidy.histogram import histogram

        config = self.config
        limits = {"consecutive": config.times, "count": config.max_occurrences, "none": None}
        return {
            "perplexity": histogram(self.perplexities, config.max_perplexity, (1.0,)),
            "repeats": histogram(self.repeats, limits[config.repeat], _WHOLE_EDGES),
            "tokens": histogram(self.tokens, None, _TOKEN_EDGES),
        }
