"""Attention and AdamW for a CPU, with the interfaces of the MindFormers operators they replace.

The attention operator has no CPU kernel. MindFormers' AdamW runs on a CPU as about twenty small
operators per weight, and their results together take several times the model's memory. CpuAdamW
updates weights and moments in place.
"""

from typing import Any

import mindspore as ms
import numpy as np
from mindformers.core.optim.adamw import AdamW
from mindspore import Tensor, nn, ops

from pcl_reasoner.trainer import segment_attention as segments


class CpuFlashAttentionScore(nn.Cell):
    """FlashAttentionScore for a CPU: layouts BNSD and TND, grouped queries, no dropout.

    ``attn_mask`` is 1 where attention is forbidden; ``actual_seq_qlen`` holds cumulative segment
    ends. Attention is computed segment by segment, in float32 (segment_attention.py).
    """

    def __init__(
        self,
        head_num: int,
        keep_prob: float = 1.0,
        scale_value: float = 1.0,
        pre_tokens: int = 0,
        next_tokens: int = 0,
        inner_precise: int = 0,
        input_layout: str = "BNSD",
        sparse_mode: int = 0,
    ) -> None:
        super().__init__(auto_prefix=False)
        if input_layout not in ("BNSD", "TND") or keep_prob != 1.0:
            raise ValueError(
                f"attention on CPU: layout {input_layout} with keep_prob {keep_prob}; "
                "expected BNSD or TND without dropout."
            )
        self.layout = input_layout
        self.causal = input_layout == "BNSD" and sparse_mode == 2
        self.unused_mask = Tensor([0], ms.int32)
        self.attend = _operator(_Attention(input_layout, self.causal, scale_value))

    def construct(
        self,
        query,
        key,
        value,
        real_shift=None,
        drop_mask=None,
        padding_mask=None,
        attn_mask=None,
        prefix=None,
        actual_seq_qlen=None,
        actual_seq_kvlen=None,
    ):
        """query [B, N, S, D] or [T, N, D] -> (None, None, None, output in query's shape)."""
        if self.layout == "TND":
            mask = actual_seq_qlen
        elif self.causal:
            mask = self.unused_mask
        else:
            mask = attn_mask
        return None, None, None, self.attend(query, key, value, mask)


class _Attention:
    """Attention on the arrays of one layout, forward and backward, for ``ops.Custom``."""

    def __init__(self, layout: str, causal: bool, scale: float) -> None:
        self._tokens_first, self._causal, self._scale = layout == "TND", causal, scale

    def forward(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """Compute attention of arrays in the layout; return an array of query's shape and type."""
        first, second, third = (self._heads_first(array) for array in (query, key, value))
        tiles = self._tiles(first, mask)
        return self._back(segments.attend(first, second, third, tiles, self._scale), query.dtype)

    def backward(
        self, query: Any, key: Any, value: Any, mask: Any, out: Any, out_gradient: Any
    ) -> Any:
        """Gradients with respect to query, key and value, each in the shape of its array."""
        first, second, third, out_gradient = (
            self._heads_first(array) for array in (query, key, value, out_gradient)
        )
        tiles = self._tiles(first, mask)
        found = segments.attend_backward(first, second, third, out_gradient, tiles, self._scale)
        return tuple(self._back(array, query.dtype) for array in found)

    def _heads_first(self, array: Any) -> Any:
        heads = array.swapaxes(0, 1)[None] if self._tokens_first else array
        return heads.astype(np.float32, copy=False)

    def _back(self, array: Any, dtype: Any) -> Any:
        found = array[0].swapaxes(0, 1) if self._tokens_first else array
        return np.ascontiguousarray(found, dtype=dtype)

    def _tiles(self, query: Any, mask: Any) -> list[segments.Tile]:
        length = query.shape[2]
        if self._tokens_first:
            return list(segments.tiles(0, segments.spans_of_ends(mask, length)))
        if self._causal:
            rows = range(len(query))
            return [tile for row in rows for tile in segments.tiles(row, [(0, length)])]
        return segments.tiles_of_masks(mask)


def _operator(attention: _Attention) -> Any:
    """Make a graph operator that calls ``attention``'s methods for values and gradients."""

    def three(query, key, value, mask, out, out_gradient):
        return query, key, value

    gradients = ops.Custom(attention.backward, out_shape=three, out_dtype=three, func_type="pyfunc")

    def bprop(query, key, value, mask, out, out_gradient):
        found = gradients(query, key, value, mask, out, out_gradient)
        return found[0], found[1], found[2], ops.zeros_like(mask)

    def first(query, key, value, mask):
        return query

    return ops.Custom(
        attention.forward, out_shape=first, out_dtype=first, func_type="pyfunc", bprop=bprop
    )


class CpuAdamW(AdamW):
    """MindFormers' AdamW, computed by MindSpore's Adam kernel, which works in place.

        x ← x (1 − rate · decay);   x ← x − rate · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

    The kernel divides by √v + ε'. With ε' = ε √(1 − β₂ᵗ) it computes the formula above.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.adam = ops.Adam()

    @staticmethod
    def get_actual_adamw_cls(use_fused: bool) -> type[AdamW]:
        """Return CpuAdamW: MindFormers calls this method to find the class to build."""
        return CpuAdamW

    def construct(self, gradients):
        """Update all parameters."""
        decays = self.get_weight_decay()
        rate = self.get_lr()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        betas = self.beta1.reshape(()), self.beta2.reshape(())
        first = ops.pow(self.beta1, self.global_step).reshape(())
        second = ops.pow(self.beta2, self.global_step).reshape(())
        eps = (self.eps * ops.sqrt(1.0 - second)).reshape(())
        updated = ()
        for index in range(len(self.parameters)):
            parameter = self._parameters[index]
            if self.decay_flags[index]:
                kept = parameter * (1.0 - rate * decays[index])
                gradient = ops.depend(gradients[index], ops.assign(parameter, kept))
            else:
                gradient = gradients[index]
            moments = self.exp_avg[index], self.exp_avg_sq[index]
            result = self.adam(parameter, *moments, first, second, rate, *betas, eps, gradient)
            updated += (result[0].shape[0] > 0,)  # type: ignore[assignment]
            # One weight after the other: otherwise copies of all of them would be in memory.
            gradients = ops.depend(gradients, result[0])
        return updated
