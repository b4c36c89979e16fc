"""Estimates the hours that servers need to generate responses, from the chip's speed and memory.

    {"responses": 48512, "tokens": 24264.0, "at_once": 32, "seconds_per_token": 0.0187, "hours":
    11.9}

docs/cluster/plan.md has each formula. A decoding step, which draws one token per response, reads
all weights and the keys and values of every response. Its time is the time of this reading or of
the computation, whichever is longer. Nothing was measured.
"""

import math
from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.time_estimate import layer_matrix_numbers
from pcl_reasoner.estimate.training_size import Training

SERVED_BYTES = 2
"""Bytes per number in served weights, keys and values: bfloat16."""
MEMORY_SHARE = 0.9
"""Share of a device's memory that vLLM takes by default."""
MOST_AT_ONCE = 256
"""Largest number of responses that vLLM decodes at once by default."""


@dataclass(frozen=True)
class Workload:
    """The responses that a stage draws, and its servers.

    Args:
        stage: The recipe and the stage, e.g. ``v15_opg/sample``.
        responses: Responses to draw.
        tokens: Mean tokens per response.
        prompt_tokens: Mean tokens per prompt.
        longest: Tokens of the longest allowed response.
        servers: Servers that work at the same time.
        devices: Devices per server: vLLM's tensor parallel size.
        under_way: Responses requested at the same time, over all servers.
        notes: The source of each number.
    """

    stage: str
    responses: int
    tokens: float
    prompt_tokens: float
    longest: int
    servers: int
    devices: int
    under_way: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cost:
    """The time that a stage needs to draw its responses.

    Args:
        at_once: Responses that a server decodes at once.
        fitting: Responses whose keys and values fit into a server's memory.
        seconds_per_token: Seconds per decoding step, which draws a token of each response at once.
        decode_hours: Hours to decode all tokens.
        prefill_hours: Hours to prefill all prompts.
        longest_hours: Hours of the longest allowed response, alone on a server.
        hours: Hours of decoding and prefill.
        device_hours: Device-hours of the servers' devices; idle devices of a node do not count.
    """

    at_once: int
    fitting: int
    seconds_per_token: float
    decode_hours: float
    prefill_hours: float
    longest_hours: float
    hours: float
    device_hours: float


def weight_numbers(model: Training) -> int:
    """Number of weights that each decoding step reads: all layers and the output matrix.

    The embedding does not count.
    """
    return model.layers * layer_matrix_numbers(model) + model.vocabulary * model.hidden


def weight_bytes(model: Training, devices: int) -> float:
    """Bytes per device of the weights that ``weight_numbers`` counts."""
    return SERVED_BYTES * weight_numbers(model) / devices


def token_bytes(model: Training, devices: int) -> float:
    """Bytes per device of a token's keys and values; a single key-value head is never split."""
    ranks = min(devices, model.key_heads)
    return 2 * SERVED_BYTES * model.layers * model.keys / ranks


def fitting_responses(model: Training, chip: Chip, workload: Workload) -> int:
    """Number of responses that fit beside the weights; each has its prompt and half its tokens."""
    embedding = SERVED_BYTES * model.vocabulary * model.hidden / workload.devices
    weights = weight_bytes(model, workload.devices) + embedding
    free = MEMORY_SHARE * chip.memory_bytes - weights
    context = workload.prompt_tokens + workload.tokens / 2
    return max(0, int(free // (context * token_bytes(model, workload.devices))))


def token_seconds(model: Training, chip: Chip, workload: Workload, at_once: int) -> float:
    """Seconds to decode one token per response: the slower of memory reads and computation."""
    context = workload.prompt_tokens + workload.tokens / 2
    keys = at_once * context * token_bytes(model, workload.devices)
    reading = (weight_bytes(model, workload.devices) + keys) / chip.memory
    products = 2.0 * weight_numbers(model) * at_once / workload.devices / chip.matrix
    attention = 4.0 * model.layers * model.hidden * context * at_once / workload.devices
    return max(reading, products + attention / chip.attention)


def cost(model: Training, chip: Chip, workload: Workload) -> Cost | None:
    """Estimate a stage's hours; None if weights and one response do not fit into a server's memory.

    Args:
        model: The model's shape; its training settings are ignored.
        chip: The device.
        workload: The responses and the servers.
    """
    fitting = fitting_responses(model, chip, workload)
    if fitting < 1:
        return None
    requested = math.ceil(min(workload.under_way, workload.responses) / workload.servers)
    at_once = min(requested, fitting, MOST_AT_ONCE)
    seconds = token_seconds(model, chip, workload, at_once)
    rounds = workload.responses / (workload.servers * at_once)
    decode = rounds * workload.tokens * seconds / SECONDS_PER_HOUR
    prompt = workload.prompt_tokens
    products = 2.0 * weight_numbers(model) * prompt / chip.matrix
    attention = 2.0 * model.layers * model.hidden * prompt * prompt / chip.attention
    prefill = workload.responses * (products + attention) / (workload.servers * workload.devices)
    hours = decode + prefill / SECONDS_PER_HOUR
    alone = token_seconds(model, chip, replace(workload, tokens=workload.longest), 1)
    return Cost(
        at_once=at_once,
        fitting=fitting,
        seconds_per_token=seconds,
        decode_hours=decode,
        prefill_hours=prefill / SECONDS_PER_HOUR,
        longest_hours=workload.longest * alone / SECONDS_PER_HOUR,
        hours=hours,
        device_hours=hours * workload.servers * workload.devices,
    )
