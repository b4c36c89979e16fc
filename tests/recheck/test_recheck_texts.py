"""Which texts of a proof are compared at a server's start; numbers worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from proved_server import LIMITS, write_proof
from sample_helpers import model_folder

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.recheck.limits import Limits
from pcl_reasoner.recheck.texts import Text, few, read_proof
from pcl_reasoner.weights.identity import weights_hash


def text(length: int) -> Text:
    return Text(list(range(length)), np.zeros(length - 1, np.float32))


def lengths(texts: list[Text]) -> list[int]:
    return [len(one.token_ids) for one in texts]


def test_the_four_shortest_or_more_until_there_are_200_log_probs() -> None:
    assert lengths(few([text(n) for n in (900, 51, 54, 53, 52)])) == [51, 52, 53, 54]
    # 50 + 49 + 51 + 49 = 199: one more is taken; with 200 it is not.
    assert lengths(few([text(n) for n in (51, 50, 52, 50, 60)])) == [50, 50, 51, 52, 60]
    assert lengths(few([text(n) for n in (51, 51, 52, 50, 60)])) == [50, 51, 51, 52]
    assert lengths(few([text(n) for n in (9, 3)])) == [3, 9]


def test_a_text_is_cut_to_what_a_server_takes() -> None:
    cut = Text([5, 6, 7, 8], np.array([-1, -2, -3], np.float32)).cut(3)
    assert (cut.token_ids, cut.log_probs.tolist()) == ([5, 6, 7], [-1, -2])


def test_a_proof_is_read_as_it_was_written(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "m")
    proof = read_proof(write_proof(tmp_path / "prove", model, (3, 9)), 8)
    assert (proof.weights, proof.limits) == (weights_hash(model), Limits(**LIMITS))
    assert lengths(proof.texts) == [3, 8]
    # Tokens 3, 4, 5: the log-prob of 4 at place 1 is −(4 + 1) / 10 − 0.25, of 5 at 2 −0.6.
    assert proof.texts[0].log_probs == pytest.approx([-0.75, -0.6])
    (tmp_path / "prove" / "texts.parquet").unlink()
    with pytest.raises(StageError, match="has no proof.json with texts.parquet"):
        read_proof(tmp_path / "prove", 8)
