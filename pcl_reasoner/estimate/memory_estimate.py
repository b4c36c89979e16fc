"""Estimates the memory of a device, by pipeline stage and by content (weights, gradients …).

    {"weights": 1 365 172 224, "weights in the compute type": 1 950 351 360, "gradients": …}

Parameters and moments are exact: their slices equal the slices in the front-end parallel compile.
The rest is what MindFormers' graph must keep, counted from its operators' inputs.
docs/cluster/plan.md has each formula. Memory that a device's kernels, collectives and allocator
need in addition is not included.
"""

from dataclasses import dataclass

from pcl_reasoner.estimate.training_size import Training
from pcl_reasoner.losses.chunks import chunk_length, chunked_bytes

FLOAT32 = 4
MOMENTS = 2
ASCEND_STATISTICS = 16
"""float32 numbers per head and token that Ascend's attention keeps: eight copies of two numbers."""
ATTENTION_OUTPUT = "attention's output"
ROUND_GRADIENTS = "gradients of the round"
STATES = ("weights", "weights in the compute type", "gradients", ROUND_GRADIENTS, "moments")
"""Contents of memory whose size does not depend on the rows; all others are activations."""


@dataclass(frozen=True)
class Parameter:
    """All parameters with the same name in a pipeline stage, e.g. ``wq`` of every layer.

    Args:
        name: The parameter's name, without the layer's number.
        count: Number of parameters of this name in the stage.
        slice_size: Elements in one parameter's tensor-parallel slice on a rank.
        first: Rows of that slice; optimizer sharding divides a slice by rows.
        shardable: Whether MindFormers allows optimizer sharding of these parameters.
    """

    name: str
    count: int
    slice_size: int
    first: int
    shardable: bool

    def held(self, job: Training) -> int:
        """Elements of one parameter on a rank, after optimizer sharding."""
        return self.slice_size // job.data if self.is_sharded(job) else self.slice_size

    def is_sharded(self, job: Training) -> bool:
        """Whether ranks shard the parameter; its complete size must reach ``shard_threshold``."""
        large = self.slice_size * job.tensor * FLOAT32 >= job.shard_threshold
        shared = self.shardable and job.optimizer_shard and job.data > 1
        return shared and large and self.first % job.data == 0


def stage_parameters(job: Training, stage: int) -> list[Parameter]:
    """List all parameters of a stage.

    Args:
        job: The training.
        stage: The pipeline stage, from 0.

    Source: MindFormers 1.8.0's LlamaForCausalLM; it excludes norms, biases and the embedding from
        optimizer sharding.
    """
    count, parts = job.stage_layers[stage], job.tensor

    def by_rows(name: str, outputs: int, count: int = count, shardable: bool = True) -> Parameter:
        size = outputs * job.hidden // parts
        return Parameter(name, count, size, outputs // parts, shardable)

    def by_columns(name: str, inputs: int) -> Parameter:
        return Parameter(name, count, job.hidden * inputs // parts, job.hidden, True)

    inputs = (("wq", job.hidden), ("wk", job.keys), ("wv", job.keys))
    found = [
        *(by_rows(name, size) for name, size in inputs),
        by_columns("wo", job.hidden),
        *(by_rows(name, job.feed_forward) for name in ("w1", "w3")),
        by_columns("w2", job.feed_forward),
        Parameter("norms", 2 * count, job.hidden, job.hidden, False),
    ]
    if job.biased:
        sizes = ((f"{name} bias", size // parts) for name, size in inputs)
        found += [Parameter(name, count, size, size, False) for name, size in sizes]
    last = stage == job.stages - 1
    if stage == 0 or (last and job.tied):
        found.append(by_rows("embedding", job.vocabulary, 1, shardable=False))
    if last:
        found.append(Parameter("final norm", 1, job.hidden, job.hidden, False))
    if last and not job.tied:
        found.append(by_rows("lm_head", job.vocabulary, 1))
    return found


def parameters_held(job: Training, stage: int) -> int:
    """Parameter elements on a rank of a stage, after optimizer sharding."""
    return sum(one.count * one.held(job) for one in stage_parameters(job, stage))


def slice_numbers(job: Training, stage: int) -> int:
    """Parameter elements on a rank of a stage, before optimizer sharding."""
    return sum(one.count * one.slice_size for one in stage_parameters(job, stage))


def sharded_numbers(job: Training, stage: int) -> int:
    """Elements in the slices that each step gathers from the data-parallel ranks."""
    sharded = (one for one in stage_parameters(job, stage) if one.is_sharded(job))
    return sum(one.count * one.slice_size for one in sharded)


def layer_activations(
    job: Training, fused_norm: bool = True, statistics: int = ASCEND_STATISTICS
) -> dict[str, int]:
    """Bytes that one layer keeps per micro-batch for its backward pass, by tensor.

    Args:
        job: The training.
        fused_norm: True if a norm is one operator, as on Ascend: it keeps its input and recomputes
            the float32 copy. Otherwise the input in float32 and the normalised input are kept.
        statistics: float32 numbers per head and token that attention keeps.

    Source: the operators of mindformers/models/llama/llama_transformer.py and llama_layer.py;
        docs/cluster/plan.md lists which operator needs which tensor.
    """
    tokens, size = job.micro_tokens, job.compute_bytes
    cut, parts = job.sequence_parts, job.tensor
    stream = stream_bytes(job)
    norm_input = stream if fused_norm else stream // size * FLOAT32
    norm = FLOAT32 * tokens // cut + (0 if fused_norm else stream)
    wide = tokens * job.feed_forward * size // parts
    return {
        "layer's input": norm_input,
        "attention norm": norm,
        "input of queries, keys, values": tokens * job.hidden * size,
        "queries, keys, values": tokens * (job.hidden + 2 * job.keys) * size // parts,
        ATTENTION_OUTPUT: tokens * job.hidden * size // parts,
        "attention's statistics": tokens * job.heads * statistics * FLOAT32 // parts,
        "feed-forward norm's input": norm_input,
        "feed-forward norm": norm,
        "input of gate and up": tokens * job.hidden * size,
        "gate": wide,
        "gate, activated": wide,
        "up": wide,
        "product": wide,
    }


def stream_bytes(job: Training) -> int:
    """Bytes passed from one layer to the next, per micro-batch on one rank."""
    return job.micro_tokens * job.hidden * job.compute_bytes // job.sequence_parts


def kept_per_layer(job: Training) -> int:
    """Bytes kept on the device per micro-batch by a layer that is not recomputed."""
    absent = job.selected | ({ATTENTION_OUTPUT} if job.swap_attention else set())
    return sum(size for name, size in layer_activations(job).items() if name not in absent)


def stage_memory(job: Training, stage: int) -> dict[str, int]:
    """Return the bytes on each device of a pipeline stage, by content: weights, gradients, ….

    Args:
        job: The training.
        stage: The pipeline stage, from 0.
    """
    held = parameters_held(job, stage)
    tensors = layer_activations(job)
    recomputed = job.recomputed[stage]
    kept = job.stage_layers[stage] - recomputed
    last = stage == job.stages - 1
    # Micro-batches whose activations the stage keeps at once; forward and backward alternate.
    flight = min(job.stages - stage, job.micro_batches)
    # When most gradients exist at once: those of gate, up, product and two hidden states.
    gradients = 3 * tensors["product"] + 2 * tensors["input of gate and up"]
    # If no layer is recomputed completely, only the tensors of ``select_recompute`` are.
    remade = tensors if recomputed else job.selected
    return {
        "weights": FLOAT32 * held,
        "weights in the compute type": _compute_copies(job, stage),
        "gradients": _gradients(job, stage, held),
        # The micro-steps of a round add their gradients up in parameters, which are sharded.
        ROUND_GRADIENTS: FLOAT32 * held if job.by_rounds else 0,
        "moments": 0 if job.swap_optimizer else MOMENTS * FLOAT32 * held,
        "inputs of recomputed layers": flight * recomputed * stream_bytes(job),
        "activations of kept layers": flight * kept * kept_per_layer(job),
        "one recomputed layer": sum(tensors[name] for name in remade),
        "gradients of activations": gradients,
        "final norm": _final_norm(job) if last else 0,
        "logits": logits_bytes(job) if last else 0,
    }


def _compute_copies(job: Training, stage: int) -> int:
    """Bytes of complete slices in the compute type; a step gathers or casts each once."""
    if job.compute_bytes == FLOAT32:
        return FLOAT32 * sharded_numbers(job, stage)
    matrices = [one for one in stage_parameters(job, stage) if one.shardable]
    return job.compute_bytes * sum(one.count * one.slice_size for one in matrices)


def _gradients(job: Training, stage: int, held: int) -> int:
    """Bytes of float32 gradients.

    With one micro-batch and no pipeline, or with gradient sharding, a rank keeps only its shard.
    Otherwise gradients are accumulated in complete slices, and each rank then receives its shard as
    well.
    """
    if (job.stages == 1 and job.micro_batches == 1) or job.gradient_shard:
        return FLOAT32 * held
    shards = FLOAT32 * sharded_numbers(job, stage) // job.data
    return FLOAT32 * slice_numbers(job, stage) + shards


def _final_norm(job: Training) -> int:
    """Bytes of the final norm's input and output.

    The compiled graph gathers the output in float32 and then casts it.
    """
    numbers = job.micro_tokens * job.hidden
    cast = job.compute_bytes if job.compute_bytes < FLOAT32 else 0
    return numbers * job.compute_bytes // job.sequence_parts + numbers * (FLOAT32 + cast)


def logits_bytes(job: Training) -> int:
    """Peak bytes for a micro-batch's log-probabilities, without the weights' float32 gradient.

    Without ``logits_chunk_tokens`` all tokens count as one chunk, as in a model whose operators are
    sharded across ranks.
    """
    tokens = job.chunk_tokens or job.micro_tokens
    step = chunk_length(tokens, job.micro_rows, job.row_tokens) * job.micro_rows
    part = job.vocabulary // job.tensor
    moments = chunked_bytes(step, part, job.hidden, job.compute_bytes, job.entropy)
    return max(moments.values()) - FLOAT32 * part * job.hidden


def memory(job: Training) -> list[dict[str, int]]:
    """Return the result of ``stage_memory`` for every pipeline stage."""
    return [stage_memory(job, stage) for stage in range(job.stages)]


def fullest(job: Training) -> tuple[int, int]:
    """Return (index, bytes per device) of the pipeline stage that takes most memory."""
    totals = [sum(kinds.values()) for kinds in memory(job)]
    most = max(totals)
    return totals.index(most), most


def moments_bytes(job: Training, stage: int) -> int:
    """Bytes of a rank's moments, on the device or in host memory."""
    return MOMENTS * FLOAT32 * parameters_held(job, stage)
