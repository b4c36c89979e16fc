"""What a train stage warns of."""

from pathlib import Path

import pytest
from train_helpers import train_config

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.train.stage import _warn


@pytest.mark.parametrize(
    ("loss", "correct", "warns"),
    [("opg", 4, True), ("signed_nll", 4, True), ("opg", 5, False), ("rft", 4, False)],
)
def test_few_correct_responses_are_a_warning_if_incorrect_ones_are_pushed_down(
    tmp_path: Path, loss: str, correct: int, warns: bool
) -> None:
    step = {"correct_count": correct, "incorrect_count": 5, "correct_p": 0.5}
    context = StageContext("train", tmp_path / "quarantined.jsonl", Placement())
    _warn([step], train_config(loss=loss), context)
    expected = ["44.4% of the responses trained on are correct"] if warns else []
    assert [warning[:45] for warning in context.warnings] == expected
