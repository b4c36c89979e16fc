"""Names of the logs in a running stage's folder; they are deleted when the stage has finished."""

TEST_LOG = "tests.partial.jsonl"
"""Results of programs (programs.py)."""
SCORE_LOG = "scores.partial.jsonl"
"""Scores of the reward model (preference.py)."""
RATING_LOG = "ratings.partial.jsonl"
"""Ratings by the rubric (grade/rubric.py)."""
REWARD_LOG = "rewards.partial.jsonl"
"""Rewards by a function of the user's own (python_reward.py)."""
LOGS = (TEST_LOG, SCORE_LOG, RATING_LOG, REWARD_LOG)
