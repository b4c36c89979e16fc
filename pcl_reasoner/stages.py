"""The table of all stages. A new stage needs a module with a config and a function, and an entry.

``inputs`` gives the stage or source that each role of a stage reads by default; None means that the
recipe must name one. A killed run leaves a partial folder: a ``resumable`` stage continues in it,
the others start again. ``version`` is raised when a stage's output changes for the same
configuration, so that old artifacts are not mistaken for new ones.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext

RunFunction = Callable[[StageConfig, Mapping[str, Path], Path, StageContext], Counts]

ALL_STAGES = "*"
"""The role of a stage that reads all other stages (the report)."""
SERVED = ("judge", "reward_model")
"""Optional roles that read the source of the same name, if there is one and the stage asks it."""


PROOF_ROLE = "proof"
"""Optional role: a stage `prove` of the model whose servers the stage asks. It changes nothing that
the stage writes, so it is not part of the fingerprint. If the recipe does not name one, it is a
stage `prove` that the recipe lists earlier (`proof_of`), or a finished one of another recipe."""


@dataclass(frozen=True)
class Stage:
    """An entry of the table. The module is imported only when its config or function is needed.

    Args:
        module: Module that holds the function and its configuration; importing it must be fast.
        run: Name of the function in it. The StageConfig subclass is named after it: a function
            ``old_log_probs`` has an ``OldLogProbsConfig``.
        inputs: Role -> name of the default stage or source. A role that ends in ``?`` is optional:
            only the recipe can name an input for it, and the name in this table is ignored.
        version: Number that is raised when the output changes for the same configuration.
        resumable: True if the function continues in the folder that a killed run left.
        lists: Roles for which a recipe may give a list of names; see `inputs_of`.
    """

    module: str
    run: str
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    version: int = 1
    resumable: bool = False
    lists: Collection[str] = ()

    def config_class(self) -> type[StageConfig]:
        """The stage's configuration class."""
        name = f"{self.run.title().replace('_', '')}Config"
        found: type[StageConfig] = getattr(importlib.import_module(self.module), name)
        return found

    def function(self) -> RunFunction:
        """The stage's function."""
        found: RunFunction = getattr(importlib.import_module(self.module), self.run)
        return found


_CURATE = "pcl_reasoner.curate"
_GRADE = "pcl_reasoner.grade.stage"
_PACK = "pcl_reasoner.pack.stage"
_TRAIN = "pcl_reasoner.train.stage"

STAGES: dict[str, Stage] = {
    "synthetic": Stage("pcl_reasoner.synthetic.stage", "synthetic"),
    "random_model": Stage(
        "pcl_reasoner.smoke.random_model", "random_model", {"tokenizer": "tokenizer"}
    ),
    "convert": Stage(f"{_CURATE}.convert", "convert", {"source": None}, version=3),
    "difficulty": Stage(f"{_CURATE}.difficulty", "difficulty", {"rows": "convert"}, version=2),
    "lengths": Stage(
        f"{_CURATE}.lengths", "lengths", {"rows": "difficulty", "tokenizer": "policy"}, version=2
    ),
    "unique": Stage(f"{_CURATE}.unique", "unique", {"rows": "lengths"}, version=2),
    "mix": Stage(f"{_CURATE}.mix", "mix", {"problems": "unique"}, lists={"problems"}),
    "contamination": Stage(
        "pcl_reasoner.contamination.stage",
        "contamination",
        {"problems": "unique", "benchmark": "benchmark", "judge?": None},
        version=3,
        lists={"benchmark"},
    ),
    "check_tests": Stage(
        "pcl_reasoner.revise.check_tests",
        "check_tests",
        {"problems": "contamination"},
        resumable=True,
    ),
    "sample": Stage(
        "pcl_reasoner.sample.stage",
        "sample",
        {"problems": "contamination", "policy": "policy", "recorded?": None, "proof?": None},
        version=2,
        resumable=True,
    ),
    "grade": Stage(
        _GRADE,
        "grade",
        {
            "responses": "sample",
            "problems": "contamination",
            "judge?": None,
            "reward_model?": None,
        },
        version=4,
        resumable=True,
    ),
    "revise": Stage(
        "pcl_reasoner.revise.stage",
        "revise",
        {"problems": "contamination", "responses": "sample", "opinion?": None},
        resumable=True,
    ),
    "pass_rate": Stage(
        "pcl_reasoner.revise.pass_rate",
        "pass_rate",
        {"problems": "contamination", "verdicts": "grade"},
    ),
    "perplexity": Stage(
        "pcl_reasoner.perplexity.stage",
        "perplexity",
        {
            "responses": "sample",
            "problems": "contamination",
            "policy": "policy",
            "proof?": None,
        },
        resumable=True,
    ),
    "tidy": Stage("pcl_reasoner.tidy.stage", "tidy", {"responses": "perplexity"}),
    "select": Stage(
        _GRADE,
        "select",
        {"responses": "sample", "verdicts": "grade", "problems": "contamination"},
        version=2,
    ),
    "tokenize": Stage(
        _PACK,
        "tokenize",
        {"responses": "select", "problems?": "contamination", "policy": "policy"},
        version=3,
    ),
    "old_log_probs": Stage(
        "pcl_reasoner.perplexity.old_log_probs_stage",
        "old_log_probs",
        {"samples": "tokenize", "policy": "policy"},
        resumable=True,
    ),
    "pack": Stage(_PACK, "pack", {"samples": "tokenize"}, version=3),
    "train": Stage(
        _TRAIN,
        "train",
        {"packs": "pack", "policy": "policy", "probe?": None},
        version=3,
        resumable=True,
    ),
    "export": Stage(_TRAIN, "export", {"checkpoint": "train", "policy": "policy"}, version=3),
    "prove": Stage(
        "pcl_reasoner.prove.stage",
        "prove",
        {
            "samples": "tokenize",
            "checkpoint": "train",
            "policy": "policy",
            "model": "export",
            "earlier?": None,
        },
        version=2,
        lists={"earlier"},
    ),
    "rl": Stage(
        "pcl_reasoner.rl.stage",
        "rl",
        {
            "problems": "contamination",
            "policy": "export",
            "held_out?": None,
            "reward_model?": None,
        },
        resumable=True,
    ),
    "solved": Stage(
        "pcl_reasoner.rl.solved", "solved", {"problems": "contamination", "rounds": "rl"}
    ),
    "evaluate": Stage(
        "pcl_reasoner.evaluate.stage",
        "evaluate",
        {
            "model": "export",
            "benchmark": "benchmark",
            "contamination?": "contamination",
            "proof?": None,
        },
        version=3,
        resumable=True,
        lists={"benchmark"},
    ),
    "report": Stage("pcl_reasoner.report.stage", "report", {ALL_STAGES: ALL_STAGES}),
}


RENAMED_STAGES = {"embedded": "synthetic", "frozen": "old_log_probs"}
"""Old name of a stage -> its present name."""


def stage_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown stage name: its present name, or else a similar name."""
    new_name = RENAMED_STAGES.get(name)
    return f" It is called {new_name} now." if new_name else nearest(name, known)


def inputs_of(inputs: Mapping[str, Path], role: str) -> dict[str, Path]:
    """Return all inputs of one role: one input, or several if the recipe gives a list.

    Args:
        inputs: The stage's inputs. The items of a list have keys of the form ``role.name``.
        role: E.g. ``benchmark``.

    Returns:
        Name -> path. A single input has the role's own name.
    """
    if role in inputs:
        return {role: inputs[role]}
    parts = ((key.partition("."), path) for key, path in inputs.items())
    return {name: path for (key, _, name), path in parts if key == role}
