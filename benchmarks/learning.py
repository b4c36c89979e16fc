"""Does the laptop's run learn, and is it the reward? Two seeds, a control, and RFT beside OPG.

    python benchmarks/learning.py [--runs DIR] [--seeds 0 1]

For each seed: held-out Avg@8 of the policy before; after OPG; after OPG with rewards exchanged
among the selected responses; after RFT on the same rows for the same number of steps. Stages
that are alike are run once. About three minutes for the first run of a seed, one for each other.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pcl_reasoner.core.stage import Counts
from pcl_reasoner.runner.plan import PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.runner.runner import run

VARIANTS = {
    "OPG": (),
    "OPG, rewards exchanged": ("select.shuffle_rewards=true",),
    "RFT, equal steps": ("train.loss=rft",),
}


class Lines:
    """Prints one line a stage that ran."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Progress is not shown."""

    def started(self, planned: PlannedStage, index: int, total: int) -> None:
        """Nothing to say."""

    def skipped(self, planned: PlannedStage, index: int, total: int) -> None:
        """Nothing to say."""

    def finished(self, planned: PlannedStage, counts: Counts, seconds: float) -> None:
        """Say that a stage ran."""
        print(f"  {planned.title}: {seconds:.1f} s", flush=True)

    def warned(self, message: str) -> None:
        """Repeat a warning."""
        print(f"  warning: {message}", flush=True)

    def noted(self, message: str) -> None:
        """Repeat what the runner says."""
        print(f"  {message}", flush=True)


def score(folder: Path) -> tuple[float, float]:
    """(Avg@n, standard error) in points of an evaluate artifact with one benchmark."""
    (found,) = json.loads((folder / "scores.json").read_text())["benchmarks"].values()
    return 100 * found["avg_at_n"], 100 * found["standard_error"]


def measure(seed: int, runs: Path) -> list[tuple[str, float, float]]:
    """Run all variants of one seed; (what, Avg@n, standard error) of each."""
    rows: list[tuple[str, float, float]] = []
    for name, overrides in VARIANTS.items():
        print(f"seed {seed}: {name}", flush=True)
        recipe = load_recipe("v15_opg.yaml", overrides=overrides, seed=seed)
        plan = make_plan(recipe, runs, until="evaluate_after")
        run(plan, Lines())
        if not rows:
            before = make_plan(load_recipe("v15_opg.yaml", seed=seed), runs, "evaluate_before")
            run(before, Lines())
            rows.append(("before", *score(before.stages[-1].folder)))
        rows.append((name, *score(plan.stages[-1].folder)))
    return rows


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()
    tables = {seed: measure(seed, given.runs) for seed in given.seeds}
    print("\nheld-out Avg@8, points, ± standard error over problems")
    for seed, rows in tables.items():
        start = rows[0][1]
        for name, value, error in rows:
            print(f"seed {seed}  {name:24} {value:5.1f} ± {error:.1f}  {value - start:+5.1f}")


if __name__ == "__main__":
    main()
