"""Stage ``perplexity``: how likely the responses are under a policy.

It adds two columns to those of its input:

    perplexity      2.31   exp(−mean of log π over the response's tokens); null without tokens
    trained_tokens  882    number of these tokens: the response with its end of turn

The prompt does not count. log π is the natural logarithm at temperature 1. The engine ``model``
computes it with the trainer's own forward pass, the engine ``server`` asks vLLM servers.

    perplexity: {inputs: {responses: sample, problems: unique, policy: base}, seq_length: 32768}
    tidy: {inputs: {responses: perplexity}, max_perplexity: 20}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.perplexity.config import PerplexityConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from pcl_reasoner.perplexity.segments import Segmenting

    Values = npt.NDArray[np.float64]

WORK = "work"
_FIGURES = "perplexity.json"
_COLUMNS = ("problem_id", "sample_index", "response", "token_ids", "finish_reason", "n_tokens")


def perplexity(
    config: PerplexityConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Compute the perplexity of every response; writes the input's files with two columns more.

    Args:
        config: The settings.
        inputs: ``responses``; ``problems`` (clean.parquet); ``policy``, a Hugging Face folder.
        output: The stage's folder; values that a killed run left in it are kept.
        context: With a server, ``placement.server_urls`` or ``placement.sampling``.

    Raises:
        StageError: A response is too long or of another vocabulary, or the engine fails.

    Source: AM-Thinking-v1, arXiv 2505.08311, drops SFT responses by a model's perplexity.
    """
    from pcl_reasoner.core.artifact import write_atomically
    from pcl_reasoner.train.worker import remove_tree

    figures = output / _FIGURES
    # It is written last and atomically; after it, only the work folder is left to delete.
    if not figures.exists():
        counts = _compute(config, inputs, output, context)
        write_atomically(figures, counts.model_dump_json(indent=1) + "\n")
    remove_tree(output / WORK)
    return Counts.model_validate_json(figures.read_text(encoding="utf-8"))


def _compute(
    config: PerplexityConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Compute and write everything but the figures; return the counts."""
    import numpy as np
    import pyarrow as pa

    from pcl_reasoner.core.schemas import PERPLEXITY
    from pcl_reasoner.perplexity.segments import trained_tokens
    from pcl_reasoner.tidy.reading import ResponseFiles

    responses = ResponseFiles(inputs["responses"])
    responses.require(_COLUMNS, "Give the stage responses of `sample`.")
    segmenting = _segmenting(config, inputs)
    segments = segmenting.write(responses, output / WORK / "segments", context)
    means, facts = _mean_log_probs(config, segments, inputs, output, context)
    columns = _Columns(segments, means, responses.total, segmenting.too_long)
    fields = [field for field in responses.schema if field.name not in PERPLEXITY.names]
    kept = responses.rewrite(output, pa.schema([*fields, *PERPLEXITY]), columns.add)
    tokens = trained_tokens(segments)
    too_long = len(segmenting.too_long)
    info = {
        "engine": config.engine,
        "trained_tokens": int(tokens.sum()),
        "without_tokens": kept - len(segments),
        "log_prob_mean": float(np.average(means, weights=tokens)) if len(means) else None,
        **facts,
    }
    dropped = {"over_length": too_long} if too_long else {}
    return Counts(unit="responses", read=responses.total, kept=kept, dropped=dropped, info=info)


def _segmenting(config: PerplexityConfig, inputs: Mapping[str, Path]) -> Segmenting:
    from pcl_reasoner.grade.reading import prompt_columns
    from pcl_reasoner.pack.encoder import load_encoder
    from pcl_reasoner.perplexity.segments import Segmenting
    from pcl_reasoner.prompt.model_files import read_json
    from pcl_reasoner.prompt.trained import check_prompt

    prompt = (config.system, config.suffix, config.template)
    check_prompt(inputs["policy"], *prompt)
    encoder = load_encoder(inputs["policy"], *prompt)
    shape = read_json(inputs["policy"] / "config.json")
    vocabulary = shape.get("vocab_size") or encoder.tokenizer.get_vocab_size()
    problems = prompt_columns(inputs["problems"], config.suffix)
    return Segmenting(config, encoder, int(vocabulary), problems)


def _mean_log_probs(
    config: PerplexityConfig,
    segments: pa.Table,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> tuple[Values, dict[str, Any]]:
    """Return the mean log π of each segment, and facts about the servers.

    Raises:
        StageError: A value is not a number.
    """
    import numpy as np

    from pcl_reasoner.perplexity.by_model import log_probs_by_model
    from pcl_reasoner.perplexity.by_server import log_probs_by_server
    from pcl_reasoner.sample.generate import log_beside

    if not len(segments):
        return np.empty(0), {}
    log, work = log_beside(output, config.engine), output / WORK
    facts: dict[str, Any] = {}
    if config.engine == "model":
        means = log_probs_by_model(config, segments, inputs["policy"], work, log, context)
    else:
        answers = work / "log_probs.jsonl"
        means, facts = log_probs_by_server(
            config, segments, inputs["policy"], answers, log, context, inputs.get("proof")
        )
    if np.isnan(means).any():
        row = segments.slice(int(np.isnan(means).argmax()), 1).to_pylist()[0]
        raise StageError(
            f"response {row['sample_index']} of problem {row['problem_id']}: its log-probs are "
            f"not numbers, as are those of {int(np.isnan(means).sum())} responses in all. Check "
            "the policy's weights, or use a precision with a larger range."
        )
    return means, facts


class _Columns:
    """Adds the columns to batches of responses, in the order of the files.

    Args:
        segments: The segments, in the order of the responses.
        means: [segments] mean log π.
        total: Number of responses.
        too_long: Rows that are dropped.
    """

    def __init__(self, segments: pa.Table, means: Values, total: int, too_long: set[int]) -> None:
        import numpy as np

        self.segments, self.too_long, self.done = segments, too_long, 0
        with np.errstate(over="ignore"):
            self.perplexities = np.exp(-means).astype(np.float32)
        self.segment_of = np.full(total, -1, np.int64)
        """[responses] index of the segment; -1: the response has none."""
        self.segment_of[segments["row"].to_numpy()] = np.arange(len(segments))

    def add(self, file: str, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the two columns, and with the token ids that were used."""
        import numpy as np
        import pyarrow as pa

        from pcl_reasoner.core.schemas import PERPLEXITY
        from pcl_reasoner.perplexity.segments import response_ids

        rows = range(self.done, self.done + batch.num_rows)
        self.done += batch.num_rows
        empty = np.empty(0, np.int32)
        indices = self.segment_of[rows.start : rows.stop].tolist()
        tokens = [response_ids(self.segments, i) if i >= 0 else empty for i in indices]
        found = [float(self.perplexities[i]) if i >= 0 else None for i in indices]
        lengths = pa.array([len(ids) for ids in tokens], pa.int32())
        new = {
            "token_ids": pa.array(tokens, pa.list_(pa.int32())),
            "n_tokens": lengths,
            "perplexity": pa.array(found, pa.float32()),
            "trained_tokens": lengths,
        }
        names = [name for name in batch.schema.names if name not in PERPLEXITY.names]
        columns = {name: new.get(name, batch[name]) for name in names}
        columns |= {name: new[name] for name in PERPLEXITY.names}
        changed = pa.RecordBatch.from_pydict(columns)
        return changed.filter(pa.array([row not in self.too_long for row in rows]))
