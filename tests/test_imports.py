"""What may import what: rooms in the order of the walk, and nothing heavy before its time."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import tiny_stages

import pcl_reasoner
from pcl_reasoner.stages import STAGES

PACKAGE = Path(pcl_reasoner.__file__).parent
ROOT = PACKAGE.parent

WALK = (
    "core",
    "stages",
    "runner",
    "supervise",
    "serving",
    "hosts",
    "data_engine",
    "version_check",
    "instructions",
    "formats",
    "curate",
    "synthetic",
    "prompt",
    "weights",
    "answers",
    "inference",
    "recheck",
    "local_sampler",
    "sample",
    "sandbox_program",
    "sandbox",
    "verifiers",
    "grade",
    "revise",
    "embedding",
    "signature",
    "second_opinion",
    "contamination",
    "calibration",
    "tidy",
    "pack",
    "losses",
    "train",
    "perplexity",
    "prove",
    "rounds",
    "rl",
    "trainer",
    "cpu_ranks",
    "handlers",
    "worker",
    "evaluate",
    "page_parts",
    "rl_report",
    "report",
    "estimate",
    "budget",
    "scene",
    "preflight",
    "precompile",
    "rehearse",
    "hardware_check",
    "smoke",
    "dry_run",
    "cli",
)
"""A room may import from the rooms before it. ``stages`` is a file: the list of all stages."""

PICTURED = r"^(\w+) .*  stages? (.+)$"
ROOM_LINES, FILE_LINES, FUNCTION_LINES = 2500, 400, 50
"""What outgrows this has more than one purpose."""

HEAVY = {
    "mindspore",
    "mindformers",
    "torch",
    "transformers",
    "datasets",
    "numpy",
    "pyarrow",
    "duckdb",
    "tokenizers",
    "sentence_transformers",
    "matplotlib",
    "httpx",
    "safetensors",
    "math_verify",
    "jinja2",
    "huggingface_hub",
    "ray",
    "openvino",
    "faiss",
    "fastokens",
}

MINDSPORE_ROOMS = ("losses", "trainer", "cpu_ranks", "worker", "handlers", "hardware_check")
MINDSPORE_FILES = {
    PACKAGE / "local_sampler" / "given_tokens.py",
    PACKAGE / "local_sampler" / "model.py",
    PACKAGE / "local_sampler" / "sampler.py",
    PACKAGE / "weights" / "slices.py",
}


@dataclass(frozen=True)
class Module:
    """One file of the package.

    Args:
        name: As it is imported, without ``pcl_reasoner``.
        file: Its path.
        tree: What it says.
        imports: All modules that it imports anywhere, as deep as they are modules.
    """

    name: str
    file: Path
    tree: ast.Module
    imports: tuple[str, ...]

    @property
    def room(self) -> str:
        return self.name.split(".")[0]

    @property
    def ours(self) -> list[str]:
        """Imported modules of this package, without ``pcl_reasoner``."""
        found = [name.partition(".") for name in self.imports]
        return [rest for package, _, rest in found if package == "pcl_reasoner" and rest]


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield deeper if is_module(deeper) else str(node.module)


def read(file: Path, root: Path) -> Module:
    name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return Module(name, file, tree, tuple(imported(tree)))


FILES = [(file, PACKAGE) for file in sorted(PACKAGE.rglob("*.py"))]
FILES += [(file, ROOT) for file in sorted((ROOT / "handlers").glob("*.py"))]
MODULES = {one.name: one for one in (read(*paths) for paths in FILES) if one.name != "__init__"}
each = pytest.mark.parametrize("module", MODULES.values(), ids=list(MODULES))


def test_every_room_has_its_place_in_the_walk() -> None:
    assert {module.room for module in MODULES.values()} == set(WALK)


@each
def test_a_room_imports_only_from_rooms_before_it(module: Module) -> None:
    for name in module.ours:
        room = name.split(".")[0]
        if room != module.room:
            assert WALK.index(room) < WALK.index(module.room), f"imports {name}, which comes later"
            other = name.endswith(".stage") and room != "core"
            assert not other, f"imports another room's stage: {name}"


def test_no_files_import_each_other_in_a_circle_not_even_for_types() -> None:
    graph = {
        name: [one for one in module.ours if one in MODULES] for name, module in MODULES.items()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_picture_of_the_rooms_is_the_walk() -> None:
    page = (ROOT / "docs" / "internals" / "rooms.md").read_text(encoding="utf-8")
    picture = page.split("```text\n")[1].split("```")[0]
    drawn = [line.split()[0].removesuffix(".py") for line in picture.splitlines()]
    assert drawn == list(WALK)
    pictured = re.findall(PICTURED, picture, re.M)
    stages = {room: re.findall(r"\w+", names) for room, names in pictured}
    found: dict[str, list[str]] = {}
    for name, stage in STAGES.items():
        found.setdefault(stage.module.split(".")[1], []).append(name)
    assert {room: sorted(names) for room, names in stages.items()} == {
        room: sorted(names) for room, names in found.items()
    }


def test_the_picture_of_the_processes_names_what_is_there() -> None:
    page = (ROOT / "docs" / "internals" / "rooms.md").read_text(encoding="utf-8")
    picture = page.split("```text\n")[2].split("```")[0]
    programs = re.findall(r"python -m ([\w.]+)", picture)
    keepers = {f"pcl_reasoner.{room}.keeper" for room in ("supervise", "hosts")}
    assert set(programs) == {"pcl_reasoner.worker", *keepers}
    assert all(is_module(name) for name in programs)
    moved = re.findall(r"^\| `\S+` \| `(\S+)` \|", page, re.M)
    assert len(moved) > 100 and [name for name in moved if not (PACKAGE / name).is_file()] == []


@pytest.mark.parametrize("room", WALK)
def test_a_room_has_one_purpose(room: str) -> None:
    files = [module.file for module in MODULES.values() if module.room == room]
    assert sum(len(file.read_text().splitlines()) for file in files) <= ROOM_LINES


@each
def test_files_and_functions_stay_short(module: Module) -> None:
    assert len(module.file.read_text().splitlines()) <= FILE_LINES
    functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef)]
    lengths = {one.name: (one.end_lineno or 0) - one.lineno + 1 for one in functions}
    assert {name: count for name, count in lengths.items() if count > FUNCTION_LINES} == {}


@each
def test_only_what_runs_in_mindspores_processes_imports_mindspore(module: Module) -> None:
    if module.room not in MINDSPORE_ROOMS and module.file not in MINDSPORE_FILES:
        heavy = {name.split(".")[0] for name in module.imports} & {"mindspore", "mindformers"}
        assert not heavy


@each
def test_only_the_command_line_prints_and_exits(module: Module) -> None:
    if module.room == "cli":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "exit", "quit", "sys.exit", "click.echo"), (
                f"{module.file}:{node.lineno}: {called}"
            )


def loaded_after(code: str, *words: str) -> set[str]:
    """Top-level packages in a fresh process after some code."""
    tail = "\nimport json, sys; sys.__stdout__.write('\\n' + json.dumps(sorted(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code + tail, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/helpers'}", "PATH": "/usr/bin:/bin"},
    )
    return {module.split(".")[0] for module in json.loads(answer.stdout.splitlines()[-1])}


CALL = "import sys; from pcl_reasoner.cli.main import main; assert main(sys.argv[1:]) == 0"
CALL_TINY = (
    "import tiny_stages; from pcl_reasoner import stages; stages.STAGES.update(tiny_stages.TINY); "
    + CALL
)


def test_help_imports_only_click_and_the_standard_library() -> None:
    loaded = loaded_after(CALL, "--help") - set(sys.stdlib_module_names)
    plain = loaded_after("pass") - set(sys.stdlib_module_names)
    assert loaded - plain == {"click", "pcl_reasoner"}


def test_validate_and_a_finished_run_import_nothing_heavy(tmp_path: Path) -> None:
    words = tiny_stages.write(tmp_path)
    runs = ["--runs", str(tmp_path / "runs")]
    loaded_after(CALL_TINY, "run", *words, *runs)
    for command in (["validate", *words], ["run", *words, *runs], ["status", *words, *runs]):
        assert not loaded_after(CALL_TINY, *command) & HEAVY, command


@pytest.mark.parametrize("module", sorted({stage.module for stage in STAGES.values()}))
def test_a_stages_module_is_cheap_to_import(module: str) -> None:
    assert not loaded_after(f"import {module}") & HEAVY
