"""Computes log π of every label from hidden states, one chunk of tokens at a time.

    z = h Wᵀ        log π(y) = z_y − log Σ_v e^{z_v}        entropy = −Σ_v π(v) log π(v)

The logits of all tokens never exist at once. The backward pass computes a chunk's logits again, and
from them the chunk's part of the gradients with respect to h and W:

    ∂L/∂z = c (onehot(y) − π),  c = ∂L/∂ log π(y)        ∂L/∂h = ∂L/∂z W        ∂L/∂W = Σ (∂L/∂z)ᵀ h

Under tensor parallelism each rank holds one part of the vocabulary. ``PartScores`` computes the
scores of this part. It does not communicate with other ranks, neither forward nor backward
(``bprop``). MindSpore divides the operators of a Cell among ranks, but not those of a ``bprop``, so
PartScores.bprop computes with the rank's own slice. Every rank then gathers each score of all
parts, P numbers per token, and ``CombinedScores`` combines them.

The scores are not summed by AllReduce: MindSpore 2.7 would rewrite the gradient AllReduce(x)·y + z
to AllReduce(x + z)·y, which is incorrect (docs/internals/mindspore_all_reduce.md).

Shapes: B rows, S tokens per row, H hidden size, V vocabulary size, P parts of the vocabulary.
"""

from typing import Any, Self

import mindspore as ms
import numpy as np
from mindspore import Layout, Tensor, nn, ops

from pcl_reasoner.losses.chunks import weight_pieces


def vocabulary_parts(parallel_config: Any, vocab_size: int) -> int:
    """Return the number of parts into which MindFormers divides the output weights."""
    parts = int(parallel_config.model_parallel)
    return 1 if parallel_config.vocab_emb_dp or vocab_size % parts else parts


class PartScores(nn.Cell):
    """Computes three scores of each part of the vocabulary (see construct), chunk by chunk.

    Args:
        vocab_size: V.
        parts: P.
        step: Tokens of each row per chunk.
        entropy: Whether entropies are computed; they have no gradient.
    """

    # MindSpore 2.7 loses Python functions (min, ops.zeros_like) that both construct and bprop
    # call. So operators are primitives, and construct and bprop share no code.
    def __init__(self, vocab_size: int, parts: int, step: int, entropy: bool) -> None:
        super().__init__()
        self.parts, self.step, self.entropy = parts, step, entropy
        self.part_size = vocab_size // parts
        # For a single part there is no axis: sums over the last of three axes are slow on a CPU.
        self.part_axis = (parts,) if parts > 1 else ()
        self.pieces = weight_pieces(vocab_size)
        self.zeros = ops.ZerosLike()
        self.on = Tensor(1.0, ms.float32)
        self.off = Tensor(0.0, ms.float32)
        self.slice_hidden, self.slice_index = ops.StridedSlice(), ops.StridedSlice()
        self.matmul = ops.MatMul(transpose_b=True)
        self.reshape, self.cast, self.concat = ops.Reshape(), ops.Cast(), ops.Concat(1)
        self.log_softmax, self.gather = ops.LogSoftmax(-1), ops.GatherD()
        self.maximum, self.subtract = ops.ReduceMax(keep_dims=True), ops.Sub()
        self.shares, self.multiply = ops.Softmax(-1), ops.Mul()
        self.sum, self.negate = ops.ReduceSum(keep_dims=True), ops.Neg()
        # Operators of bprop. MindSpore does not divide them: each rank applies them to its slice.
        self.backward_matmul = ops.MatMul(transpose_b=True)
        self.softmax, self.one_hot = ops.Softmax(-1), ops.OneHot()
        self.by_hidden, self.by_weight = ops.MatMul(), ops.MatMul(transpose_a=True)

    def shard(self, data_parallel: int, length: int) -> None:
        """Divide rows among the data-parallel ranks, and parts among the tensor-parallel ranks.

        Args:
            data_parallel: Number of ranks among which rows are divided.
            length: S.
        """
        dp, mp = data_parallel, self.parts
        part = (dp, *self.part_axis, 1)
        self.pieces = weight_pieces(self.part_size)  # a rank has one part
        self.slice_hidden.shard(((dp, 1, 1),))
        self.slice_index.shard(((dp, 1, mp),))
        self.matmul.shard(((dp, 1), (mp, 1)))
        self.concat.shard(((dp, 1, mp),) * -(-length // self.step))
        scores = (self.log_softmax, self.shares, self.maximum, self.sum)
        for unary in (*scores, self.cast, self.negate, self.zeros):
            unary.shard((part,))
        for binary in (self.gather, self.subtract, self.multiply):
            binary.shard((part, part))

    def construct(self, hidden, weight, index):
        """Compute the label's log-prob within a part, the part's log Σ e^z and the part's entropy.

        Args:
            hidden: [B, S, H] float.
            weight: [V, H], of the same type as hidden.
            index: [B, S, P] int32, the label's index within each part.

        Returns:
            Three tensors [B, S, P] float32. The second is 0 for a vocabulary in one part, the third
            is 0 if entropies are not computed.
        """
        rows, length, width = hidden.shape
        chosen: Any = ()
        totals: Any = ()
        entropies: Any = ()
        for start in range(0, length, self.step):
            end = start + self.step if start + self.step < length else length
            chunk, chunk_index = hidden, index
            if self.step < length:
                chunk = self.slice_hidden(hidden, (0, start, 0), (rows, end, width), (1, 1, 1))
                chunk_index = self.slice_index(
                    index, (0, start, 0), (rows, end, self.parts), (1, 1, 1)
                )
            if start > 0:
                # Without a fixed order, all chunks could be in memory at once.
                chunk = ops.depend(chunk, chosen[-1])
            logits = self.matmul(self.reshape(chunk, (-1, width)), weight)
            logits = self.cast(
                self.reshape(logits, (-1, *self.part_axis, self.part_size)), ms.float32
            )
            chunk_index = self.reshape(chunk_index, (-1, *self.part_axis, 1))
            log_prob, total, entropy = self._chunk_scores(logits, chunk_index)
            shape = (rows, end - start, self.parts)
            chosen += (self.reshape(log_prob, shape),)
            totals += (self.reshape(total, shape),)
            entropies += (self.reshape(entropy, shape),)
        if len(chosen) == 1:
            return chosen[0], totals[0], entropies[0]
        return self.concat(chosen), self.concat(totals), self.concat(entropies)

    def _chunk_scores(self, logits, label_index):
        """logits [n, P, V / P], label_index [n, P, 1] -> three [n, P, 1]; no axis P if P = 1."""
        log_probs = self.log_softmax(logits)
        chosen = self.gather(log_probs, logits.ndim - 1, label_index)
        total = entropy = self.zeros(chosen)
        if self.parts > 1:
            # log Σ e^z = z − log π, computed at the largest logit.
            total = self.subtract(self.maximum(logits, -1), self.maximum(log_probs, -1))
        if self.entropy:
            shares = self.shares(logits)  # cheaper on a CPU than exp(log_probs)
            entropy = self.negate(self.sum(self.multiply(shares, log_probs), -1))
        return chosen, total, entropy

    def bprop(self, hidden, weight, index, out, dout):
        """Compute ∂L/∂hidden and ∂L/∂weight, on each rank for its own rows and part."""
        rows, length, width = hidden.shape
        parts = index.shape[2]  # 1 on each of several ranks
        size = weight.shape[0] // parts
        by_hidden: Any = ()
        by_weight: Any = ()
        for start in range(0, length, self.step):
            chunk = self._cut(hidden, start).reshape((-1, width))
            if start > 0:
                chunk = ops.depend(chunk, by_weight[-1])
            logits = self.backward_matmul(chunk, weight).reshape((-1, size))  # [n P, V / P]
            probs = self.softmax(logits.astype(ms.float32))
            target = self.one_hot(self._cut(index, start).reshape((-1,)), size, self.on, self.off)
            by_chosen = self._cut(dout[0], start).reshape((-1, 1))
            by_logits = target - probs
            if self.parts > 1:
                by_total = self._cut(dout[1], start).reshape((-1, 1))
                by_logits = target * by_chosen + probs * (by_total - by_chosen)
            by_logits = by_logits.reshape((chunk.shape[0], -1)).astype(weight.dtype)
            by_chunk = self.by_hidden(by_logits, weight)
            if self.parts == 1:
                # One factor per token: cheaper on H numbers than on V.
                by_chunk = by_chunk * by_chosen
                chunk = (chunk * by_chosen).astype(weight.dtype)
            by_hidden += (by_chunk.astype(hidden.dtype).reshape((rows, -1, width)),)
            by_weight = self._add(by_weight, self.by_weight(by_logits, chunk))
        return ops.concat(by_hidden, 1), ops.concat(by_weight, 0), self.zeros(index)

    def _cut(self, values, start):
        """Return a chunk of [B, S, …]. A CPU slices slowly, so a single chunk is not sliced."""
        if self.step >= values.shape[1]:
            return values
        return values[:, start : start + self.step]

    def _add(self, sums, product):
        """Add a chunk's [V, H] gradient in float32, in pieces, so that copies need less memory."""
        added: Any = ()
        for number, (first, last) in enumerate(self.pieces):
            piece = product
            if len(self.pieces) > 1:
                piece = product[first:last]
            piece = piece.astype(ms.float32)
            if len(sums) > 0:
                piece = sums[number] + piece
            added += (piece,)
        return added


class CombinedScores(nn.Cell):
    """Combines the scores of all parts into the scores of the complete vocabulary.

    For parts p, with T_p = log Σ e^z of the part and H_p its entropy:

        log s_p = T_p − log Σ_q e^(T_q)        the part's share of the probability
        log π(y) = log π_p(y) + log s_p, where p is the label's part
        entropy = Σ_p s_p (H_p − log s_p)

    Args:
        entropy: Whether entropies are computed.
    """

    def __init__(self, entropy: bool) -> None:
        super().__init__()
        self.entropy = entropy
        self.largest, self.relative = ops.ReduceMax(keep_dims=True), ops.Sub()
        self.exp, self.sum, self.log = ops.Exp(), ops.ReduceSum(keep_dims=True), ops.Log()
        self.add_largest, self.inside, self.add = ops.Add(), ops.Sub(), ops.Add()
        self.mask, self.minus = ops.Mul(), ops.Sub()
        self.reshape, self.no_entropy = ops.Reshape(), ops.ZerosLike()

    def shard(self, data_parallel: int) -> None:
        """Give every rank all parts of its rows, so that sums over parts need no communication."""
        rows = (data_parallel, 1, 1)
        for unary in (self.largest, self.exp, self.sum, self.log):
            unary.shard((rows,))
        sums = (self.relative, self.add_largest, self.inside, self.add, self.minus)
        for binary in (*sums, self.mask):
            binary.shard((rows, rows))

    def construct(self, chosen, totals, entropies, label_in_part):
        """Parts' scores and one-hot of the label's part [B, S, P] -> log π, entropy [B, S]."""
        shape = chosen.shape[:2]
        largest = ops.stop_gradient(self.largest(totals, -1))
        total = self.log(self.sum(self.exp(self.relative(totals, largest)), -1))
        log_share = self.inside(totals, self.add_largest(total, largest))
        log_probs = self.sum(self.mask(self.add(chosen, log_share), label_in_part), -1)
        log_probs = self.reshape(log_probs, shape)
        if not self.entropy:
            return log_probs, self.no_entropy(log_probs)
        entropies = self.mask(self.exp(log_share), self.minus(entropies, log_share))
        return log_probs, ops.stop_gradient(self.reshape(self.sum(entropies, -1), shape))


def kept_add() -> Any:
    """Return an addition that MindSpore does not remove when one of the terms is 0."""
    return ops.Add().add_prim_attr("keep_alive", True)


class ChunkedLogProbs(nn.Cell):
    """Computes log π(label) and the entropy of every token from hidden states and output weights.

    Args:
        vocab_size: V.
        step: Tokens of each row whose logits exist at a time.
        compute_type: Type of the logits' matrix product; softmax, sums and logarithms are float32.
        parts: P; more than one only under tensor parallelism, and in tests.
        entropy: Whether entropies are computed.
    """

    def __init__(
        self,
        vocab_size: int,
        step: int,
        compute_type: Any = ms.float32,
        parts: int = 1,
        entropy: bool = False,
    ) -> None:
        super().__init__()
        self.parts, self.compute_type = parts, compute_type
        self.scores = PartScores(vocab_size, parts, step, entropy)
        self.combined_scores = CombinedScores(entropy)
        self.last_index = vocab_size // parts - 1
        first = np.arange(parts, dtype=np.int32) * (vocab_size // parts)
        self.first = Tensor(first.reshape(1, 1, parts))
        self.sharded = False
        self.zero_number, self.zero_index = Tensor(0.0, compute_type), Tensor(0, ms.int32)
        self.zero_score = Tensor(0.0, ms.float32)
        self.keep_layout_hidden, self.keep_layout_weight = kept_add(), kept_add()
        self.keep_layout_index = kept_add()
        self.keep_layout_scores = (kept_add(), kept_add(), kept_add())
        self.reshape, self.cast = ops.Reshape(), ops.Cast()
        self.subtract, self.lower, self.upper = ops.Sub(), ops.Maximum(), ops.Minimum()
        self.equal, self.mask = ops.Equal(), ops.Mul()

    def shard(self, parallel_config: Any, length: int) -> Self:
        """Set the strategy of every operator, for semi-automatic parallel mode.

        Args:
            parallel_config: MindFormers' parallel_config, with data_parallel and model_parallel.
            length: S.
        """
        dp, mp = int(parallel_config.data_parallel), self.parts
        self.scores.shard(dp, length)
        self.combined_scores.shard(dp)
        self.sharded = True
        self.keep_layout_hidden.shard(((dp, 1, 1), ()))
        # By axis names: (mp, 1) alone would assign the parts to other ranks than matmul does.
        axes = Layout((dp, int(parallel_config.model_parallel)), ("rows", "parts"))
        cut = axes("parts" if mp > 1 else "None", "None")
        self.keep_layout_weight.shard((cut, axes()))
        for operator in (self.keep_layout_index, *self.keep_layout_scores):
            operator.shard(((dp, 1, mp), ()))
        rows = (dp, 1, 1)
        self.subtract.shard((rows, (1, 1, 1)))
        self.cast.shard((rows,))
        for binary in (self.equal, self.mask):
            binary.shard((rows, rows))
        for scalar in (self.lower, self.upper):
            scalar.shard((rows, ()))
        return self

    def construct(self, hidden, weight, labels):
        """hidden [B, S, H], weight [V, H], labels [B, S] -> log π (0 for −100), entropy [B, S]."""
        shape = labels.shape
        hidden = hidden.reshape(shape + (-1,)).astype(self.compute_type)
        weight = weight.astype(self.compute_type)
        offset = self.subtract(self.reshape(labels.astype(ms.int32), shape + (1,)), self.first)
        index = self.upper(self.lower(offset, 0), self.last_index)  # [B, S, P]
        label_in_part = self.cast(self.equal(offset, index), ms.float32)
        if self.sharded:
            # PartScores must get its inputs in the layout that its bprop reads. And a parameter's
            # gradients are summed over ranks only if an operator outside PartScores takes it.
            hidden = self.keep_layout_hidden(hidden, self.zero_number)
            weight = self.keep_layout_weight(weight, self.zero_number)
            index = self.keep_layout_index(index, self.zero_index)
        chosen, totals, entropies = self.scores(hidden, weight, index)
        if self.parts > 1:
            return self._combine(chosen, totals, entropies, label_in_part)
        log_probs = self.reshape(self.mask(chosen, label_in_part), shape)
        return log_probs, ops.stop_gradient(self.reshape(entropies, shape))

    def _combine(self, chosen, totals, entropies, label_in_part):
        """Scores of the parts, [B, S, P] -> scores of the complete vocabulary, [B, S]."""
        if self.sharded:
            # The gradients that PartScores.bprop gets must have the layout of its scores.
            chosen = self.keep_layout_scores[0](chosen, self.zero_score)
            totals = self.keep_layout_scores[1](totals, self.zero_score)
            entropies = self.keep_layout_scores[2](entropies, self.zero_score)
        return self.combined_scores(chosen, totals, entropies, label_in_part)
