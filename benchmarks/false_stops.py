"""How often the plateau rule of on-policy training stops too early, and how late it stops.

    python benchmarks/false_stops.py [--runs 1000] [--setting laptop] [--problems 64] [--n 4]
                                     [--windows 3 4 5] [--gains 0.02 0.08] [--min-rounds 16]

Held-out problems are drawn, each with its own accuracy: a normal spread of log-odds, shifted so
that the mean over all problems follows a curve. Each probe draws n responses per problem. The rule
is `pcl_reasoner.rounds.plateau.decide`, computed here for all runs at once, and compared with it.

The curves gain a number of points per probe up to a ceiling, or they gain 2 points per probe and
end (`ends`), or they slow down exponentially (`slows`). A stop is false if the curve gains at least
min_gain from the stop's probe to the last one of a full window that begins there.

Printed per rule: the share of runs with a false stop, within the horizon, per curve (`-`: the curve
never gains min_gain in a window); and of the other runs, how many probes after the first right one
they stop: the median and the 90th percentile (`>` and the horizon's end, if they have not stopped).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcl_reasoner.rounds.plateau import Plateau, decide

Floats = npt.NDArray[np.float64]
Shares = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

CEILING = 0.97
POINTS = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Percentage points per probe of the curves that gain steadily."""
RISING_PROBES = 8
"""Probes until the curve ``ends`` gains nothing more."""
LATE = ("0", "ends", "slows")
"""Curves whose stops can be late within the horizon."""


@dataclass(frozen=True)
class Setting:
    """What is simulated.

    Args:
        problems: Numbers of held-out problems to compare.
        n: Responses per problem in a probe.
        every: Rounds between two probes.
        min_rounds: As in Plateau.
        windows, gains: Values of ``window`` and ``min_gain`` to compare.
        spread: Standard deviation of the problems' log-odds.
        start: Mean accuracy of the first probe.
        slow: Probes in which the curve ``slows`` loses 63 % of its distance to its end.
        end: Accuracy at which ``slows`` ends.
        horizon: Number of probes.
    """

    problems: tuple[int, ...]
    n: int
    every: int
    min_rounds: int
    windows: tuple[int, ...]
    gains: tuple[float, ...]
    spread: float
    start: float
    slow: float
    end: float
    horizon: int


SETTINGS = {
    # Seed 0 of the laptop's recipe, in per cent: 62.5, and after 4, 8 and 12 rounds 85.2, 93.8 and
    # 95.3. The curve `slows` gains at half that speed.
    "laptop": Setting(
        problems=(64,),
        n=4,
        every=4,
        min_rounds=16,
        windows=(3, 4, 5),
        gains=(0.02, 0.04, 0.08),
        spread=1.0,
        start=0.62,
        slow=1.5,
        end=0.95,
        horizon=24,
    ),
    # Competition problems are mostly solved or not: the spread is wide.
    "cluster": Setting(
        problems=(200,),
        n=8,
        every=5,
        min_rounds=20,
        windows=(6, 8, 10, 12),
        gains=(0.005, 0.01, 0.02),
        spread=2.5,
        start=0.60,
        slow=15.0,
        end=0.80,
        horizon=60,
    ),
}


def curves(setting: Setting, probes: int) -> dict[str, Floats]:
    """Name -> the mean accuracy at each probe."""
    at = np.arange(probes)
    found = {f"{one:g}": np.minimum(setting.start + one / 100 * at, CEILING) for one in POINTS}
    found["ends"] = setting.start + 0.02 * np.minimum(at, RISING_PROBES)
    found["slows"] = setting.end - (setting.end - setting.start) * np.exp(-at / setting.slow)
    return found


def shifts(curve: Floats, spread: float) -> Floats:
    """The log-odds that give all problems together the accuracy of each probe."""
    normal = np.random.default_rng(0).standard_normal(8000) * spread
    grid = np.linspace(-12, 12, 241)
    accuracy = np.array([logistic(normal + shift).mean() for shift in grid])
    return np.interp(curve, accuracy, grid)


def logistic(values: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-values))
    return found


def drawn(curve: Floats, problems: int, setting: Setting, runs: int, seed: int) -> Shares:
    """Shares of correct responses, of shape (runs, probes, problems)."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((runs, problems)) * setting.spread
    shares = np.empty((runs, len(curve), problems), np.float32)
    for probe, shift in enumerate(shifts(curve, setting.spread)):
        shares[:, probe] = rng.binomial(setting.n, logistic(own + shift)) / setting.n
    return shares


def fits(shares: Shares, window: int) -> tuple[Floats, Floats]:
    """The gain and its error at each probe, of shape (runs, probes); NaN before a full window."""
    runs, probes, problems = shares.shape
    away = np.arange(window) - (window - 1) / 2
    weights = (away / (away**2).sum() * (window - 1)).astype(np.float32)
    gains, errors = np.full((runs, probes), np.nan), np.full((runs, probes), np.nan)
    for last in range(window - 1, probes):
        each = np.einsum("k,rkp->rp", weights, shares[:, last - window + 1 : last + 1])
        gains[:, last] = each.mean(1)
        errors[:, last] = each.std(1, ddof=1) / np.sqrt(problems)
    return gains, errors


def stops(fit: tuple[Floats, Floats], rules: Plateau, every: int) -> Ints:
    """The probe at which each run stops; the number of probes if it does not."""
    gains, errors = fit
    runs, probes = gains.shape
    late_enough = np.arange(probes) * every >= rules.min_rounds
    stop = (gains + errors < rules.min_gain) & late_enough
    return np.where(stop.any(1), stop.argmax(1), probes)


def agrees(shares: Shares, n: int, stopped: Ints, rules: Plateau, every: int) -> bool:
    """Whether the rule itself stops these runs at these probes."""
    for run, last in zip(shares, stopped, strict=True):
        lines = [
            {"round": probe * every, "n": n, "kinds": ["math"] * len(one), "correct": one}
            for probe, one in enumerate(np.rint(run * n).astype(int).tolist())
        ]
        count = next((i for i in range(len(lines)) if decide(lines[: i + 1], rules).stop), None)
        if (len(lines) if count is None else count) != last:
            return False
    return True


def cells(curve: Floats, stopped: Ints, rules: Plateau, every: int) -> tuple[str, str]:
    """The share of false stops, and how late the others are, as texts."""
    ahead = rules.window - 1
    probes = len(curve) - ahead
    gaining = curve[ahead:] - curve[:probes] >= rules.min_gain - 1e-9
    false = np.append(gaining, False)[stopped]
    share = f"{false.mean():.1%}" if gaining.any() else "-"
    first_fit = max(ahead, -(-rules.min_rounds // every))
    right = np.flatnonzero(~gaining[first_fit:])
    others = stopped[~false]
    if not len(right) or not len(others):
        return share, "-"
    late = np.sort(others) - first_fit - right[0]
    middle, tail = (late[int(share * (len(late) - 1))] for share in (0.5, 0.9))
    end = probes - first_fit - right[0]
    return share, " ".join(f">{end}" if one == end else str(one) for one in (middle, tail))


def rules_of(setting: Setting) -> Iterator[Plateau]:
    """All rules of a setting, one window after the other."""
    for window in setting.windows:
        for gain in setting.gains:
            yield Plateau(
                window=window,
                min_gain=gain,
                min_rounds=setting.min_rounds,
            )


def table(setting: Setting, problems: int, runs: int) -> list[list[str]]:
    """The rows of one number of problems; every rule sees the same draws."""
    rules = list(rules_of(setting))
    probes = setting.horizon + max(setting.windows) - 1
    rows = [[str(one.window), f"{one.min_gain:g}"] for one in rules]
    late: list[list[str]] = [[] for _ in rules]
    for seed, (name, curve) in enumerate(curves(setting, probes).items()):
        shares = drawn(curve[: setting.horizon], problems, setting, runs, seed + 1)
        by_window = {window: fits(shares, window) for window in setting.windows}
        for row, more, one in zip(rows, late, rules, strict=True):
            stopped = stops(by_window[one.window], one, setting.every)
            assert agrees(shares[:2], setting.n, stopped[:2], one, setting.every), (name, one)
            false, delay = cells(
                curve[: setting.horizon + one.window - 1], stopped, one, setting.every
            )
            row.append(false)
            more.extend([delay] if name in LATE else [])
        if name == "slows":
            print(f"{problems} problems: the error of a probe and of a window's gain, in points:")
            print(errors_text(shares, by_window))
    return [row + more for row, more in zip(rows, late, strict=True)]


def errors_text(shares: Shares, by_window: Mapping[int, tuple[Floats, Floats]]) -> str:
    """Errors of the first and last probe, and of the last gain for each window."""
    errors = shares.std(2, ddof=1).mean(0) / np.sqrt(shares.shape[2]) * 100
    ends = f"  accuracy {errors[0]:.1f} at first, {errors[-1]:.1f} at last; gain "
    last = (f"{one[1][:, -1].mean() * 100:.2f} (window {w})" for w, one in by_window.items())
    return ends + ", ".join(last)


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print the table with its head."""
    false = [*(f"{one:g}" for one in POINTS), "ends", "slows"]
    print(f"{'':16}  false stops, by points per probe{'':24}  probes late: median, 90 %")
    head = ["window", "min_gain", *false, *LATE]
    widths = [6, 8, *[7] * len(false), *[9] * len(LATE)]
    for row in (head, *rows):
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)))


def changed(setting: Setting, given: argparse.Namespace) -> Setting:
    """The setting with the options of the command line."""
    names = ("problems", "n", "windows", "gains", "min_rounds", "spread")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    lists = {name: tuple(one) if isinstance(one, list) else one for name, one in options.items()}
    return Setting(**{**vars(setting), **lists})


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--setting", choices=list(SETTINGS), nargs="+", default=list(SETTINGS))
    parser.add_argument("--problems", type=int, nargs="+")
    parser.add_argument("--n", type=int)
    parser.add_argument("--windows", type=int, nargs="+")
    parser.add_argument("--gains", type=float, nargs="+")
    parser.add_argument("--min-rounds", type=int)
    parser.add_argument("--spread", type=float)
    given = parser.parse_args()
    start = time.perf_counter()
    for name in given.setting:
        setting = changed(SETTINGS[name], given)
        print(
            f"\n{name}: {setting.n} responses per problem, a probe every {setting.every} rounds, "
            f"{setting.horizon} probes, min_rounds {setting.min_rounds}, {given.runs} runs"
        )
        for problems in setting.problems:
            show(table(setting, problems, given.runs))
    print(f"\n{time.perf_counter() - start:.0f} s; the first 2 runs of each cell as by decide()")


if __name__ == "__main__":
    main()
