"""Estimates the hours that servers need for responses, from the chip's speed and memory.

    {"responses": 48512, "tokens": 32000, "at_once": 32, "seconds_per_token": 0.0223, "hours":
    18.8}

docs/cluster/plan.md has each formula. A decoding step, which draws one token per response, reads
all weights and the keys and values of every response. Its time is the time of this reading or of
the computation, whichever is longer. Nothing was measured.
"""

import math
from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.served_shape import SERVED_BYTES, ServedModel

MEMORY_SHARE = 0.9
"""Share of a device's memory that vLLM takes by default."""
MOST_AT_ONCE = 256
"""Largest number of responses that vLLM decodes at once by default."""


@dataclass(frozen=True)
class Workload:
    """The responses that a stage draws or has read, and its servers.

    Args:
        stage: The recipe and the stage, e.g. ``v15_opg/sample``.
        responses: Responses to draw, or to read.
        tokens: Mean tokens per response that is drawn; 0 if responses are only read, e.g. scored.
        prompt_tokens: Mean tokens that are read per response.
        longest: Tokens of the longest allowed response.
        servers: Servers that work at the same time.
        devices: Devices over which every layer is split: vLLM's tensor parallel size.
        under_way: Responses requested at the same time, over all servers.
        notes: The source of each number.
        stages: Pipeline stages per server; ``devices`` is the number for each stage.
        copies: vLLM's data parallel size. The copies of a server share its experts; of a model
            without experts, each is a complete server.
        possible: Servers of this size that the devices of all hosts allow; 0 if the servers run
            elsewhere.
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
    stages: int = 1
    copies: int = 1
    possible: int = 0

    @property
    def server_devices(self) -> int:
        """Devices per server."""
        return self.devices * self.stages * self.copies


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


def weight_bytes(model: ServedModel, workload: Workload) -> float:
    """Bytes per device of the weights that a decoding step reads: all but the embedding."""
    return model.weight_bytes * model.read / workload.server_devices


def token_bytes(model: ServedModel, workload: Workload) -> float:
    """Mean bytes per device of what is kept of a token; a single key-value head is never split."""
    parts = min(workload.devices, model.cache_parts) * workload.stages * workload.copies
    return SERVED_BYTES * model.layers * model.cached / parts


def fitting_responses(model: ServedModel, chip: Chip, workload: Workload) -> int:
    """Number of responses that fit beside the weights; each has its prompt and half its tokens."""
    weights = model.weight_bytes * model.stored / workload.server_devices
    free = MEMORY_SHARE * chip.memory_bytes - weights
    context = workload.prompt_tokens + workload.tokens / 2
    return max(0, int(free // (context * token_bytes(model, workload))))


def token_seconds(model: ServedModel, chip: Chip, workload: Workload, at_once: int) -> float:
    """Seconds to decode one token per response: the slower of memory reads and computation."""
    context = workload.prompt_tokens + workload.tokens / 2
    keys = at_once * context * token_bytes(model, workload)
    reading = (weight_bytes(model, workload) + keys) / chip.memory
    products = 2.0 * model.active * at_once / workload.server_devices / chip.matrix
    attention = 4.0 * model.layers * model.width * context * at_once / workload.server_devices
    return max(reading, products + attention / chip.attention)


def cost(model: ServedModel, chip: Chip, workload: Workload) -> Cost:
    """Estimate a stage's hours.

    Args:
        model: The model's shape.
        chip: The device.
        workload: The responses, at least one, and servers whose memory has room for one.
    """
    fitting = fitting_responses(model, chip, workload)
    requested = math.ceil(min(workload.under_way, workload.responses) / workload.servers)
    at_once = min(requested, fitting, MOST_AT_ONCE)
    seconds = token_seconds(model, chip, workload, at_once)
    rounds = workload.responses / (workload.servers * at_once)
    decode = rounds * workload.tokens * seconds / SECONDS_PER_HOUR
    prompt = workload.prompt_tokens
    products = 2.0 * model.active * prompt / chip.matrix
    attention = 2.0 * model.layers * model.width * prompt * prompt / chip.attention
    devices = workload.servers * workload.server_devices
    prefill = workload.responses * (products + attention) / devices
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
        device_hours=hours * devices,
    )
