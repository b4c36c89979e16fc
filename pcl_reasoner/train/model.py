"""MindFormers' LlamaForCausalLM with the recipe's loss in the place of the stock one.

MindFormers never calls a LOSS that a YAML names for this model, so the model itself is extended:
hidden states -> logits -> log π of the labels -> segment means -> the loss Cell.
"""

from __future__ import annotations

import importlib
from typing import Any

import mindspore as ms
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore import Parameter, Tensor, ops

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.segments import SegmentMeans, TokenLogProbs

FIGURES = ("right_count", "right_m", "right_p", "wrong_count", "wrong_m", "wrong_p", "tokens")
"""What ``figures`` holds of a step: sums over the step's segments; a reward ≥ 0.5 is right."""


def build_loss(name: str) -> Any:
    """The loss Cell of a name in ``LOSSES``."""
    module = importlib.import_module(f"pcl_reasoner.losses.{name}")
    return getattr(module, LOSSES[name])()


@MindFormerRegister.register(MindFormerModuleType.CONFIG)
class PclQwen2Config(LlamaConfig):
    """LlamaConfig, the loss's name, and the places for segments in a row."""

    def __init__(self, loss: str = "sft", max_segments: int = 128, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss = loss
        self.max_segments = max_segments


@MindFormerRegister.register(MindFormerModuleType.MODELS)
class PclQwen2ForCausalLM(LlamaForCausalLM):
    """Qwen2 by MindFormers' Llama (as V1 was trained), with our loss while training."""

    # The configuration goes by keyword: lazy inline looks for it there in parallel modes.
    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config)
        self.token_log_probs = TokenLogProbs()
        self.segment_means = SegmentMeans(config.max_segments)
        self.policy_loss = build_loss(config.loss)
        self.figures = Parameter(
            Tensor([0.0] * len(FIGURES), ms.float32), name="step_figures", requires_grad=False
        )

    def construct(
        self,
        input_ids,
        labels=None,
        position_ids=None,
        segment_ids=None,
        rewards=None,
        segment_weights=None,
        token_weights=None,
        attention_mask=None,
        actual_seq_len=None,
        **kwargs,
    ):
        """input_ids, labels (shifted) [B, S]; rewards [B, G] -> scalar loss."""
        hidden = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            actual_seq_len=actual_seq_len,
        )
        logits = self.lm_head(hidden)
        logits = self.reshape(logits, (-1, logits.shape[-1]))  # [B·S, V]
        log_probs = self.token_log_probs(logits, labels)  # [B, S]
        trained = (labels != self.ignore_token_id).astype(ms.float32)  # [B, S]
        mean, tokens = self.segment_means(log_probs, trained, segment_ids)  # [B, G]
        loss = self.policy_loss(log_probs, mean, trained, rewards, segment_weights, token_weights)
        return ops.depend(loss, self._record(mean, tokens, rewards))

    def _record(self, mean, tokens, rewards):
        """Keep the step's sums apart for right and wrong responses; no gradient goes through."""
        has_token = (tokens > 0).astype(ms.float32)
        right = has_token * (rewards >= 0.5).astype(ms.float32)
        wrong = has_token - right
        p = ops.exp(mean)
        sums = (
            right.sum(),
            (right * mean).sum(),
            (right * p).sum(),
            wrong.sum(),
            (wrong * mean).sum(),
            (wrong * p).sum(),
            tokens.sum(),
        )
        return ops.assign(self.figures, ops.stop_gradient(ops.stack(sums)))
