"""Hours of drawing responses from a model by servers, from a stated model of the chip.

    {"responses": 48512, "tokens": 24264.0, "at_once": 32, "seconds_per_token": 0.0187, "hours":
    11.9}

docs/plan.md has each formula. Decoding reads all weights and every response's keys and values for
each token; it takes as long as that, or as its products where they take longer. Not measured here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.time_estimate import layer_matrix_numbers
from pcl_reasoner.estimate.training_size import Training

SERVED_BYTES = 2
"""Of a number in served weights, keys and values: bfloat16."""
MEMORY_SHARE = 0.9
"""Of a device's memory that vLLM takes by default."""
MOST_AT_ONCE = 256
"""Responses that vLLM decodes at once by default, at most."""


@dataclass(frozen=True)
class Serving:
    """What is drawn, and by what.

    Args:
        stage: ``v15_opg/sample``.
        responses: To draw.
        tokens: Mean tokens of one.
        prompt_tokens: Mean tokens of a prompt.
        longest: Tokens of the longest response that is allowed.
        servers: That answer at the same time.
        devices: Of each: vLLM's tensor parallel size.
        under_way: Responses asked for at the same time, over all servers.
        notes: Where each number is from.
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
    """What drawing costs.

    Args:
        serving: What is drawn.
        at_once: Responses that a server decodes at once.
        fitting: Responses whose keys and values its memory holds.
        seconds_per_token: For which every response waits.
        decode_hours: Of all tokens.
        prefill_hours: Of all prompts.
        longest_hours: Of the longest response that is allowed, with the server to itself.
    """

    serving: Serving
    at_once: int
    fitting: int
    seconds_per_token: float
    decode_hours: float
    prefill_hours: float
    longest_hours: float

    @property
    def hours(self) -> float:
        """In all."""
        return self.decode_hours + self.prefill_hours

    @property
    def device_hours(self) -> float:
        """Of the servers' devices; a node's others stand idle."""
        return self.hours * self.serving.servers * self.serving.devices


def weight_numbers(model: Training) -> int:
    """Weights that every decoded token reads: all layers and the output, not the embedding."""
    return model.layers * layer_matrix_numbers(model) + model.vocabulary * model.hidden


def weight_bytes(model: Training, devices: int) -> float:
    """Of them, on a device; the embedding lies beside them."""
    return SERVED_BYTES * weight_numbers(model) / devices


def token_bytes(model: Training, devices: int) -> float:
    """Keys and values of one token on a device; a head is never cut, only copied."""
    ranks = min(devices, model.key_heads)
    return 2 * SERVED_BYTES * model.layers * model.keys / ranks


def fitting_responses(model: Training, chip: Chip, serving: Serving) -> int:
    """Responses whose keys and values fit beside the weights, half of their tokens drawn."""
    embedding = SERVED_BYTES * model.vocabulary * model.hidden / serving.devices
    weights = weight_bytes(model, serving.devices) + embedding
    room = MEMORY_SHARE * chip.memory_bytes - weights
    context = serving.prompt_tokens + serving.tokens / 2
    return max(0, int(room // (context * token_bytes(model, serving.devices))))


def token_seconds(model: Training, chip: Chip, serving: Serving, at_once: int) -> float:
    """Seconds of one token of all responses at once: of reading, or of the products if longer."""
    context = serving.prompt_tokens + serving.tokens / 2
    keys = at_once * context * token_bytes(model, serving.devices)
    reading = (weight_bytes(model, serving.devices) + keys) / chip.memory
    products = 2.0 * weight_numbers(model) * at_once / serving.devices / chip.matrix
    attention = 4.0 * model.layers * model.hidden * context * at_once / serving.devices
    return max(reading, products + attention / chip.attention)


def cost(model: Training, chip: Chip, serving: Serving) -> Cost | None:
    """Estimate a stage; None where a server cannot hold the weights and one response.

    Args:
        model: The model's shape; its training settings do not count.
        chip: What it runs on.
        serving: What is drawn.
    """
    fitting = fitting_responses(model, chip, serving)
    if fitting < 1:
        return None
    asked = math.ceil(min(serving.under_way, serving.responses) / serving.servers)
    at_once = min(asked, fitting, MOST_AT_ONCE)
    seconds = token_seconds(model, chip, serving, at_once)
    rounds = serving.responses / (serving.servers * at_once)
    prompt = serving.prompt_tokens
    products = 2.0 * weight_numbers(model) * prompt / chip.matrix
    attention = 2.0 * model.layers * model.hidden * prompt * prompt / chip.attention
    longest = replace(serving, tokens=serving.longest)
    prefill = serving.responses * (products + attention) / (serving.servers * serving.devices)
    return Cost(
        serving=serving,
        at_once=at_once,
        fitting=fitting,
        seconds_per_token=seconds,
        decode_hours=rounds * serving.tokens * seconds / SECONDS_PER_HOUR,
        prefill_hours=prefill / SECONDS_PER_HOUR,
        longest_hours=serving.longest * token_seconds(model, chip, longest, 1) / SECONDS_PER_HOUR,
    )
