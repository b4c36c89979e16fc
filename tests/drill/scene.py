"""What the drill disturbs: small recipes with every stage, and one undisturbed run of them.

build/drill/scene-1a2b/recipes/      V1 and V1.5: curation to a report
                                     AM-Thinking-v1: programs, a teacher, rounds
build/drill/scene-1a2b/runs/         their runs, undisturbed
build/drill/scene-1a2b/whole.json    what they made, and how long each stage took
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from artifact_helpers import verify
from drill_model import Model
from end_to_end_helpers import ROOT, SMALL, command, environment, folder_of, manifests

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.copying import copy

BUILD = ROOT / "build" / "drill"
SHIM_SOURCE = Path(__file__).with_name("shim.c")
RECIPES = ("v1_sft", "v15_opg", "am_thinking_v1")
QUICK_SECONDS = 1.0
SERVED = "served"
"""The recipe whose stages ask a server, see served.py."""
CODE = ("pcl_reasoner", "handlers", "recipes", "launch")

_AM_SIZES = {
    "math_problems": 24,
    "code_problems": 16,
    "instruction_problems": 6,
    "chat_problems": 6,
    "benchmark_problems": 6,
    "planted": 2,
    "hidden_size": 32,
    "layers": 1,
}
_ROUNDS = {
    "queries": 4,
    "n": 2,
    "max_rounds": 2,
    "max_new_tokens": 16,
    "probe": {"every": 1, "problems": 4, "n": 1},
    "plateau": None,
    "checkpoint_rounds": 1,
    "rows": 2,
    "micro_batch_size": 2,
    "max_mismatch": 1.0,
    "model": None,
    "grade": {},
}
_AM_SMALL: dict[str, dict[str, Any]] = {
    "synthetic": _AM_SIZES,
    "convert_math": {"max_malformed": 0.2},
    "convert_code": {"max_malformed": 0.2},
    "mix": {"take": {"chat": 5}},
    "train": {"model": None, "max_steps": 4, "checkpoint_steps": 2, "probe": None, "inputs": {}},
    "queries": {"take": {"math": 8, "code": 8, "instruction": 4, "chat": 4}},
    "rl_1": _ROUNDS,
}
_AM_ADDED: dict[str, dict[str, Any]] = {
    "grade_truth": {
        "stage": "grade",
        "inputs": {"responses": "sample_truth", "problems": "check_tests"},
    },
    "pass_rate": {"inputs": {"problems": "check_tests", "verdicts": "grade_truth"}},
}
_SERVED: dict[str, Any] = {
    "name": SERVED,
    "title": "Responses and verdicts of a server",
    "profiles": {"laptop": f"profiles/{SERVED}_laptop.yaml"},
    "sources": {
        "problems": {"recipe": "v15_opg.yaml", "stage": "contamination"},
        "policy": {"recipe": "v1_sft.yaml", "stage": "export"},
    },
    "stages": {
        "sample": {
            "n": 2,
            "max_new_tokens": 60,
            "max_model_len": 2048,
            "concurrency": 4,
            "request_timeout": 4.0,
            "retries": 4,
            "max_failed": 0.0,
            "inputs": {"problems": "problems", "policy": "policy"},
        },
        "grade": {
            "method": "judge",
            # It finds every response correct.
            "least_agreement": 0,
            "judge_max_new_tokens": 60,
            "judge_max_model_len": 2048,
            "inputs": {"responses": "sample", "problems": "problems"},
        },
        "select": {"drop_groups": "none", "inputs": {"problems": "problems"}},
    },
}
_AM_LEFT_OUT = ("sample_rates", "grade_rates", "mix_2", "rl_2", "export_2", "evaluate_")


@dataclass(frozen=True)
class Scene:
    """The recipes and their undisturbed run.

    Args:
        folder: Holds ``recipes`` and ``runs``.
        seconds: ``recipe/stage`` -> how long the stage took.
        made: ``recipe/stage`` -> what it made, see ``made``.
        reads: ``recipe/stage`` -> the stages that it reads.
        quick: Only stages that take no time are disturbed.
    """

    folder: Path
    seconds: dict[str, float]
    made: dict[str, dict[str, Any]]
    reads: dict[str, list[str]]
    quick: bool = False

    @property
    def runs(self) -> Path:
        """The folder of the undisturbed run."""
        return self.folder / "runs"

    @property
    def plain(self) -> dict[str, float]:
        """Seconds of the stages that need no server; of a quick drill those that take no time."""
        return {
            one: took
            for one, took in self.seconds.items()
            if not one.startswith(SERVED) and (not self.quick or took < QUICK_SECONDS)
        }

    def recipe(self, name: str) -> Path:
        """The recipe of a name."""
        return self.folder / "recipes" / f"{name}.yaml"

    def between(self, first: str, last: str) -> list[str]:
        """What ``--from first --until last`` makes again; empty if last does not need first."""
        recipe, needed = first.split("/")[0], self._needed(last)
        if first not in needed:
            return []
        titles = [one for one in self.seconds if one.split("/")[0] == recipe]
        return [one for one in titles[titles.index(first) :] if one in needed]

    def _needed(self, title: str) -> set[str]:
        """A stage and all that it is made of."""
        read = (self._needed(one) for one in self.reads.get(title, ()))
        return {title}.union(*read)


def code_hash() -> str:
    """A hash of the package: trials of another one are counted apart."""
    digest = hashlib.sha256()
    for name in CODE:
        for file in sorted((ROOT / name).rglob("*")):
            if file.suffix in (".py", ".yaml", ".jinja", ".css") and file.is_file():
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def shim() -> Path:
    """The compiled shim."""
    made = BUILD / "shim.so"
    if not made.exists() or made.stat().st_mtime < SHIM_SOURCE.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", made, SHIM_SOURCE, "-ldl"]
        subprocess.run(words, check=True)
    return made


def scene(quick: bool = False) -> Scene:
    """The recipes and their run; made once for each version of the package."""
    folder = BUILD / f"scene-{code_hash()}"
    if not (folder / "whole.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_recipes(folder / "recipes")
        for name in RECIPES:
            _run(folder, name)
        with Model() as url:
            _run(folder, SERVED, "--launch", str(write_launch(folder, url)))
        (folder / "whole.json").write_text(json.dumps(_description(folder)))
        for old in BUILD.glob("scene-*"):
            if old != folder:
                shutil.rmtree(old)
    kept = json.loads((folder / "whole.json").read_text())
    return Scene(folder, **kept, quick=quick)


def made(runs: Path) -> dict[str, dict[str, Any]]:
    """``recipe/stage`` -> fingerprint, counts and content of every finished artifact.

    The files are compared with the manifests. The report shows when it was made, so its content is
    left out.
    """
    found = {}
    for title, manifest in manifests(runs).items():
        if problems := verify(folder_of(runs, title)):
            raise AssertionError(f"{title}: {', '.join(problems)}")
        kept = {name: manifest[name] for name in ("fingerprint", "counts")}
        content: Any = artifact.content(manifest["files"])
        if title.startswith(SERVED):
            kept["counts"] = {name: kept["counts"][name] for name in ("read", "kept", "dropped")}
            content = _rows(folder_of(runs, title))
        found[title] = {**kept, "content": "" if title.endswith("/report") else content}
    return found


def _rows(folder: Path) -> str:
    """A hash of all rows, without the columns that say when and where an answer was given."""
    rows = [
        {name: value for name, value in row.items() if name not in ("seconds", "server")}
        for file in sorted(folder.rglob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    return artifact.fingerprint(rows)


def _description(folder: Path) -> dict[str, Any]:
    found = manifests(folder / "runs")
    titles = [
        f"{name}/{stage}"
        for name in (*RECIPES, SERVED)
        for stage in read_yaml(folder / "recipes" / f"{name}.yaml")["stages"]
    ]
    in_order = sorted(found, key=lambda one: titles.index(one) if one in titles else -1)
    return {
        "seconds": {title: found[title]["seconds"] for title in in_order},
        "made": made(folder / "runs"),
        "reads": {title: sorted(set(one["origins"].values())) for title, one in found.items()},
    }


def _run(folder: Path, name: str, *more: str) -> None:
    print(f"one undisturbed run of {name} …", flush=True)
    recipe = folder / "recipes" / f"{name}.yaml"
    words = command("run", recipe, "--runs", folder / "runs", *more)
    answer = subprocess.run(words, env=environment(), capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"the undisturbed run fails:\n{answer.stdout}{answer.stderr}")


def write_recipes(folder: Path) -> None:
    """Write the small recipes with their laptop profiles."""
    for name, stages in {**SMALL, "am_thinking_v1": _AM_SMALL}.items():
        copy(name, folder / f"{name}.yaml", force=True)
        _write_profile(folder / "profiles" / f"{name}_laptop.yaml", stages)
    _add_stages(folder / "v15_opg.yaml", {"old_log_probs": {"seq_length": 256}})
    recipe = folder / "am_thinking_v1.yaml"
    value = read_yaml(recipe)
    value |= {"stages": _kept(value["stages"]), "choices": {}, "expect": {}}
    recipe.write_text(yaml.safe_dump(value, sort_keys=False))
    _add_stages(recipe, _AM_ADDED)
    (folder / f"{SERVED}.yaml").write_text(yaml.safe_dump(_SERVED, sort_keys=False))
    (folder / "profiles" / f"{SERVED}_laptop.yaml").write_text("{}")


def write_launch(folder: Path, url: str) -> Path:
    """Write the laptop's launch file with a server of the policy and of the judge."""
    value = read_yaml(files.shipped("launch") / "laptop.yaml")
    value["hashed"]["sample"] = {"engine": "server"}
    value["placement"] |= {"server_urls": [url], "judge_urls": [f"{url}/"]}
    path = folder / "served_launch.yaml"
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    return path


def _add_stages(recipe: Path, stages: dict[str, Any]) -> None:
    """Add stages before the report."""
    value = read_yaml(recipe)
    value["stages"] |= stages
    value["stages"]["report"] = value["stages"].pop("report")
    recipe.write_text(yaml.safe_dump(value, sort_keys=False))


def _kept(stages: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in stages.items() if not name.startswith(_AM_LEFT_OUT)}


def _write_profile(path: Path, changes: dict[str, dict[str, Any]]) -> None:
    value = read_yaml(path)
    for stage, changed in changes.items():
        value["stages"].setdefault(stage, {}).update(changed)
    if "am_thinking" in path.name:
        value["stages"] = _kept(value["stages"])
    path.write_text(yaml.safe_dump(value, sort_keys=False))
