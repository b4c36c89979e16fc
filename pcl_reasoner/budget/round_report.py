"""Describes one round of the stage ``rl`` as lines of text, and as one JSON value.

a round of am_thinking_v1/rl_1: 256 problems x 16 = 4,096 responses of at most 24,576 tokens; …
  hours per round: sampling 0.10, tests 0.00, probe 0.01, training 0.15, hand-over 0.09 = 0.35
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pcl_reasoner.budget.round_size import ROUNDING_RATE, TRAINING, RoundEstimate
from pcl_reasoner.budget.sandbox_size import SMALL_TESTS, program_seconds
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.saves import FILE_RATE, HASHING_RATE
from pcl_reasoner.rounds.config import RlConfig

_GB = 1e9


def headline(stage: str, config: RlConfig) -> str:
    """Describe a round; everything in it is known from the settings."""
    longest = config.max_new_tokens or config.max_model_len
    return (
        f"a round of {stage}: {config.queries:,} problems x {config.n} = {config.responses:,} "
        f"responses of at most {longest:,} tokens, at temperature {config.temperature:g}; one "
        "update"
    )


def end_line(config: RlConfig) -> str:
    """Describe when the stage ends."""
    if config.plateau is None:
        return f"ends after {config.max_rounds:,} rounds"
    rule, every = config.plateau, config.probe.every
    first = max(rule.min_rounds, (rule.window - 1) * every)
    first = -(-first // every) * every
    if first > config.max_rounds:
        return (
            f"ends after {config.max_rounds:,} rounds: the plateau rule needs {rule.window} probes "
            f"and {rule.min_rounds} rounds, so it could end the stage at round {first:,} first"
        )
    return (
        f"ends at a plateau (a gain below {rule.min_gain:g} over {rule.window} probes, from round "
        f"{first} on; a probe every {config.probe.every} rounds, "
        f"{config.probe.problems} problems x {config.probe.n}), or after {config.max_rounds:,} "
        "rounds"
    )


def lines(found: RoundEstimate) -> Iterator[str]:
    """Yield the lines that describe a round; those after the first are indented."""
    yield headline(found.stage, found.config)
    for line in _details(found):
        yield f"  {line}"


def _details(found: RoundEstimate) -> Iterator[str]:
    size, config = found.size, found.config
    yield (
        f"rows: about {size.rows:,} of {size.row_tokens:,} tokens in {size.steps:,} micro-steps of "
        f"{size.global_rows}, if every response has an advantage (mean {found.tokens.number:,.0f} "
        f"tokens: {found.tokens.source})"
    )
    yield from _hours(found)
    yield from _tests(found)
    yield _passes(found)
    yield end_line(config)
    steps = (f"{step} {seconds:.0f} s" for step, seconds in found.hand_over().items() if seconds)
    yield (
        f"hand-over: {found.folder_bytes / _GB:,.0f} GB in {config.weights_dtype}, "
        f"{config.keep_weights} kept; {', '.join(steps)} (ASSUMED: {FILE_RATE / _GB:g} GB/s per "
        f"host to the shared folder; hashing {HASHING_RATE / _GB:g} GB/s, rounding "
        f"{ROUNDING_RATE / _GB:g} GB/s in one process)"
    )


def _hours(found: RoundEstimate) -> Iterator[str]:
    phases, hours = found.phases, found.hours
    parts = ", ".join(f"{name} {part:.2f}" for name, part in phases.items())
    if hours is None:
        why = found.sampling.problem if found.sampling else "no server draws the responses"
        yield f"hours per round: {parts}; sampling is not known: {why}"
        return
    most = max(phases, key=lambda name: phases[name])
    waiting = 1 - phases[TRAINING] / hours
    yield (
        f"hours per round: {parts}; {hours:.2f} in all, {most} takes most; the hosts that train "
        f"wait {waiting:.0%} of the time"
    )
    yield f"hours of {found.config.max_rounds:,} rounds: {found.config.max_rounds * hours:,.0f}"
    cost = found.sampling.cost if found.sampling else None
    if cost is not None:
        yield (
            f"sampling: {cost.hours:.2f} h on servers that are always full, and at least "
            f"{cost.longest_hours:.2f} h, which the longest response takes alone"
        )


def _tests(found: RoundEstimate) -> Iterator[str]:
    if found.tests is None:
        return
    fewest, most = program_seconds(found.tests, found.workers)
    tests = found.tests.tests or SMALL_TESTS
    yield (
        f"tests: {found.tests.programs:,} programs ({found.tests.source}) by {found.workers} "
        f"workers: from {fewest:,.0f} s (ASSUMED: {tests} small tests each) to {most:,.0f} s "
        f"(every program reaches its limit of {found.tests.seconds:g} s)"
    )


def _passes(found: RoundEstimate) -> str:
    queries = found.config.queries
    if found.problems is None:
        return (
            f"problems: their number is not published, so neither are the rounds per pass of "
            f"{queries:,} problems each; pclr-ms plan takes --problems"
        )
    rounds = int(found.problems.number) // queries
    return (
        f"problems: {found.problems.number:,.0f} ({found.problems.source}): {rounds:,} rounds per "
        "pass"
    )


def as_json(found: RoundEstimate) -> dict[str, Any]:
    """Return the round as a JSON value, in bytes, seconds and hours."""
    phases = found.phases
    seconds = {name: hours * SECONDS_PER_HOUR for name, hours in phases.items()}
    return {
        "responses": found.config.responses,
        "tokens_per_response": found.tokens.number,
        "rows": found.size.rows,
        "micro_steps": found.size.steps,
        "seconds": seconds,
        "hand_over_seconds": found.hand_over(),
        "hours": found.hours,
        "max_rounds": found.config.max_rounds,
        "slice_bytes": found.slice_bytes,
        "folder_bytes": found.folder_bytes,
    }
