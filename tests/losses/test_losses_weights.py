"""Every loss through MindFormers' model, on packed rows: the gradient of all weights is PyTorch's.

One compiled graph holds all losses and adds them up by shares that are set between calls: the
model takes seconds to compile, and it is the same for each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from losses_helpers import torch_loss
from mindspore import Parameter, Tensor, nn
from model_helpers import build
from train_helpers import LENGTH, PLACES, write_packs, write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.losses import LOSSES, VARIANTS, Loss, build_loss
from pcl_reasoner.losses.segments import Batch
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.trainer.rows import model_row, trained_counts
from pcl_reasoner.weights.names import mindformers_name

pytestmark = pytest.mark.slow

NAMES = list(VARIANTS)
SIZES = [9, 14, 6, 5, 17, 8, 25]


class AllLosses(nn.Cell):
    """Σ shares · losses."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.losses = nn.CellList(
            [build_loss(loss, places, parameters) for loss, parameters in VARIANTS.values()]
        )
        self.shares = Parameter(Tensor([0.0] * len(NAMES), ms.float32), requires_grad=False)

    def construct(self, log_probs, mean, *columns):
        total = 0.0
        for index in range(len(self.losses)):
            total = total + self.shares[index] * self.losses[index](log_probs, mean, *columns)
        return total


@dataclass(frozen=True)
class Both:
    """One model and the same rows for MindFormers and PyTorch."""

    ours: Any
    columns: list[Any]
    gradient: Any
    theirs: Any
    rows: list[dict[str, Any]]
    batch: Batch

    def by_mindformers(self, name: str) -> tuple[float, dict[str, np.ndarray]]:
        """The loss, and its gradient by each weight."""
        shares = Tensor([float(name == other) for other in NAMES], ms.float32)
        print([p.name for p in self.ours.get_parameters()])
        (parameter,) = (p for p in self.ours.get_parameters() if p.name.endswith(".shares"))
        parameter.assign_value(shares)
        value, found = self.gradient(*self.columns)
        trained = [parameter.name for parameter in self.ours.trainable_params()]
        arrays = (array.asnumpy() for array in found)
        return float(value.asnumpy()), dict(zip(trained, arrays, strict=True))

    def by_pytorch(self, name: str) -> tuple[float, dict[str, np.ndarray]]:
        self.theirs.zero_grad()
        value, _ = torch_loss(name, self.batch, torch_log_probs(self.theirs, self.rows))
        return value, {
            mindformers_name(key): parameter.grad.numpy()
            for key, parameter in self.theirs.named_parameters()
        }


def torch_log_probs(model: Any, rows: list[dict[str, Any]]) -> Any:
    """[B, S] by transformers, every segment on its own, at the places that predict; else 0."""
    found = []
    for row in rows:
        parts, start = [], 0
        for end in row["actual_seq_len"]:
            ids = torch.tensor([row["input_ids"][start:end]])
            of_next = model(ids).logits[0, :-1].log_softmax(-1)
            parts += [of_next.gather(1, ids[0, 1:, None])[:, 0], torch.zeros(1)]
            start = end
        found.append(torch.cat([*parts, torch.zeros(LENGTH - start)]))
    return torch.stack(found)


def with_old_log_probs(rows: list[dict[str, Any]], log_probs: np.ndarray) -> list[dict[str, Any]]:
    """Rows with the columns of an old policy that is a little off this one."""
    rng = np.random.default_rng(1)
    made = []
    for row, values in zip(rows, log_probs, strict=True):
        # As `old_log_probs` writes them: each on its own token.
        old = np.concatenate([[0.0], values[:-1]]) + rng.normal(0, 0.3, LENGTH)
        trained = np.array(row["labels"]) != -100
        segments = np.array(row["segment_ids"])
        counts = range(len(row["rewards"]))
        means = [old[trained & (segments == number)].mean() for number in counts]
        rates = [0.25, 0.75, 0.5, 0.4][: len(row["rewards"])]
        columns = {"old_log_probs": old.tolist(), "old_log_probs_mean": means}
        made.append({**row, **columns, "pass_rates": rates})
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("both")
    policy = write_policy(folder / "policy")
    plain = read_arrow_folder(write_packs(folder / "packs", SIZES)).to_pylist()
    theirs = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.float64).eval()
    with torch.no_grad():
        rows = with_old_log_probs(plain, torch_log_probs(theirs, plain).numpy())
    segments, tokens = np.sum([trained_counts(row) for row in rows], axis=0)
    made = [model_row(row, PLACES, 1 / segments, 1 / tokens, False) for row in rows]
    named = {name: np.stack([row[name] for row in made]) for name in made[0]}
    given = {key: named[key] for key in named if key in Batch.__dataclass_fields__}
    zeros = np.zeros(named["labels"].shape, np.float32)
    trained = (named["labels"] != -100).astype(np.float32)
    batch = Batch(log_probs=zeros, trained=trained, **given)
    with pytest.MonkeyPatch.context() as patch:
        # Found by name, as any loss is.
        module = ModuleType("pcl_reasoner.losses.all_losses")
        module.AllLosses = AllLosses  # type: ignore[attr-defined]
        patch.setitem(sys.modules, module.__name__, module)
        patch.setitem(LOSSES, "all_losses", Loss("AllLosses", "segment"))
        ours = build(policy, loss="all_losses")
        ours.set_train(True)
        gradient = ms.value_and_grad(ours, None, ours.trainable_params())
        columns = [Tensor(array) for array in named.values()]
        yield Both(ours, columns, gradient, theirs, rows, batch)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_all_weights_is_pytorchs(name: str, both: Both) -> None:
    value, ours = both.by_mindformers(name)
    expected, theirs = both.by_pytorch(name)
    assert value == pytest.approx(expected, rel=5e-5, abs=1e-6)
    assert ours.keys() == theirs.keys()
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    assert largest > 5e-4
    for key, gradient in theirs.items():
        # Float32 through a model whose logits are up to 30, against float64.
        np.testing.assert_allclose(ours[key], gradient, atol=2e-5 * largest, err_msg=key)
