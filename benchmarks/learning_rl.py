"""Does the laptop's on-policy training learn? Held-out accuracy by kind over seeds, and a control.

    python benchmarks/learning_rl.py [--runs DIR] [--seeds 0 1 2 3 4] [--control]

For each seed the whole recipe am_thinking_v1 up to export_2 runs with another seed of the data, the
base model, training and sampling. Then the models before stage 1, after it and after stage 2 answer
the same held-out problems, which are never trained on, 8 times each (Avg@8). For chat the accuracy
is the mean reward. ``--control`` also runs stage 1 with rewards exchanged at random.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from learning import Lines

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.dialogue import Dialogue
from pcl_reasoner.rounds.config import RlConfig, RoundProbe
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.plateau import accuracy_by_kind, mean_and_error
from pcl_reasoner.rounds.pool import read_held_out
from pcl_reasoner.rounds.probe import probe
from pcl_reasoner.runner.plan import PlannedStage, make_plan
from pcl_reasoner.runner.recipe import Recipe, load_recipe
from pcl_reasoner.runner.runner import run
from pcl_reasoner.sample.local import LocalDrawer

RECIPE = "am_thinking_v1.yaml"
HELD_OUT, RESPONSES, ROWS = 128, 8, 128
"""Held-out problems of all kinds together, responses to each, and responses drawn together."""
STUDENT_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
"""Degrees of freedom -> the 97.5 % point of Student's t, for intervals over few seeds."""

Points = dict[str, float]
"""Kind -> accuracy in points."""


def answered(model: Path, rl: PlannedStage, folder: Path) -> Points:
    """Answer held-out problems of all kinds with a model; return kind -> points.

    Args:
        model: The Hugging Face folder.
        rl: The stage whose held-out problems, prompts and grading are used.
        folder: Where the answers are logged while they arrive.
    """
    config = rl.spec.config.model_copy(
        update={"kinds": None, "probe": RoundProbe(problems=HELD_OUT, n=RESPONSES)}
    )
    assert isinstance(config, RlConfig)
    context = StageContext(
        name="learning", quarantined=folder / "quarantined.jsonl", progress=Lines()
    )
    dialogue = Dialogue(model, config)
    held_out = read_held_out(rl.inputs["held_out"].path, dialogue, config)
    reward_model, prompts = rl.inputs["reward_model"].path, list(held_out.prompts.values())
    drawer = LocalDrawer(dialogue, prompts, ROWS, ROWS // RESPONSES, Lines())
    drawer.load(model)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Graders(
        config.grade, set(held_out.kinds()), reward_model, context, folder / "log"
    ) as graders:
        line = probe(0, folder, config, held_out, drawer, graders)
    return {kind: 100 * one.accuracy for kind, one in accuracy_by_kind(line).items()}


def measure(seed: int, runs: Path, control: bool) -> tuple[dict[str, Points], dict[str, str]]:
    """Run one seed; return when -> kind -> points, and how each stage ended."""
    began = time.monotonic()
    stages = _run(load_recipe(RECIPE, seed=seed), runs, "export_2")
    seconds = time.monotonic() - began
    models = {"before": "export", "after stage 1": "export_1", "after stage 2": "export_2"}
    rl, answers = stages["rl_2"], runs / "answers"
    found = {when: answered(stages[name].folder, rl, answers) for when, name in models.items()}
    ends = {name: end_of(stages[name].folder) for name in ("rl_1", "rl_2")}
    if control:
        recipe = load_recipe(RECIPE, overrides=("rl_1.shuffle_rewards=true",), seed=seed)
        shuffled = _run(recipe, runs, "export_1")
        found["rewards exchanged"] = answered(shuffled["export_1"].folder, rl, answers)
    return found, ends | {"seconds": f"{seconds:.0f} s"}


def _run(recipe: Recipe, runs: Path, until: str) -> dict[str, PlannedStage]:
    plan = make_plan(recipe, runs, until=until)
    run(plan, Lines())
    return {planned.spec.name: planned for planned in plan.stages}


def end_of(folder: Path) -> str:
    """Why and when a stage ended, as text."""
    found = json.loads((folder / "plateau.json").read_text())
    return f"{found['stopped']} after {found['rounds']}"


def gains(
    tables: Mapping[int, Mapping[str, Points]], before: str, after: str, kind: str
) -> list[float]:
    """The gain of a kind in points, for each seed that has it."""
    return [
        one[after][kind] - one[before][kind]
        for one in tables.values()
        if kind in one.get(after, {}) and kind in one.get(before, {})
    ]


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds, as text."""
    mean, error = mean_and_error(values)
    if error is None:
        return f"{mean:+6.1f}"
    factor = STUDENT_95.get(len(values) - 1, 1.96)
    return f"{mean:+6.1f} [{mean - factor * error:+.1f}, {mean + factor * error:+.1f}]"


def show(tables: Mapping[int, Mapping[str, Points]], ends: Mapping[int, Mapping[str, str]]) -> None:
    """Print the table of all seeds, and the gains."""
    kinds = sorted({kind for one in tables.values() for points in one.values() for kind in points})
    print("\nheld-out accuracy in points")
    for seed, one in tables.items():
        for when, points in one.items():
            cells = "  ".join(f"{kind} {points.get(kind, math.nan):5.1f}" for kind in kinds)
            print(f"seed {seed}  {when:18} {cells}")
        print(f"seed {seed}  {', '.join(ends[seed].values())}")
    pairs = [
        ("before", "after stage 1"),
        ("after stage 1", "after stage 2"),
        ("before", "rewards exchanged"),
    ]
    print("\ngain, mean over seeds with 95 % interval")
    for before, after in pairs:
        for kind in kinds:
            if values := gains(tables, before, after, kind):
                singles = " ".join(f"{value:+.1f}" for value in values)
                print(f"{before} -> {after:18} {kind:12} {interval(values)}   {singles}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/learning_rl"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--control", action="store_true")
    given = parser.parse_args()
    tables, ends = {}, {}
    for seed in given.seeds:
        print(f"seed {seed}", flush=True)
        tables[seed], ends[seed] = measure(seed, given.runs, given.control)
        show(tables, ends)


if __name__ == "__main__":
    main()
