"""The program in a sandbox as one text."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox_program.source import PARTS, source_of


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("first", [(), ("enter",)])
def test_the_files_fit_together(kind: str, first: tuple[str, ...]) -> None:
    tree = ast.parse(source_of(kind, first), feature_version=(3, 9))
    defined = Counter(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    )
    assert [name for name, times in defined.items() if times > 1] == []
    imported = [
        alias.name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    imported += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    known = sys.stdlib_module_names | {"annotations"}
    assert [name for name in imported if name not in known] == []


def test_a_variable_of_one_file_is_not_another_files() -> None:
    tree = ast.parse(source_of("tester", ("enter",)))
    targets = Counter(
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    )
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    targets.update(set(defined))
    assert {name for name, times in targets.items() if times > 1} == {"TYPE_CHECKING"}


TALK: tuple[dict[str, object], ...] = (
    {"language": "python", "code": "print(6)", "limits": {**asdict(Limits()), "processes": 9999}},
    {"start": "program", "stdin": "", "seconds": 5.0},
)


def run_in(folder: Path) -> tuple[list[bytes], bytes, int]:
    """Run one test by the program in a folder without namespaces: lines, errors, exit code."""
    (folder / "file").write_text("")
    (folder / "folder").mkdir()
    (folder / "folder" / "file").write_text("")
    command = [sys.executable, "-I", "-S", "-c", source_of("program")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in TALK))
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(3)]
        _, errors = process.communicate()
    return lines, errors, process.returncode


def test_it_runs_without_this_package_and_empties_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pclr-ms-sandbox-x"
    folder.mkdir()
    lines, errors, code = run_in(folder)
    assert (code, errors) == (0, b"")
    started, ready, end = map(json.loads, lines)
    assert (started, ready) == ({"started": True}, {"ready": True})
    assert (end["end"]["stdout"], end["end"]["clean"]) == ("6\n", True)
    assert [*folder.iterdir()] == []


def test_it_removes_nothing_where_no_sandbox_is(tmp_path: Path) -> None:
    lines, errors, code = run_in(tmp_path)
    assert (lines[2], code) == (b"", 1)
    assert b"this is no sandbox's folder, so nothing is removed" in errors
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert names == {"file", "folder", "folder/file"}
