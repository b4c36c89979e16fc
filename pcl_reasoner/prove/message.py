"""The message of a failed proof: what differs, where, and what is the cause.

http://a:8000/v1: does not compute what the trained checkpoint computes. Log-probs of 1834 tokens in
8 stored responses differ by 0.31 nats on average (limit 0.0001), …
  The cause: rotary base 10000, where training has 1e+06. With it our pass differs by 2.1e-06. …
"""

from pathlib import Path
from typing import Any

from pcl_reasoner.prove.cause import SHOWN, Tried
from pcl_reasoner.recheck.difference import Difference
from pcl_reasoner.recheck.limits import Limits


def failure(
    name: str,
    found: Difference,
    segments: int,
    limits: Limits,
    tried: list[Tried],
    details: Path,
    untried: str = "suspects: false",
) -> str:
    """Return the message.

    Args:
        name: The server's URL, or what computed instead of a server.
        found: How far it is from the trained checkpoint.
        segments: Number of stored responses.
        limits: The limits.
        tried: The suspects that were tried, the nearest first; empty: none was.
        details: The file with all figures.
        untried: Why none was tried.
    """
    places = ", ".join(f"{one.first}: {one.mean:.2g}" for one in found.by_position)
    lines = [
        f"{name}: does not compute what the trained checkpoint computes. Log-probs of "
        f"{found.tokens} tokens in {segments} stored responses differ by {found.mean:.3g} nats on "
        f"average (limit {limits.mean:g}), 99th percentile {found.p99:.3g} (limit {limits.p99:g}), "
        f"largest {found.largest:.3g} (limit {limits.largest:g}).",
        f"  Mean by position, from each position on: {places}.",
        *_cause(tried, untried),
        f"  Nothing was scored or sampled. All figures: {details}. docs/walk/proof.md helps.",
    ]
    return "\n".join(lines)


def _cause(tried: list[Tried], untried: str) -> list[str]:
    if not tried:
        return [f"  No suspect was tried ({untried})."]
    same = [one for one in tried if one.reproduces]
    if not same:
        nearest = "; ".join(map(_shown, tried[:SHOWN]))
        return [
            f"  None of {len(tried)} suspects reproduces it. The nearest: {nearest}. Two faults at "
            "once, or one that is no suspect: compare the served folder's files with the export's."
        ]
    first, *others = same
    lines = [
        f"  The cause: {first.suspect.name}. With it our pass differs by "
        f"{first.difference.mean:.3g} on average. {first.suspect.remedy}".rstrip()
    ]
    if others:
        shown = "; ".join(map(_shown, others[:SHOWN]))
        lines.append(f"  These responses cannot tell it from: {shown}.")
    return lines


def _shown(one: Tried) -> str:
    return f"{one.suspect.name} ({one.difference.mean:.3g})"


def figures(
    facts: dict[str, Any], found: Difference, tried: list[Tried], limits: Limits
) -> dict[str, Any]:
    """Return the figures of one server, for proof.json or the file of a failed proof."""
    result = {**facts, "difference": found.as_json(), "limits": limits.model_dump()}
    if tried:
        result["suspects"] = [one.as_json() for one in tried]
    return result
