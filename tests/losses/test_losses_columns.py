"""Every ``construct`` takes and passes the columns in the one order that there is."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
from mindspore import Tensor

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import LOSS_COLUMNS, ROW_COLUMNS, column_names

LOSS = ["log_probs", "mean", *LOSS_COLUMNS]
ROW = {name: Tensor([float(number)]) for number, name in enumerate(ROW_COLUMNS, 1)}
"""A different number for each column, so that a column in the wrong position is seen."""


def parameters(cell: Any) -> list[str]:
    """Names of what ``construct`` takes, without what gathers the rest."""
    found = inspect.signature(cell.construct).parameters.values()
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in found if one.name != "self" and one.kind not in gathers]


class Model:
    """The parts of the model that its ``construct`` and Forward's call; it keeps what they pass."""

    ignore_token_id = -100
    is_flash = is_compressed = has_mismatch = True
    figures = None

    def __init__(self) -> None:
        self.passed: dict[str, list[float]] = {}

    def keep(self, name: str, columns: Any) -> Tensor:
        self.passed[name] = [column.asnumpy().item() for column in columns]
        return Tensor([0.0])

    def label_log_probs(self, *columns: Any) -> Any:
        self.keep("labels", [column for column in columns if column is not None])
        return Tensor([101.0]), Tensor([102.0])

    def segment_means(self, *columns: Any) -> Any:
        return Tensor([103.0]), Tensor([104.0])

    def policy_loss(self, *columns: Any) -> Any:
        return self.keep("loss", columns)

    def step_figures(self, *columns: Any) -> Any:
        return self.keep("figures", columns)

    def mismatch(self, *columns: Any) -> Tensor:
        return self.keep("mismatch", columns)

    def add_figures(self, *_: Any) -> Tensor:
        return Tensor([0.0])


def expected_loss() -> list[float]:
    made = {"log_probs": 101.0, "mean": 103.0, "trained": 1.0}
    given = {name: float(number) for number, name in enumerate(ROW_COLUMNS, 1)}
    return [(made | given)[name] for name in LOSS]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_takes_the_first_of_them_in_order(name: str) -> None:
    module = importlib.import_module(f"pcl_reasoner.losses.{name}")
    taken = parameters(getattr(module, LOSSES[name].cell))
    assert taken == LOSS[: len(taken)]
    assert set(taken) >= set(LOSSES[name].needs({}))


def test_the_model_takes_all_of_them_and_passes_them_on() -> None:
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from pcl_reasoner.trainer.model import PclQwen2ForCausalLM

    masks = ["attention_mask", "actual_seq_len"]
    assert parameters(PclQwen2ForCausalLM) == [*ROW_COLUMNS, *masks]
    assert [column_names(compressed)[-1] for compressed in (False, True)] == masks
    model = Model()
    PclQwen2ForCausalLM.construct(model, **ROW, actual_seq_len=Tensor([50.0]))
    # label_log_probs takes input_ids, labels, position_ids and the mask.
    assert model.passed["labels"] == [1.0, 2.0, 3.0, 50.0]
    assert model.passed["loss"] == expected_loss()
    assert model.passed["figures"] == [104.0, 102.0, *expected_loss()]
    old_log_probs = float(ROW_COLUMNS.index("old_log_probs") + 1)
    assert model.passed["mismatch"] == [101.0, old_log_probs, 1.0]


@pytest.mark.parametrize("compressed", [False, True])
def test_the_forward_pass_gives_the_loss_the_columns_of_a_row(compressed: bool) -> None:
    from pcl_reasoner.trainer.forward_cell import Forward

    model = Model()
    cell = SimpleNamespace(
        model=model,
        compressed=compressed,
        gradient=True,
        gradients=lambda loss: lambda *columns: (loss(*columns), Tensor([0.0])),
        to_tokens=lambda values, segment_ids: values,
    )
    Forward.construct(cell, *ROW.values(), Tensor([50.0]))
    assert parameters(Forward) == list(ROW_COLUMNS[:4])
    assert model.passed["labels"] == [1.0, 2.0, 3.0, 50.0]
    assert model.passed["loss"] == expected_loss()


def test_the_figures_name_the_columns_by_their_positions() -> None:
    from pcl_reasoner.trainer.figures import StepFigures

    assert parameters(StepFigures) == ["tokens", "entropies", *LOSS[:2]]
    tree = ast.parse(textwrap.dedent(inspect.getsource(StepFigures.construct)))
    [names] = [
        [ast.unparse(one) for one in node.targets[0].elts]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("columns[")
    ]
    assert len(names) == 7
    for name, column in zip(names, LOSS_COLUMNS, strict=False):
        assert name in (column, "_")
