"""The columns of every artifact that is a table.

A column name has the same meaning in all tables. If a table extends another table, only
the added columns are listed here.
"""

import pyarrow as pa

Key = tuple[str, int]
"""(problem_id, sample_index), the key of a response."""


def _columns(text: str) -> pa.Schema:
    """Parse a list of columns, e.g. ``problem_id string, input_ids list<int32>``, to a schema."""
    found = []
    for column in text.split(","):
        name, kind = column.split()
        item = pa.type_for_alias(kind.removeprefix("list<").rstrip(">"))
        found.append((name, pa.list_(item) if kind.startswith("list<") else item))
    return pa.schema(found)


ROWS = _columns(
    """
    row_id string, problem_id string, problem string, cot string, ground_truth string,
    problem_source string, extra string, kind string, checks string
    """
)
"""``convert``: rows/*.parquet. ``kind``: math, code, instruction, chat or science. ``checks``:
JSON, what a verifier needs, or empty. Rows that were written without these columns are of math."""
PASS_COUNTS = _columns("pass_count int32, pass_rate float32")
"""``difficulty``: these columns are added to those of ``rows``."""
LENGTHS = _columns("cot_tokens int32, mean_cot_tokens float32")
"""``lengths``: these columns are added to those of ``rows`` and pass counts."""
PROBLEMS = _columns(
    """
    problem_id string, problem string, ground_truth string, pass_rate float32,
    mean_cot_tokens float32, source_row_id string, kind string, checks string
    """
)
"""``unique``: problems.parquet; ``contamination``: clean.parquet (V1: the columns of rows)."""
RESPONSES = _columns(
    """
    problem_id string, sample_index int32, response string, token_ids list<int32>,
    finish_reason string, n_tokens int32, seed int64, seconds float32, server string
    """
)
"""``sample``: responses/*.parquet."""
PERPLEXITY = _columns("perplexity float32, trained_tokens int32")
"""``perplexity``: these columns are added to those of responses."""
VERDICTS = _columns(
    """
    problem_id string, sample_index int32, verdict string, reward float32, answer string,
    graded_by string, judge_text string, score float32, detail string
    """
)
"""``grade``: verdicts.parquet. ``score``: the raw number behind the reward, e.g. the share of tests
that passed; null for a program whose tests stopped at the first failure (``code_reward: all``), as
that share is then not known. ``detail``: JSON, e.g. the first test that failed. Null where there is
none."""
REWARDED = _columns("reward float32, pass_rate float32, advantage float32")
"""``select``: responses.parquet; these columns are added to those of responses."""
SEGMENTS = _columns(
    """
    problem_id string, sample_index int32, input_ids list<int32>, labels list<int32>,
    length int32, reward float32, pass_rate float32, advantage float32
    """
)
"""``tokenize``: an Arrow folder; ``advantage`` is null if the data have none."""
OLD_LOG_PROBS = _columns("old_log_probs list<float32>, old_log_probs_mean float32")
"""``old_log_probs``: an Arrow folder; these columns are added to those of segments."""
PROVED_TEXTS = _columns(
    "problem_id string, sample_index int32, input_ids list<int32>, log_probs list<float32>"
)
"""``prove``: texts.parquet. ``log_probs``: the trained checkpoint's, of every token but the first.
"""
PACKED_ROWS = _columns(
    """
    input_ids list<int32>, labels list<int32>, actual_seq_len list<int32>,
    segment_ids list<int32>, rewards list<float32>, pass_rates list<float32>,
    advantages list<float32>, problem_ids list<string>, sample_indices list<int32>,
    trained_segments int32, trained_tokens int32
    """
)
"""``pack``: an Arrow folder."""
PACKED_OLD_LOG_PROBS = _columns("old_log_probs list<float32>, old_log_probs_mean list<float32>")
"""``pack``: added to the columns of packed rows if the segments come from ``old_log_probs``."""
ROUND_RESPONSES = _columns(
    """
    sampled_log_probs list<float32>, round int32, kind string, verdict string, reward float32,
    score float32, detail string, advantage float32
    """
)
"""``rl``: responses/*.parquet; these columns are added to those of responses. Null rewards and
advantages: the request failed, or the loss is not a mean over this response."""
VISITS = _columns(
    """
    problem_id string, kind string, round int32, n int32, reward_mean float32, all_correct bool,
    overlong int32
    """
)
"""``rl``: visits.parquet, one row per round and problem that it asked. ``n``: answered responses;
``all_correct``: each of them has the reward 1; ``overlong``: those that reached the token limit."""
PER_PROBLEM = _columns("benchmark string, id string, n int32, correct int32, avg float32")
"""``evaluate``: per_problem.parquet."""
