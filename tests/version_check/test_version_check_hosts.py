"""``doctor --launch``: every engine of every host answers from its own environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.core.schema import Launch
from pcl_reasoner.version_check import probe
from pcl_reasoner.version_check.hosts import check_launch

FITS = {
    "training": {"mindspore": "2.7.2", "mindformers": "1.8.0"},
    "sampling": {"vllm": "0.13.0+empty", "vllm-ascend": "0.13.0", "torch": "2.8.0+cpu"},
}
FITS["sampling"] |= {"torch-npu": "2.8.0.post2"}


def engine(folder: Path, packages: dict[str, str], cann: str | None, nnal: str | None) -> Any:
    """A Python with these packages, and the shell files of a CANN and of an NNAL."""
    place = folder / "bin"
    place.mkdir(parents=True)
    for name, version in packages.items():
        info = folder / "packages" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for name in ("python", "vllm"):
        (place / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        (place / name).chmod(0o755)
    lines = [f"export PYTHONPATH={folder / 'packages'}"]
    if cann:
        info = folder / "cann" / "aarch64-linux" / "ascend_toolkit_install.info"
        info.parent.mkdir(parents=True)
        info.write_text(f"package_name=Ascend-cann-toolkit\nversion={cann}\n")
        lines.append(f"export ASCEND_HOME_PATH={folder / 'cann'}")
    if nnal:
        library = folder / "nnal" / "atb" / nnal / "lib" / "libatb.so"
        library.parent.mkdir(parents=True)
        library.touch()
        lines.append(f"export LD_LIBRARY_PATH={library.parent}:/nowhere")
    (folder / "set_env.sh").write_text("\n".join(lines) + "\n")
    return {"set_env": str(folder / "set_env.sh")}


def launch(folder: Path, device: str = "Ascend", **changes: Any) -> Launch:
    """Two engines on two hosts; ``changes`` replaces what `engine` is given for one of them."""
    given = {"training": (FITS["training"], "8.5.0", None)}
    given |= {"sampling": (FITS["sampling"], "8.5.0", "8.5.0"), **changes}
    training = engine(folder / "t", *given["training"])
    sampling = engine(folder / "s", *given["sampling"])
    training["executable"] = str(folder / "t" / "bin" / "python")
    sampling["executable"] = str(folder / "s" / "bin" / "vllm")
    placement = {"hosts": ["127.0.0.1", "127.0.0.2"], "training": training, "sampling": sampling}
    hashed = {"train": {"device": device}}
    texts = {"name": "x", "title": "x", "profile": "paper", "verified": "No."}
    return Launch.model_validate({**texts, "hashed": hashed, "placement": placement})


def wrong(launched: Launch) -> list[tuple[str, str, str, str]]:
    found = check_launch(launched, "local")
    assert {one.host for one in found} == {"127.0.0.1", "127.0.0.2"}
    bad = [one for one in found if not one.ok and one.host == "127.0.0.2"]
    assert all(one.advice for one in bad)
    return [(one.program, one.name, one.found, one.wanted) for one in bad]


def test_two_engines_that_fit(tmp_path: Path) -> None:
    launched = launch(tmp_path)
    assert wrong(launched) == []
    names = [(one.program, one.name, one.found) for one in check_launch(launched, "local")][:8]
    assert names == [
        ("training", "MindFormers", "1.8.0"),
        ("training", "CANN", "8.5.0"),
        ("training", "Ascend driver", probe.driver_version() or "not found"),
        ("sampling", "vLLM", "0.13.0+empty"),
        ("sampling", "torch", "2.8.0+cpu"),
        ("sampling", "torch-npu", "2.8.0.post2"),
        ("sampling", "CANN", "8.5.0"),
        ("sampling", "NNAL (libatb.so)", "8.5.0"),
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"sampling": (FITS["sampling"], "9.1.0", "8.5.0")},
            [("sampling", "CANN", "9.1.0", "8.5.0")],
        ),
        (
            {"sampling": (FITS["sampling"], "8.5.0", None)},
            [("sampling", "NNAL (libatb.so)", "not found", "8.5.0")],
        ),
        (
            {"sampling": (FITS["sampling"], "8.5.0", "9.1.0")},
            [("sampling", "NNAL (libatb.so)", "9.1.0", "8.5.0")],
        ),
        (
            {"sampling": ({**FITS["sampling"], "torch-npu": "2.7.1"}, "8.5.0", "8.5.0")},
            [("sampling", "torch-npu", "2.7.1", "2.8.0.post2")],
        ),
        (
            {"training": ({"mindspore": "2.9.0", "mindformers": "1.8.0"}, "8.5.0", None)},
            [
                ("training", "MindFormers", "1.8.0", "1.9.0"),
                ("training", "CANN", "8.5.0", "9.0.0"),
            ],
        ),
        (
            {"training": ({}, "8.5.0", None)},
            [("training", "MindSpore", "not found", "2.7.2, 2.9.0, 2.7.1, 2.6.0")],
        ),
    ],
)
def test_each_mismatch_is_named(
    tmp_path: Path, changes: dict[str, Any], expected: list[tuple[str, str, str, str]]
) -> None:
    assert wrong(launch(tmp_path, **changes)) == expected


def test_a_cpu_needs_no_cann(tmp_path: Path) -> None:
    training = ({"mindspore": "2.7.2", "mindformers": "1.8.0"}, None, None)
    launched = launch(tmp_path, "CPU", training=training, sampling=({}, None, None))
    assert wrong(launched) == []


def test_a_python_that_is_not_there_is_an_answer_too(tmp_path: Path) -> None:
    launched = launch(tmp_path)
    (tmp_path / "s" / "bin" / "python").unlink()
    [(program, name, found, _)] = wrong(launched)
    assert (program, name, found) == ("sampling", "answer", "none")


def test_the_command_prints_the_table_and_fails(tmp_path: Path) -> None:
    value = launch(tmp_path, sampling=(FITS["sampling"], "8.5.0", None)).model_dump()
    file = tmp_path / "mine.yaml"
    file.write_text(yaml_text(value))
    words = [sys.executable, "-m", "pcl_reasoner.cli", "doctor", "--launch", str(file)]
    done = subprocess.run([*words, "--start", "local"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not fit: 127.0.0.1 (sampling), 127.0.0.2 (sampling)" in done.stdout


def test_the_probe_runs_alone(tmp_path: Path) -> None:
    source = Path(probe.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", source], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["packages"]["mindspore"] is None
    file = tmp_path / "version.info"
    file.write_text("Version=25.5.0\nascendhal_version=7.35.23\n")
    assert probe.driver_version(str(file)) == "25.5.0"
