"""The model's logits as one graph; what MindSpore compiles is written without annotations."""

from __future__ import annotations

from typing import Any

from mindspore import nn


class Logits(nn.Cell):
    """Tokens -> logits, past the loss."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def construct(self, input_ids, attention_mask, position_ids):
        """[B, S], [B, 1, S, S], [B, S] -> [B, S, V]."""
        hidden = self.model.model(
            input_ids, attention_mask=attention_mask, position_ids=position_ids
        )
        return self.model.lm_head(hidden)
