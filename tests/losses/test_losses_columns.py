"""Every ``construct`` takes the columns in the one order that there is."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import LOSS_COLUMNS, ROW_COLUMNS, column_names

LOSS = ["log_probs", "mean", *LOSS_COLUMNS]


def parameters(cell: Any) -> list[str]:
    """Names of what ``construct`` takes, without what gathers the rest."""
    found = inspect.signature(cell.construct).parameters.values()
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in found if one.name != "self" and one.kind not in gathers]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_takes_the_first_of_them_in_order(name: str) -> None:
    module = importlib.import_module(f"pcl_reasoner.losses.{name}")
    taken = parameters(getattr(module, LOSSES[name].cell))
    assert taken == LOSS[: len(taken)]
    assert set(taken) >= LOSSES[name].needs


def test_the_model_and_what_looks_at_it_take_all_of_them() -> None:
    from pcl_reasoner.trainer.figures import StepFigures
    from pcl_reasoner.trainer.forward_cell import Forward
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from pcl_reasoner.trainer.model import PclQwen2ForCausalLM

    masks = ["attention_mask", "actual_seq_len"]
    assert parameters(PclQwen2ForCausalLM) == [*ROW_COLUMNS, *masks]
    # Both gather the others.
    figures = ["tokens", "entropies", *LOSS[:9]]
    for cell, names in ((Forward, [*ROW_COLUMNS, "mask"]), (StepFigures, figures)):
        taken = parameters(cell)
        assert len(taken) >= 4 and taken == names[: len(taken)]
    assert [column_names(compressed)[-1] for compressed in (False, True)] == masks
