"""The columns of every artifact that is a table.

A column name has the same meaning in all tables. If a table extends the one before it, only the
added columns are listed here.
"""

import pyarrow as pa

Key = tuple[str, int]
"""(problem_id, sample_index), the key of a response."""

ROWS = pa.schema(
    [
        ("row_id", pa.string()),
        ("problem_id", pa.string()),
        ("problem", pa.string()),
        ("cot", pa.string()),
        ("ground_truth", pa.string()),
        ("problem_source", pa.string()),
        ("extra", pa.string()),
    ]
)
"""``convert``: rows/*.parquet."""
PASS_COUNTS = pa.schema([("pass_count", pa.int32()), ("pass_rate", pa.float32())])
"""``difficulty``: added to ROWS."""
LENGTHS = pa.schema([("cot_tokens", pa.int32()), ("mean_cot_tokens", pa.float32())])
"""``lengths``: added to ROWS and PASS_COUNTS."""
PROBLEMS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("problem", pa.string()),
        ("ground_truth", pa.string()),
        ("pass_rate", pa.float32()),
        ("mean_cot_tokens", pa.float32()),
        ("source_row_id", pa.string()),
    ]
)
"""``unique``: problems.parquet; ``contamination``: clean.parquet."""
RESPONSES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("response", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("n_tokens", pa.int32()),
        ("seed", pa.int64()),
        ("seconds", pa.float32()),
        ("server", pa.string()),
    ]
)
"""``sample``: responses/*.parquet."""
VERDICTS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("verdict", pa.string()),
        ("reward", pa.float32()),
        ("answer", pa.string()),
        ("graded_by", pa.string()),
        ("judge_text", pa.string()),
    ]
)
"""``grade``: verdicts.parquet."""
REWARDED = pa.schema(
    [("reward", pa.float32()), ("pass_rate", pa.float32()), ("advantage", pa.float32())]
)
"""``select``: responses.parquet; these columns are added to RESPONSES."""
SEGMENTS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("length", pa.int32()),
        ("reward", pa.float32()),
        ("pass_rate", pa.float32()),
        ("advantage", pa.float32()),
    ]
)
"""``tokenize``: an Arrow folder; ``advantage`` is null if the data have none."""
OLD_LOG_PROBS = pa.schema(
    [("old_log_probs", pa.list_(pa.float32())), ("old_log_probs_mean", pa.float32())]
)
"""``old_log_probs``: an Arrow folder; these columns are added to SEGMENTS."""
PACKED_ROWS = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("actual_seq_len", pa.list_(pa.int32())),
        ("segment_ids", pa.list_(pa.int32())),
        ("rewards", pa.list_(pa.float32())),
        ("pass_rates", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("problem_ids", pa.list_(pa.string())),
        ("sample_indices", pa.list_(pa.int32())),
    ]
)
"""``pack``: an Arrow folder."""
PACKED_OLD_LOG_PROBS = pa.schema(
    [("old_log_probs", pa.list_(pa.float32())), ("old_log_probs_mean", pa.list_(pa.float32()))]
)
"""``pack``: added to PACKED_ROWS if the segments come from the stage ``old_log_probs``."""
PER_PROBLEM = pa.schema(
    [
        ("benchmark", pa.string()),
        ("id", pa.string()),
        ("n", pa.int32()),
        ("correct", pa.int32()),
        ("avg", pa.float32()),
    ]
)
"""``evaluate``: per_problem.parquet."""
