"""Cells around kernels, losses and the model, so that MindSpore compiles them with a gradient."""

from typing import Any

import mindspore as ms
from mindspore import nn

from pcl_reasoner.losses import build_loss
from pcl_reasoner.losses.segments import SegmentMeans


class Weighed(nn.Cell):
    """Returns Σ cotangent · output and the output; the gradient of the sum is the kernel's own."""

    def __init__(self, kernel: nn.Cell) -> None:
        super().__init__()
        self.kernel = kernel

    def construct(self, cotangent, *inputs):
        """The gradient with respect to the output, the kernel's inputs -> a scalar, the output."""
        output = self.kernel(*inputs)
        return (cotangent * output.astype(ms.float32)).sum(), output


class Attention(nn.Cell):
    """MindFormers' attention as its Llama calls it: with a mask, in TND also with segment ends."""

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
        """query [1, N, S, D] or [S, N, D] -> the same shape."""
        if self.ends:
            return self.attention(
                query, key, value, mask, actual_seq_qlen=ends, actual_seq_kvlen=ends
            )
        return self.attention(query, key, value, mask)


class Rotary(nn.Cell):
    """MindFormers' rotary embedding of one tensor."""

    def __init__(self, size: int, length: int, theta: float, by_slices: bool) -> None:
        super().__init__()
        from mindformers.modules.layers import FreqsMgr, RotaryEmbedding

        self.length = length
        self.angles = FreqsMgr(size, length, length, rotary_dtype=ms.float32, theta=theta)
        self.rotary = RotaryEmbedding(size, ms.float32, use_rope_slice=by_slices)

    def construct(self, x):
        """[1, N, S, D] -> the same shape."""
        turned, _ = self.rotary(x, x, self.angles(self.length))
        return turned


class WholeLoss(nn.Cell):
    """The means of segments and then a loss, in the order in which the model runs them."""

    def __init__(self, name: str, places: int) -> None:
        super().__init__()
        self.means = SegmentMeans(places)
        self.loss = build_loss(name, places)

    def construct(self, log_probs, rewards, segment_weights, token_weights, trained, ids, *others):
        """The columns, in the order of loss_cells.ORDER -> scalar."""
        mean, _ = self.means(log_probs, trained, ids)
        return self.loss(
            log_probs, mean, rewards, segment_weights, token_weights, trained, ids, *others
        )


class LossOfRow(nn.Cell):
    """The model's loss of the loader's columns; the last is a dense mask or segment ends."""

    def __init__(self, model: Any, compressed_mask: bool) -> None:
        super().__init__()
        self.model = model
        self.compressed_mask = compressed_mask

    def construct(self, *columns):
        """The loader's columns -> scalar."""
        if self.compressed_mask:
            return self.model(*columns[:-1], attention_mask=None, actual_seq_len=columns[-1])
        return self.model(*columns)
