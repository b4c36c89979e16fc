"""Summarises a stage ``rl``: why it ended, what it counted, and the held-out accuracy by kind.

A sample line of the held-out accuracy::

    {"kind": "code", "problems": 16, "first": {"round": 0, "accuracy": 0.61, "se": 0.08},
     "last": {"round": 24, "accuracy": 0.83, "se": 0.06}, "gain": 0.22, "gain_se": 0.07}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import StageRecord, finite
from pcl_reasoner.rl_report.reading import COUNTED
from pcl_reasoner.rounds.plateau import mean_and_error, shares_of

ALL = "all"
"""Stands for all kinds together."""
OVERLONG = {
    "zero": "reward 0 and no advantage",
    "masked": "left out of its group",
    "wrong": "reward 0, as an incorrect response",
}
"""Rule for overlong responses -> what it means."""
ENDED = {
    "plateau": "held-out accuracy no longer rose",
    "max_rounds": "the largest number of rounds was made",
}
"""Why a stage ended -> what it means."""
_SAMPLING = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
"""Setting of sampling -> its on-policy value."""


def trained(records: Sequence[StageRecord]) -> list[StageRecord]:
    """Return the stages ``rl`` that have finished, in the order in which they ran."""
    return [one for one in records if one.type == "rl" and one.files.get("rl")]


def digests(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return a summary of every finished stage ``rl``."""
    return [_digest(record) for record in trained(records)]


def _digest(record: StageRecord) -> dict[str, Any]:
    config, found, end = record.config, record.files["rl"], record.files.get("plateau") or {}
    rounds = found["rounds"]
    outcomes = Counter[str]()
    for one in found["tests"]["rounds"]:
        outcomes.update(one["outcomes"])
    stopped = str(end.get("stopped", ""))
    return {
        "key": record.key,
        "name": record.name,
        "rounds": len(rounds),
        "ended": stopped,
        "ended_meaning": ENDED.get(stopped, ""),
        "gain": end.get("gain"),
        "gain_se": end.get("se"),
        "window": (end.get("fit") or {}).get("rounds") or [],
        "min_gain": (config.get("plateau") or {}).get("min_gain"),
        "updates": sum(row["loss"] is not None for row in rounds),
        **{name: sum(row[name] for row in rounds) for name in COUNTED},
        "mismatch_abs": _largest(rounds, "mismatch_abs"),
        "mismatch_max": _largest(rounds, "mismatch_max"),
        "overlong_rule": str(config.get("overlong", "")),
        "overlong_meaning": OVERLONG.get(str(config.get("overlong")), ""),
        "off_policy": str(config.get("off_policy", "")),
        "train_on_ratio": bool(config.get("train_on_ratio")),
        "held_out": held_out(record.files.get("probe") or []),
        "outcomes": dict(outcomes.most_common()),
        "failures": found["tests"]["failures"],
    }


def _largest(rounds: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [value for row in rounds if (value := finite(row[name])) is not None]
    return max(values, default=None)


def held_out(probes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the first probe with the last, over all problems and by kind.

    The gain is the mean of the problems' differences, so its error is that of the same problems.

    Args:
        probes: The lines of probe.jsonl.

    Returns:
        A line for ``all`` and one for each kind; empty without probes. Errors are standard errors
        over problems; None for a single problem.
    """
    if not probes:
        return []
    first, last = probes[0], probes[-1]
    pairs = list(zip(first["kinds"], shares_of(first), shares_of(last), strict=True))
    lines = []
    for kind in (ALL, *KINDS):
        chosen = [(a, b) for name, a, b in pairs if kind in (ALL, name)]
        if not chosen:
            continue
        before, after = (mean_and_error([pair[side] for pair in chosen]) for side in (0, 1))
        gain, error = mean_and_error([b - a for a, b in chosen])
        lines.append(
            {
                "kind": kind,
                "problems": len(chosen),
                "first": {"round": first["round"], "accuracy": before[0], "se": before[1]},
                "last": {"round": last["round"], "accuracy": after[0], "se": after[1]},
                "gain": gain,
                "gain_se": error,
            }
        )
    return lines


def warnings_about(records: Sequence[StageRecord]) -> list[str]:
    """Return the reasons not to call a training on-policy, or a result of its rewards."""
    found = []
    for record in trained(records):
        config = record.config
        if config.get("off_policy") == "allowed":
            used = ", ".join(f"{name} {config.get(name)}" for name in _SAMPLING)
            wanted = ", ".join(map(str, _SAMPLING.values()))
            found.append(
                f"{record.key}: off_policy is allowed. Its responses were drawn with {used}; "
                f"on-policy values are {wanted}. With other values, training is not on-policy."
            )
        if config.get("shuffle_rewards"):
            found.append(
                f"{record.key}: shuffle_rewards exchanged the rewards of each round's responses "
                "at random. This is a control experiment: its policy learned from chance."
            )
    return found
