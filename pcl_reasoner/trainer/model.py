"""MindFormers' LlamaForCausalLM with the recipe's loss in place of its own.

For this model MindFormers never calls the loss that a YAML names, so the model itself is extended:
hidden states -> logits -> log π of the labels -> segment means -> the loss Cell.
"""

from typing import Any

import mindspore as ms
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore import Parameter, Tensor, ops

from pcl_reasoner.losses import build_loss
from pcl_reasoner.losses.chunked import ChunkedLogProbs, vocabulary_parts
from pcl_reasoner.losses.chunks import chunk_length
from pcl_reasoner.losses.segments import SegmentMeans, SegmentsToTokens, TokenLogProbs
from pcl_reasoner.trainer.figures import COLUMNS, VERDICTS, StepFigures
from pcl_reasoner.trainer.mismatch import Mismatch


@MindFormerRegister.register(MindFormerModuleType.CONFIG)
class PclQwen2Config(LlamaConfig):
    """LlamaConfig plus the loss's name and parameters, and the limit on segments per row.

    ``entropy``: whether the entropy of every token is computed, for the step's statistics.
    ``mismatch``: whether log-probs are compared with those in the column ``old_log_probs``.
    ``logits_chunk_tokens``: tokens per rank whose logits are in memory at once; None: all tokens.
    """

    def __init__(
        self,
        loss: str = "sft",
        loss_parameters: dict[str, float] | None = None,
        max_segments: int = 128,
        entropy: bool = False,
        mismatch: bool = False,
        logits_chunk_tokens: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loss = loss
        self.loss_parameters = dict(loss_parameters or {})
        self.max_segments = max_segments
        self.entropy = entropy
        self.mismatch = mismatch
        self.logits_chunk_tokens = logits_chunk_tokens


def cuts_operators() -> bool:
    """Whether MindSpore splits every operator over ranks, by the operator's strategy."""
    modes = (ms.ParallelMode.SEMI_AUTO_PARALLEL, ms.ParallelMode.AUTO_PARALLEL)
    return ms.get_auto_parallel_context("parallel_mode") in modes


def chunked_log_probs(config: Any) -> ChunkedLogProbs:
    """Build a model's ChunkedLogProbs in the last pipeline stage, which has the output weights."""
    rows, length = config.batch_size, config.seq_length
    parts = vocabulary_parts(config.parallel_config, config.vocab_size) if cuts_operators() else 1
    step = chunk_length(config.logits_chunk_tokens or rows * length, rows, length)
    cell = ChunkedLogProbs(
        config.vocab_size, step, config.compute_dtype, parts=parts, entropy=bool(config.entropy)
    )
    if cuts_operators():
        cell.shard(config.parallel_config, length)
    if config.parallel_config.pipeline_stage > 1:
        cell.pipeline_stage = config.parallel_config.pipeline_stage - 1
    return cell


@MindFormerRegister.register(MindFormerModuleType.MODELS)
class PclQwen2ForCausalLM(LlamaForCausalLM):
    """Qwen2 in MindFormers' Llama class, as PCL-Reasoner V1 trains it, with the recipe's loss."""

    # The configuration is a keyword argument: lazy inline needs that in parallel modes.
    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config)
        self.token_log_probs = TokenLogProbs()
        self.segment_means = SegmentMeans(config.max_segments)
        self.policy_loss = build_loss(config.loss, config.max_segments, config.loss_parameters)
        self.step_figures = StepFigures(
            config.loss,
            config.loss_parameters,
            self.policy_loss,
            config.max_segments,
            gradients=not cuts_operators(),
        )
        nothing = Tensor([[0.0] * len(COLUMNS)] * len(VERDICTS), ms.float32)
        # Optimizer sharding must not split the table's two rows either.
        self.figures = Parameter(
            nothing, name="step_figures", requires_grad=False, parallel_optimizer=False
        )
        # A step may have several micro-batches; PclMetrics sets the sums to 0 before each step.
        self.add_figures = ops.AssignAdd()
        self.is_flash = bool(config.use_flash_attention)
        self.is_compressed = bool(config.use_eod_attn_mask_compression)
        self.entropy = bool(config.entropy)
        self.has_mismatch = bool(config.mismatch)
        if self.has_mismatch:
            self.mismatch = Mismatch()
        self.log_softmax = ops.LogSoftmax(-1)
        # Full logits cannot be normalised if the vocabulary is split over ranks.
        self.is_chunked = config.logits_chunk_tokens is not None or cuts_operators()
        if self.is_chunked:
            self.chunked_log_probs = chunked_log_probs(config)
        if cuts_operators():
            # Without a strategy MindSpore would split the table's two rows over two ranks.
            self.add_figures.shard(((1, 1), (1, 1)))
            for _, cell in self.cells_and_names():
                if isinstance(cell, (SegmentMeans, SegmentsToTokens, Mismatch)):
                    cell.shard(config.parallel_config)

    def construct(
        self,
        input_ids,
        labels=None,
        position_ids=None,
        segment_ids=None,
        rewards=None,
        segment_weights=None,
        token_weights=None,
        pass_rates=None,
        advantages=None,
        old_log_probs=None,
        old_log_probs_mean=None,
        attention_mask=None,
        actual_seq_len=None,
        **kwargs,
    ):
        """The loader's columns, in their order -> scalar loss; unneeded columns are ignored."""
        # Our program checks the YAML; this also covers other programs that start MindFormers.
        if attention_mask is not None and not self.is_flash:
            raise ValueError(
                "use_flash_attention is False, and the data contain attention_mask: MindFormers "
                "would add it to the scores as 0 and 1. Set use_flash_attention: True."
            )
        if actual_seq_len is not None and not self.is_compressed:
            raise ValueError(
                "use_eod_attn_mask_compression is False, and the data contain actual_seq_len: "
                "MindFormers would ignore it. Set it to True, or give attention_mask."
            )
        log_probs, entropies = self.label_log_probs(
            input_ids, labels, position_ids, attention_mask, actual_seq_len
        )
        trained = (labels != self.ignore_token_id).astype(ms.float32)  # [B, S]
        mean, tokens = self.segment_means(log_probs, trained, segment_ids)  # [B, G]
        weights = (rewards, segment_weights, token_weights)
        others = (pass_rates, advantages, old_log_probs, old_log_probs_mean)
        columns = (*weights, trained, segment_ids, *others)
        loss = self.policy_loss(log_probs, mean, *columns)
        figures = self.step_figures(tokens, entropies, log_probs, mean, *columns)
        if self.has_mismatch:
            gaps = self.mismatch(ops.stop_gradient(log_probs), old_log_probs, trained)
            loss = ops.depend(loss, gaps)
        # The statistics are only recorded: no gradient goes through them.
        return ops.depend(loss, self.add_figures(self.figures, ops.stop_gradient(figures)))

    def label_log_probs(self, input_ids, labels, position_ids, attention_mask, actual_seq_len):
        """Return two tensors [B, S]: log π of the labels, and entropies (0 if not computed)."""
        hidden = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            actual_seq_len=actual_seq_len,
        )
        if self.is_chunked:
            return self.chunked_log_probs(hidden, self.lm_head.weight, labels)
        logits = self.lm_head(hidden)
        logits = self.reshape(logits, (-1, logits.shape[-1]))  # [B·S, V]
        log_probs = self.token_log_probs(logits, labels)  # [B, S]
        entropies = ops.zeros_like(log_probs)
        if self.entropy:
            shares = self.log_softmax(logits.astype(ms.float32))
            entropies = -(ops.exp(shares) * shares).sum(-1).reshape(labels.shape)
        return log_probs, ops.stop_gradient(entropies)
