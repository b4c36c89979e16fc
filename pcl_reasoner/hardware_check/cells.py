"""Wraps kernels, losses and the model in Cells, from which MindSpore can compute gradients."""

from typing import Any

import mindspore as ms
from mindspore import nn

from pcl_reasoner.losses import VARIANTS, build_loss
from pcl_reasoner.losses.segments import SegmentMeans


class Weighed(nn.Cell):
    """Turns a kernel's output into a scalar, Σ cotangent · output, which can be differentiated."""

    def __init__(self, kernel: nn.Cell) -> None:
        super().__init__()
        self.kernel = kernel

    def construct(self, cotangent, *inputs):
        """The cotangent and the kernel's inputs -> the scalar and the kernel's output."""
        output = self.kernel(*inputs)
        return (cotangent * output.astype(ms.float32)).sum(), output


class Attention(nn.Cell):
    """Calls FlashAttention as MindFormers' Llama does: with a mask and, in TND, segment ends."""

    def __init__(self, heads: int, size: int, layout: str, sparse_mode: int) -> None:
        super().__init__()
        from mindformers.modules.flash_attention import FlashAttention

        self.ends = layout == "TND"
        self.attention = FlashAttention(
            head_num=heads,
            next_tokens=0,
            input_layout=layout,
            scale_value=size**-0.5,
            sparse_mode=sparse_mode,
            use_attention_mask=True,
            use_actual_seqlen=self.ends,
        )

    def construct(self, query, key, value, mask, ends):
        """query [1, N, S, D] (BNSD) or [S, N, D] (TND) -> output in the shape of the query."""
        if self.ends:
            return self.attention(
                query, key, value, mask, actual_seq_qlen=ends, actual_seq_kvlen=ends
            )
        return self.attention(query, key, value, mask)


class Rotary(nn.Cell):
    """Applies MindFormers' rotary embedding to one tensor."""

    def __init__(self, size: int, length: int, theta: float, by_slices: bool) -> None:
        super().__init__()
        from mindformers.modules.layers import FreqsMgr, RotaryEmbedding

        self.length = length
        self.angles = FreqsMgr(size, length, length, rotary_dtype=ms.float32, theta=theta)
        self.rotary = RotaryEmbedding(size, ms.float32, use_rope_slice=by_slices)

    def construct(self, x):
        """x [1, N, S, D] -> rotated x, [1, N, S, D]."""
        turned, _ = self.rotary(x, x, self.angles(self.length))
        return turned


class WholeLoss(nn.Cell):
    """Computes the segments' mean log-probabilities and then a loss, as the trained model does."""

    def __init__(self, variant: str, places: int) -> None:
        super().__init__()
        name, parameters = VARIANTS[variant]
        self.means = SegmentMeans(places)
        self.loss = build_loss(name, places, parameters)

    def construct(self, log_probs, rewards, segment_weights, token_weights, trained, ids, *others):
        """The columns in the order of loss_cells.ORDER -> the loss, a scalar."""
        mean, _ = self.means(log_probs, trained, ids)
        return self.loss(
            log_probs, mean, rewards, segment_weights, token_weights, trained, ids, *others
        )


class LossOfRow(nn.Cell):
    """Computes the model's loss of one row; its last column is a dense mask or the segment ends."""

    def __init__(self, model: Any, compressed_mask: bool) -> None:
        super().__init__()
        self.model = model
        self.compressed_mask = compressed_mask

    def construct(self, *columns):
        """The loader's columns -> the loss, a scalar."""
        if self.compressed_mask:
            return self.model(*columns[:-1], attention_mask=None, actual_seq_len=columns[-1])
        return self.model(*columns)
