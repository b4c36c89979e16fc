"""``doctor --launch``: every engine of every host answers from its own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import engine
from paths import HELPERS

from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.core.schema import Launch
from pcl_reasoner.version_check import probe
from pcl_reasoner.version_check.hosts import check_launch

FITS = {
    "training": {"mindspore": "2.7.2", "mindformers": "1.8.0"},
    "sampling": {"vllm": "0.13.0+empty", "vllm-ascend": "0.13.0", "torch": "2.8.0+cpu"},
}
FITS["sampling"] |= {"torch-npu": "2.8.0.post2"}


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


def test_files_that_are_not_there_are_named_for_each_engine(tmp_path: Path) -> None:
    launched = launch(tmp_path)
    (tmp_path / "s" / "bin" / "python").unlink()
    (tmp_path / "s" / "bin" / "vllm").chmod(0o644)
    (tmp_path / "t" / "set_env.sh").unlink()
    place = tmp_path / "s" / "bin"
    executed = "a file that can be executed"
    assert wrong(launched) == [
        ("training", "set_env", f"{tmp_path}/t/set_env.sh is not there", "a file that can be read"),
        ("sampling", "executable", f"{place}/vllm is not there", executed),
        ("sampling", "python", f"{place}/python is not there", executed),
    ]


def test_every_file_of_a_list_is_looked_for(tmp_path: Path) -> None:
    value = launch(tmp_path).model_dump()
    sampling = value["placement"]["sampling"]
    sampling["set_env"] += [str(tmp_path / "nnal.sh"), str(tmp_path / "atb.sh")]
    (tmp_path / "nnal.sh").touch()
    found = wrong(Launch.model_validate(value))
    assert found == [
        ("sampling", "set_env", f"{tmp_path}/atb.sh is not there", "a file that can be read")
    ]


def contained(folder: Path, monkeypatch: pytest.MonkeyPatch, **container: Any) -> Launch:
    """As `launch`, with vLLM in a container of a program that stands for docker."""
    (folder / "docker").mkdir()
    monkeypatch.setenv("DOCKER_HOME", str(folder / "docker"))
    runtime, stand_in = folder / "bin" / "docker", HELPERS / "stand_in_docker.py"
    runtime.parent.mkdir()
    runtime.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    runtime.chmod(0o755)
    monkeypatch.setenv("PATH", f"{runtime.parent}:{os.environ['PATH']}")
    value = launch(folder).model_dump()
    value["placement"]["sampling"]["container"] = {"image": "vllm:1", "ascend": False, **container}
    return Launch.model_validate(value)


def test_a_container_answers_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = contained(tmp_path, monkeypatch)
    assert wrong(launched) == []
    calls = [json.loads(line) for line in (tmp_path / "docker" / "log").read_text().splitlines()]
    names = [words[words.index("--name") + 1] for words in calls if words[0] == "run"]
    assert sorted(names) == [f"pclr-doctor-127.0.0.{n}-sampling" for n in (1, 2)]
    (tmp_path / "s" / "set_env.sh").unlink()
    [(program, name, _, _)] = wrong(launched)
    assert (program, name) == ("sampling", "set_env")
    advice = [one.advice for one in check_launch(launched, "local") if not one.ok]
    assert advice[0] == "Install it in the image vllm:1, or correct placement.sampling.set_env."


def test_an_image_that_is_not_there_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = contained(tmp_path, monkeypatch)
    monkeypatch.setenv("DOCKER_LACKS", "vllm:1")
    assert wrong(launched) == [
        ("sampling", "image", "vllm:1 is not there", "an image of this host")
    ]
    assert '["run"' not in (tmp_path / "docker" / "log").read_text()


def test_a_runtime_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = contained(tmp_path, monkeypatch, runtime="no-such-docker")
    assert wrong(launched) == [
        ("sampling", "runtime", "no-such-docker is not there", "a command in PATH")
    ]


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
