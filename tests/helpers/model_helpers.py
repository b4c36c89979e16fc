"""MindFormers' model in this process: built as a rendered YAML says, with a folder's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from train_helpers import train_config

from pcl_reasoner.train.render import render
from pcl_reasoner.train.shape import shape_of
from pcl_reasoner.trainer.rows import model_row
from pcl_reasoner.weights.conversion import write_mindformers


def build(policy: Path, **changes: Any) -> Any:
    """PclQwen2ForCausalLM in graph mode on the CPU.

    Args:
        policy: A Hugging Face folder.
        changes: Keys of the rendered model_config that are to be others.
    """
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    import mindspore as ms

    from pcl_reasoner.trainer.mindformers_1_8 import install_cpu_operators
    from pcl_reasoner.trainer.model import PclQwen2Config, PclQwen2ForCausalLM

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    install_cpu_operators()
    config = train_config()
    paths = {"packs": "", "policy": "", "metrics": "", "output_dir": ""}
    settings = render(config, shape_of(config, policy), paths)["model"]["model_config"] | changes
    settings.pop("type")
    model = PclQwen2ForCausalLM(PclQwen2Config(**settings))
    weights = policy / "mindformers.safetensors"
    if not weights.exists():
        write_mindformers(policy, weights)
    ms.load_checkpoint(str(weights), model, format="safetensors")
    return model


def columns(rows: list[dict[str, Any]], places: int, compressed: bool = False) -> dict[str, Any]:
    """A batch of packed rows as the keywords of ``construct``; each row weighs as if alone."""
    import mindspore as ms

    given = [model_row(row, places, 0.5, 0.1, compressed) for row in rows]
    return {name: ms.Tensor(np.stack([row[name] for row in given])) for name in given[0]}


def logits_cell(model: Any) -> Any:
    """A Cell: input_ids, attention_mask, position_ids -> logits [B, S, V]."""
    from mindspore import nn

    class Logits(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def construct(self, input_ids, attention_mask, position_ids):
            hidden = self.model.model(
                input_ids, attention_mask=attention_mask, position_ids=position_ids
            )
            return self.model.lm_head(hidden)

    return Logits()


def loss_and_gradients(model: Any, given: dict[str, Any]) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of a batch, and the gradient of every weight by its name.

    Args:
        model: As ``build`` gives it.
        given: As ``columns`` gives it.
    """
    import mindspore as ms
    from mindspore import nn

    class LossAndGradients(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.weights = ms.ParameterTuple(model.trainable_params())
            self.both = ms.value_and_grad(model, None, self.weights)

        def construct(self, *values):
            return self.both(*values)

    # In construct's order, where attention_mask and actual_seq_len are last.
    *others, mask = given.values()
    masks = (None, mask) if "actual_seq_len" in given else (mask,)
    cell = LossAndGradients()
    loss, gradients = cell(*others, *masks)
    found = {w.name: g.asnumpy() for w, g in zip(cell.weights, gradients, strict=True)}
    return float(loss.asnumpy()), found
