"""What one rank computes of a loss: the trained model from its hidden states on.

    python one_rank.py RANK WORLD SOCKETS LIBRARY losses_rank.py FOLDER

It is PclQwen2ForCausalLM itself; only its layers are replaced by given hidden states. FOLDER holds
cases.json (a list of ``LossCase``) and inputs.npz; each rank writes NAME-RANK.npz.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from losses_cases import COLUMNS, LossCase
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank
from rank_cases import part_of_rank
from ranks_step import compute_all, gradients, use_layout
from reduced_scores import shard_with_all_reduces

from pcl_reasoner.losses import VARIANTS
from pcl_reasoner.worker.entry import import_mindformers


class Given(nn.Cell):
    """Hidden states in the place of the model's layers; their gradient is a parameter's."""

    def __init__(self, hidden: np.ndarray, data_parallel: int) -> None:
        super().__init__()
        self.hidden = Parameter(Tensor(hidden), name="hidden")
        self.one = Tensor(1.0, ms.float32)
        self.multiply = ops.Mul().add_prim_attr("keep_alive", True)
        self.multiply.shard(((data_parallel, 1, 1), ()))

    def construct(self, input_ids, attention_mask, position_ids, actual_seq_len):
        return self.multiply(self.hidden, self.one)


def build(case: LossCase, given: dict[str, np.ndarray]) -> Any:
    """The model as a recipe's YAML builds it, small and with one layer that is not used."""
    from mindformers.modules.transformer import TransformerOpParallelConfig

    from pcl_reasoner.trainer.model import PclQwen2Config, PclQwen2ForCausalLM

    rows, length, width = given["hidden"].shape
    layout = TransformerOpParallelConfig(
        data_parallel=case.data, model_parallel=case.tensor, vocab_emb_dp=False
    )
    loss, parameters = VARIANTS[case.loss]
    config = PclQwen2Config(
        loss=loss,
        loss_parameters=dict(parameters),
        max_segments=given["rewards"].shape[1],
        entropy=True,
        logits_chunk_tokens=case.chunk_tokens,
        batch_size=rows // case.data,
        seq_length=length,
        hidden_size=width,
        num_layers=1,
        num_heads=4,
        n_kv_heads=4,
        intermediate_size=16,
        vocab_size=len(given["weight"]),
        eos_token_id=0,
        pad_token_id=0,
        compute_dtype="float32",
        layernorm_compute_type="float32",
        softmax_compute_type="float32",
        rotary_dtype="float32",
        param_init_type="float32",
        use_flash_attention=True,
        # The CPU back end refuses it.
        disable_lazy_inline=True,
        parallel_config=layout,
    )
    model = PclQwen2ForCausalLM(config)
    model.model = Given(given["hidden"], case.data)
    model.lm_head.weight.set_data(Tensor(given["weight"]))
    if case.reduced:
        shard_with_all_reduces(model.chunked_log_probs, case.data)
    return model


def of_loss(case: LossCase, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The loss, the gradients, and the figures that the step leaves."""
    use_layout(case, tuple((case.data, 1) for _ in COLUMNS))
    model = build(case, given)
    columns = [Tensor(part_of_rank(case, get_rank(), given[name], "data")) for name in COLUMNS]
    loss, found = gradients(model, *columns)
    return found | {"loss": loss, "figures": model.figures.asnumpy()}


if __name__ == "__main__":
    import_mindformers()
    compute_all(LossCase, of_loss)
