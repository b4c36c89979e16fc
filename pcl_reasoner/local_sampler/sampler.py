"""The local sampler: a small Qwen2 model on the CPU, with a KV cache, in MindSpore's graph mode.

A slot is an index along the KV cache of a row. Prompts are padded on the left, so that in each step
all rows of a batch write the same slot, and one graph serves every step. A row's positions count
from its first real token, and its padding is masked, so the results are those without padding. Two
graphs are compiled per Layout: the prefill of [prompts, prompt slots] and the step of [rows].
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.draw import Streams, draw, log_probs_of, penalise
from pcl_reasoner.local_sampler.model import Model, parameter
from pcl_reasoner.prompt.model_files import read_json
from pcl_reasoner.weights.float32 import read_weights
from pcl_reasoner.weights.model_config import ARCHITECTURE, ModelShape, end_tokens, read_shape
from pcl_reasoner.weights.names import HEAD, expected_shapes, first_few, misfits
from pcl_reasoner.weights.stream import read_files, weight_files

MASKED = -1e30
"""Added to the attention scores of slots that a token must not see."""
CACHE_LIMIT_BYTES = 8 << 30
"""Maximum size of the KV cache; machines that sample on their CPU have little memory."""
PROMPT_MULTIPLE = 16
"""Prompt slots are rounded up to a multiple of this, so that similar prompt sets share graphs."""


@dataclass(frozen=True)
class Row:
    """One sample to draw: ``prompt`` is its prompt's index, ``seed`` seeds its random stream."""

    prompt: int
    seed: int


@dataclass(frozen=True)
class Drawn:
    """A sample's token ids, including the end token if one was drawn (finish_reason ``stop``).

    Args:
        token_ids: The ids.
        finish_reason: ``stop`` or ``length``.
        log_probs: Log-prob of each token under the policy, without temperature and filters; empty
            if they were not asked for.
    """

    token_ids: list[int]
    finish_reason: str
    log_probs: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """The sizes for which the two graphs are compiled."""

    prompts: int
    prompt_slots: int
    rows: int
    slots: int
    """Slots per row, for prompt and response together."""


def empty_cache(shape: ModelShape, layout: Layout) -> list[ms.ParameterTuple]:
    """Make an empty KV cache: two parameters per layer, each [rows·kv_heads·slots, head_dim].

    The flat form lets a step write its slot of every row in place. Attention reads it without a
    copy as [rows, kv_heads, slots, head_dim].
    """
    empty = np.zeros((layout.rows * shape.n_kv_heads * layout.slots, shape.head_dim), np.float32)
    names = [[f"{kind}{i}" for i in range(shape.num_layers)] for kind in ("key", "value")]
    return [ms.ParameterTuple([parameter(empty, name) for name in group]) for group in names]


class Prefill(nn.Cell):
    """One pass over the distinct prompts; copies their keys and values to the cache's rows."""

    def __init__(self, model: Model, cache: Any, shape: ModelShape, layout: Layout) -> None:
        super().__init__()
        self.model = model
        self.keys, self.values = cache
        self.layout = layout
        self.heads, self.kv_heads, self.head_dim = shape.num_heads, shape.n_kv_heads, shape.head_dim
        self.scores = ops.BatchMatMul(transpose_b=True)
        self.weigh = ops.BatchMatMul()
        rest = (layout.rows, shape.n_kv_heads, layout.slots - layout.prompt_slots, shape.head_dim)
        self.rest = Tensor(np.zeros(rest, np.float32))
        self.lines = (layout.rows * shape.n_kv_heads * layout.slots, shape.head_dim)

    def spread(self, x: Any, prompt_of_row: Any) -> Any:
        """[prompts, kv_heads, prompt slots, head_dim] -> the content of one cache parameter."""
        return ops.concat((ops.gather(x, prompt_of_row, 0), self.rest), 2).reshape(self.lines)

    def construct(self, ids: Any, positions: Any, mask: Any, prompt_of_row: Any) -> Any:
        """ids, positions [prompts, slots], mask [prompts, 1, slots, slots] -> last-slot logits."""
        prompts, slots = self.layout.prompts, self.layout.prompt_slots
        kv_heads, dim = self.kv_heads, self.head_dim
        group = self.heads // kv_heads
        x, cos, sin = self.model.embed(ids.reshape((-1,)), positions.reshape((-1,)))
        for index in range(len(self.keys)):
            layer = self.model.layers[index]
            query, key, value = layer.project(x, cos, sin)
            query = query.reshape((prompts, slots, kv_heads, group, dim)).transpose((0, 2, 3, 1, 4))
            query = query.reshape((prompts, kv_heads, group * slots, dim))
            key = key.reshape((prompts, slots, kv_heads, dim)).transpose((0, 2, 1, 3))
            value = value.reshape((prompts, slots, kv_heads, dim)).transpose((0, 2, 1, 3))
            ops.assign(self.keys[index], self.spread(key, prompt_of_row))
            ops.assign(self.values[index], self.spread(value, prompt_of_row))
            scores = self.scores(query, key).reshape((prompts, kv_heads * group, slots, slots))
            share = ops.softmax(scores + mask, -1)
            share = share.reshape((prompts, kv_heads, group * slots, slots))
            attended = self.weigh(share, value).reshape((prompts, kv_heads, group, slots, dim))
            attended = attended.transpose((0, 3, 1, 2, 4)).reshape((prompts * slots, -1))
            x = layer.finish(x, attended)
        last = x.reshape((prompts, slots, -1))[:, slots - 1]
        return self.model.logits(last)


class Step(nn.Cell):
    """Decode one token per row: write its keys and values at the step's slot, return logits."""

    def __init__(self, model: Model, cache: Any, shape: ModelShape, layout: Layout) -> None:
        super().__init__()
        self.model = model
        self.keys, self.values = cache
        self.split = (layout.rows, shape.n_kv_heads, layout.slots, shape.head_dim)
        group = shape.num_heads // shape.n_kv_heads
        self.grouped = (layout.rows, shape.n_kv_heads, group, shape.head_dim)
        self.flat = (layout.rows * shape.n_kv_heads, shape.head_dim)
        self.write = ops.ScatterUpdate()
        self.scores = ops.BatchMatMul(transpose_b=True)
        self.weigh = ops.BatchMatMul()
        first = np.arange(layout.rows * shape.n_kv_heads) * layout.slots
        self.first_lines = Tensor(first.astype(np.int32))
        self.slots = Tensor(np.arange(layout.slots, dtype=np.int32)[None])

    def construct(self, ids: Any, slot: Any, padding: Any) -> Any:
        """ids, padding [rows] int32, slot [1] int32 -> logits [rows, vocabulary]."""
        x, cos, sin = self.model.embed(ids, slot - padding)
        seen = ops.logical_and(self.slots <= slot, self.slots >= padding.expand_dims(1))
        mask = ((1.0 - seen.astype(ms.float32)) * MASKED).expand_dims(1).expand_dims(1)
        lines = self.first_lines + slot
        for index in range(len(self.keys)):
            layer = self.model.layers[index]
            query, key, value = layer.project(x, cos, sin)
            keys = self.write(self.keys[index], lines, key.reshape(self.flat))
            values = self.write(self.values[index], lines, value.reshape(self.flat))
            scores = self.scores(query.reshape(self.grouped), keys.reshape(self.split))
            share = ops.softmax(scores + mask, -1)
            attended = self.weigh(share, values.reshape(self.split))
            x = layer.finish(x, attended.reshape((x.shape[0], -1)))
        return self.model.logits(x)


def _use_cpu() -> None:
    """Run all further operations on the CPU."""
    try:
        ms.set_device("CPU")
    except RuntimeError:
        # MindSpore accepts no second device, and a training process may use the CPU already.
        if ms.get_context("device_target") != "CPU":
            raise


def _shape_of(folder: Path) -> ModelShape:
    """Read the model's shape from its config.json.

    Raises:
        StageError: The model is not a Qwen2 model, or has RoPE scaling or sliding-window attention.
    """
    config = read_json(folder / "config.json")
    unknown = [name for name in ("rope_scaling", "use_sliding_window") if config.get(name)]
    shape = None if unknown or config.get("model_type") != ARCHITECTURE else read_shape(folder)
    if shape is None:
        found = ", ".join(unknown) or f"model_type {config.get('model_type')!r}"
        raise StageError(
            f"{folder / 'config.json'}: the local sampler supports plain Qwen2 only, got {found}. "
            "Sample with engine: server instead."
        )
    return shape


def _checked_shape(folder: Path, output: str | None) -> ModelShape:
    """Read the model's shape, and compare it with the tensors' before any is read.

    Args:
        folder: As in LocalSampler.
        output: As in LocalSampler.

    Raises:
        StageError: As `_shape_of`; or a tensor is missing or has another shape; or the tables of
            the rotary embedding would exceed CACHE_LIMIT_BYTES.
    """
    shape = _shape_of(folder)
    wanted = expected_shapes(shape)
    if output is not None:
        wanted.pop(HEAD, None)
        wanted[output] = (1, shape.hidden_size)
    found = read_files(weight_files(folder))
    if wrong := list(misfits(wanted, {name: name for name in wanted}, found)):
        raise StageError(
            f"{folder}: {len(wrong)} tensors do not fit config.json: {first_few(wrong)}. Weights "
            "and config.json belong to different models, or a file is missing: fetch the model "
            "again."
        )
    # NumPy computes angles, cosines and sines in float64 first.
    tables = 3 * 8 * shape.max_position_embedding * shape.head_dim
    if tables > CACHE_LIMIT_BYTES:
        raise StageError(
            f"{folder / 'config.json'}: the rotary embedding of max_position_embeddings "
            f"{shape.max_position_embedding} needs {tables / 2**30:.1f} GiB, the limit of the "
            f"local sampler is {CACHE_LIMIT_BYTES >> 30} GiB. Sample with engine: server instead."
        )
    return shape


class LocalSampler:
    """Draws responses to prompts; one instance can be used for any number of sets of prompts.

    Args:
        folder: A Hugging Face folder of a Qwen2 model.
        output: Name of the head's tensor; None: that of the vocabulary.
    """

    def __init__(self, folder: Path, output: str | None = None) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        _use_cpu()
        self.shape = _checked_shape(folder, output)
        self.ends = end_tokens(folder)
        self.output = output
        self.model = Model(self.shape, read_weights(folder), output)
        self.layout: Layout | None = None
        self.prefill: Prefill
        self.step: Step

    def load(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """Replace the weights; the compiled graphs stay.

        Args:
            weights: Hugging Face name -> array, of the same shapes as before.

        Raises:
            StageError: A tensor has another shape; then no weight is replaced.
        """
        new = Model(self.shape, dict(weights), self.output).get_parameters()
        pairs = list(zip(self.model.get_parameters(), new, strict=True))
        for old, value in pairs:
            if old.shape != value.shape:
                raise StageError(
                    f"{old.name} has the shape {value.shape} in the new weights, and the sampler's "
                    f"model has {old.shape}. Load the weights of the same model."
                )
        for old, value in pairs:
            old.set_data(value)

    def prepare(self, layout: Layout) -> None:
        """Make the Cells for a layout; the present Cells are kept if the layout has not changed.

        Raises:
            StageError: The KV cache would exceed CACHE_LIMIT_BYTES.
        """
        if layout == self.layout:
            return
        token_bytes = 2 * 4 * self.shape.num_layers * self.shape.n_kv_heads * self.shape.head_dim
        needed = layout.rows * layout.slots * token_bytes
        if needed > CACHE_LIMIT_BYTES:
            raise StageError(
                f"the KV cache of {layout.rows} rows × {layout.slots} tokens needs "
                f"{needed / 2**30:.1f} GiB, the limit of the local sampler is "
                f"{CACHE_LIMIT_BYTES >> 30} GiB. Set a smaller batch, max_new_tokens or "
                "max_model_len."
            )
        cache = empty_cache(self.shape, layout)
        self.prefill = Prefill(self.model, cache, self.shape, layout)
        self.step = Step(self.model, cache, self.shape, layout)
        self.prefill.set_train(False)
        self.step.set_train(False)
        self.layout = layout

    def read(self, prompts: list[list[int]], rows: list[int]) -> tuple[NDArray[np.float32], Tensor]:
        """Fill the cache with the rows' prompts.

        Args:
            prompts: At most ``layout.prompts`` lists of token ids.
            rows: The prompt index of each of the ``layout.rows`` rows.

        Returns:
            Logits of each row's next token [rows, vocabulary]; number of padding tokens [rows].
        """
        assert self.layout is not None
        slots = self.layout.prompt_slots
        filled = prompts + prompts[:1] * (self.layout.prompts - len(prompts))
        padding = np.array([slots - len(prompt) for prompt in filled], np.int32)
        ids = np.array([[0] * int(pad) + p for pad, p in zip(padding, filled, strict=True)])
        columns = np.arange(slots, dtype=np.int32)
        positions = np.maximum(columns[None] - padding[:, None], 0)
        # A padding token sees only itself, so that its softmax has one slot that is not masked.
        seen = (columns[None, :, None] >= columns) & (columns >= padding[:, None, None])
        seen |= np.eye(slots, dtype=bool)[None]
        mask = np.where(seen, 0.0, MASKED).astype(np.float32)[:, None]
        tensors = [ids.astype(np.int32), positions, mask, np.array(rows, np.int32)]
        logits = self.prefill(*[Tensor(value) for value in tensors]).asnumpy()
        return logits[rows], Tensor(padding[rows])

    def sample(
        self,
        prompts: list[list[int]],
        rows: list[Row],
        max_new_tokens: list[int],
        settings: SamplingConfig,
        log_probs: bool = False,
    ) -> list[Drawn]:
        """Draw one response per row.

        Args:
            prompts: The batch's distinct prompts, as token ids.
            rows: At most ``layout.rows`` samples.
            max_new_tokens: The token limit of each row.
            settings: The sampling fields.
            log_probs: Whether the drawn tokens' log-probs are returned.

        Returns:
            One Drawn per row, in the rows' order.
        """
        assert self.layout is not None
        spare = self.layout.rows - len(rows)
        prompt_of_row = [row.prompt for row in rows] + [0] * spare
        logits, padding = self.read(prompts, prompt_of_row)
        limits = np.array(max_new_tokens + [0] * spare)
        streams = Streams([row.seed for row in rows] + [0] * spare)
        seen = self._seen(prompts, prompt_of_row)
        steps: list[NDArray[np.int64]] = []
        reported: list[NDArray[np.float32]] = []
        done = limits == 0
        for step in range(int(limits.max())):
            uniforms = streams.next()
            # Drawing takes as long as the step, and a row that has ended needs no more tokens.
            running = np.flatnonzero(~done)
            chosen = np.zeros(len(done), np.int64)
            chosen[running] = _draw(logits[running], uniforms[running], seen, running, settings)
            if log_probs:
                numbers = np.zeros(len(done), np.float32)
                numbers[running] = log_probs_of(logits[running], chosen[running])
                reported.append(numbers)
            steps.append(chosen)
            done |= np.isin(chosen, self.ends) | (step + 1 >= limits)
            if done.all():
                break
            slot = Tensor(np.array([self.layout.prompt_slots + step], np.int32))
            logits = self.step(Tensor(chosen.astype(np.int32)), slot, padding).asnumpy()
        found = np.array(reported).T if reported else None
        return list(self._cut(np.array(steps).T[: len(rows)], max_new_tokens, found))

    def _seen(self, prompts: list[list[int]], rows: list[int]) -> NDArray[np.bool_]:
        seen = np.zeros((len(prompts), self.shape.vocab_size), bool)
        for index, prompt in enumerate(prompts):
            seen[index, prompt] = True
        return seen[rows]

    def _cut(
        self,
        tokens: NDArray[np.int64],
        max_new_tokens: list[int],
        log_probs: NDArray[np.float32] | None,
    ) -> Iterator[Drawn]:
        """Cut each row at its end; rows are decoded until all rows of the batch have ended."""
        for index, (row, limit) in enumerate(zip(tokens, max_new_tokens, strict=True)):
            ends = np.flatnonzero(np.isin(row[:limit], self.ends))
            length, reason = (ends[0] + 1, "stop") if ends.size else (limit, "length")
            numbers = [] if log_probs is None else log_probs[index, :length].tolist()
            yield Drawn(row[:length].tolist(), reason, numbers)


def _draw(
    logits: NDArray[np.float32],
    uniforms: NDArray[np.float64],
    seen: NDArray[np.bool_],
    rows: NDArray[np.int64],
    settings: SamplingConfig,
) -> NDArray[np.int64]:
    """Draw the next token of some rows, and note it in ``seen``, [all rows, vocabulary]."""
    if settings.repetition_penalty != 1.0:
        logits = penalise(logits, seen[rows], settings.repetition_penalty)
    chosen = draw(logits, uniforms, settings)
    seen[rows, chosen] = True
    return chosen
