"""Computes log-probs, and optionally entropies and gradients of the loss, on packed rows."""

from typing import Any

import mindspore as ms
from mindspore import nn, ops

from pcl_reasoner.losses.segments import SegmentsToTokens


class Forward(nn.Cell):
    """The trainer's model, evaluated on rows without training.

    Args:
        model: PclQwen2ForCausalLM.
        max_segments: G, segments that a row can hold.
        compressed: Whether the last column is ``actual_seq_len`` instead of a dense mask.
        gradient: Whether to also return entropies and ∂loss / ∂ log π.
    """

    def __init__(self, model: Any, max_segments: int, compressed: bool, gradient: bool) -> None:
        super().__init__(auto_prefix=False)
        self.model, self.compressed, self.gradient = model, compressed, gradient
        self.gradients = ops.GradOperation(get_all=True)
        self.to_tokens = SegmentsToTokens(max_segments)
        self.set_train(False)

    def construct(self, input_ids, labels, position_ids, segment_ids, *columns):
        """The loader's columns, in their order -> one or three values per token, [B, S] float32."""
        rewards_and_weights, others, mask = columns[:3], columns[3:-1], columns[-1]
        dense, ends = (None, mask) if self.compressed else (mask, None)
        log_probs, entropies = self.model.label_log_probs(
            input_ids, labels, position_ids, dense, ends
        )
        if not self.gradient:
            return (log_probs,)
        trained = (labels != self.model.ignore_token_id).astype(ms.float32)
        mean, tokens = self.model.segment_means(log_probs, trained, segment_ids)
        found = self.gradients(self.model.policy_loss)(
            log_probs, mean, *rewards_and_weights, trained, segment_ids, *others
        )
        # Every trained token has an equal share of its segment's mean.
        share = found[1] / ops.maximum(tokens, 1.0)
        by_token = found[0] + self.to_tokens(share, segment_ids) * trained
        return log_probs, entropies, by_token
