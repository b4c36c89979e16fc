"""All stages. To add one, write a module with a config and a function, and add an entry here.

``inputs`` gives the stage or source that each role of a stage reads by default; None means that the
recipe must name one. ``resumable`` stages continue in the partial folder that a killed run left;
the others start again. ``version`` is raised when a stage's output changes for the same
configuration, so that old artifacts are not mistaken for new ones.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext

RunFunction = Callable[[StageConfig, Mapping[str, Path], Path, StageContext], Counts]

ALL_STAGES = "*"
"""The role of a stage that reads all other stages (the report)."""


@dataclass(frozen=True)
class Stage:
    """Where a stage's code is. The module is imported only when its config or code is needed.

    Args:
        module: Module that holds ``config`` and ``run``; importing it must be fast.
        config: Name of the StageConfig subclass in it.
        run: Name of the function in it.
        inputs: Role -> name of the default stage or source. A role that ends in ``?`` is optional:
            it has no input unless the recipe names one, and its default is not used.
        version: Raised when the output changes for the same configuration.
        resumable: True if the function continues in the folder that a killed run left.
    """

    module: str
    config: str
    run: str
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    version: int = 1
    resumable: bool = False

    def config_class(self) -> type[StageConfig]:
        """The stage's configuration class."""
        found: type[StageConfig] = getattr(importlib.import_module(self.module), self.config)
        return found

    def function(self) -> RunFunction:
        """The stage's function."""
        found: RunFunction = getattr(importlib.import_module(self.module), self.run)
        return found


_CURATE = "pcl_reasoner.curate.stage"
_GRADE = "pcl_reasoner.grade.stage"
_PACK = "pcl_reasoner.pack.stage"
_TRAIN = "pcl_reasoner.train.stage"

STAGES: dict[str, Stage] = {
    "synthetic": Stage("pcl_reasoner.synthetic.stage", "SyntheticConfig", "synthetic"),
    "convert": Stage(_CURATE, "ConvertConfig", "convert", {"source": None}, version=2),
    "difficulty": Stage(_CURATE, "DifficultyConfig", "difficulty", {"rows": "convert"}, version=2),
    "lengths": Stage(
        _CURATE,
        "LengthsConfig",
        "lengths",
        {"rows": "difficulty", "tokenizer": "policy"},
        version=2,
    ),
    "unique": Stage(_CURATE, "UniqueConfig", "unique", {"rows": "lengths"}),
    "contamination": Stage(
        "pcl_reasoner.contamination.stage",
        "ContaminationConfig",
        "contamination",
        {"problems": "unique", "benchmark": "benchmark"},
        version=2,
    ),
    "sample": Stage(
        "pcl_reasoner.sample.stage",
        "SampleConfig",
        "sample",
        {"problems": "contamination", "policy": "policy"},
        version=2,
        resumable=True,
    ),
    "grade": Stage(
        _GRADE,
        "GradeConfig",
        "grade",
        {"responses": "sample", "problems": "contamination", "judge?": None},
        version=2,
        resumable=True,
    ),
    "select": Stage(
        _GRADE,
        "SelectConfig",
        "select",
        {"responses": "sample", "verdicts": "grade", "problems": "contamination"},
        version=2,
    ),
    "tokenize": Stage(
        _PACK,
        "TokenizeConfig",
        "tokenize",
        {"responses": "select", "problems?": "contamination", "policy": "policy"},
        version=2,
    ),
    "old_log_probs": Stage(
        "pcl_reasoner.train.old_log_probs_stage",
        "OldLogProbsConfig",
        "old_log_probs",
        {"samples": "tokenize", "policy": "policy"},
        resumable=True,
    ),
    "pack": Stage(_PACK, "PackConfig", "pack", {"samples": "tokenize"}, version=2),
    "train": Stage(
        _TRAIN,
        "TrainConfig",
        "train",
        {"packs": "pack", "policy": "policy", "probe?": None},
        version=2,
        resumable=True,
    ),
    "export": Stage(
        _TRAIN, "ExportConfig", "export", {"checkpoint": "train", "policy": "policy"}, version=2
    ),
    "evaluate": Stage(
        "pcl_reasoner.evaluate.stage",
        "EvaluateConfig",
        "evaluate",
        {"model": "export", "benchmark": "benchmark", "contamination?": "contamination"},
        version=3,
        resumable=True,
    ),
    "report": Stage(
        "pcl_reasoner.report.stage", "ReportConfig", "report", {ALL_STAGES: ALL_STAGES}
    ),
}


RENAMED_STAGES = {"embedded": "synthetic", "frozen": "old_log_probs"}
"""Old name of a stage -> its present name."""


def stage_hint(name: str, known: Iterable[str]) -> str:
    """`` It is called NAME now.`` for a stage's old name, else the nearest known name."""
    new_name = RENAMED_STAGES.get(name)
    return f" It is called {new_name} now." if new_name else nearest(name, known)


def inputs_of(inputs: Mapping[str, Path], role: str) -> dict[str, Path]:
    """All inputs of one role: one, or several if the recipe gives a list.

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
