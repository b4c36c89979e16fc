"""What tests of several rooms share: a tiny recipe, the built wheel, and a browser."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
import tiny_stages

from pcl_reasoner import stages
from pcl_reasoner.cli.main import main

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def _logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MindFormers logs as soon as it is imported: not into the folder that the tests run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOG_MF_PATH", str(tmp_path_factory.mktemp("mindformers_log")))
        yield


@pytest.fixture(scope="session")
def ranks_can_run() -> None:
    """In CI a machine that cannot run ranks fails; elsewhere the reason of the skip is given."""
    from pcl_reasoner.cpu_ranks.extension import problem as find_problem
    from pcl_reasoner.precompile.compile_run import possible

    problem = find_problem()
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem and possible():
        problem += (
            " What still runs is the check of the compiled graph for merged AllReduces "
            "(tests/precompile/test_precompile_compile.py)."
        )
    if problem:
        pytest.skip(problem)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built from a copy so that nothing is left in the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pcl_reasoner", "handlers", "recipes", "launch"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(target), str(source)]
    subprocess.run(command, check=True)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pclr-ms`` of an environment that has the wheel; what it depends on is this environment's.

    A path file names this environment's packages; path files among those, as an editable
    install leaves one, are not followed.
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    theirs = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(theirs)))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True)
    return folder / "bin" / "pclr-ms"


class Marks(HTMLParser):
    """Collects what stands in every element that has a data-check mark, and all tag names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self.repeated: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag in ("meta", "link", "img", "br", "input"):
            return
        mark = dict(attrs).get("data-check")
        self.open.append((tag, mark))
        if mark is not None:
            if mark in self.texts:
                self.repeated.append(mark)
            self.texts[mark] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, mark in self.open:
            if mark is not None:
                self.texts[mark] += data


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words that run a recipe of stages which take milliseconds."""
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)
    monkeypatch.setenv("PCLR_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv(tiny_stages.TRACE, str(tmp_path / "trace"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tiny_stages.write(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command line: exit code, and what it says on both ways."""

    def call_(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return call_


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for ssh comes first in PATH; its calls are in the returned file."""
    programs, down = tmp_path / "programs", tmp_path / "down"
    programs.mkdir()
    down.mkdir()
    (programs / "ssh").write_text((ROOT / "tests" / "helpers" / "stand_in_ssh.sh").read_text())
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOWN", str(down))
    return down / "asked"


@pytest.fixture(scope="session")
def browser() -> ModuleType:
    """benchmarks/screenshot.py, which knows how Chromium is run."""
    path = ROOT / "benchmarks" / "screenshot.py"
    specification = importlib.util.spec_from_file_location("screenshot", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    if module.find_chromium() is None:
        pytest.skip("no chromium binary on the PATH: the page cannot be opened")
    return module


@pytest.fixture
def read_page() -> Callable[[str], Marks]:
    """Parses a page's HTML: marks, tags and attributes."""

    def read(html: str) -> Marks:
        marks = Marks()
        marks.feed(html)
        return marks

    return read
