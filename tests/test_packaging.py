"""``pip install .`` gives everything that ``pclr-ms`` needs, wherever it is called from."""

from __future__ import annotations

import configparser
import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
INSIDE = {"handlers": "pcl_reasoner/handlers", "recipes": "pcl_reasoner/recipes"}
INSIDE |= {"launch": "pcl_reasoner/launch", "pcl_reasoner": "pcl_reasoner"}


def test_every_file_of_the_tree_is_in_the_wheel(wheel: Path) -> None:
    expected = {
        f"{inside}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, inside in INSIDE.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    # Not only equal: these are what the run of a wheel has failed without.
    assert {
        "pcl_reasoner/recipes/v15_opg.yaml",
        "pcl_reasoner/recipes/profiles/v15_opg_laptop.yaml",
        "pcl_reasoner/recipes/prompts/judge.txt",
        "pcl_reasoner/launch/atlas_910c_16x8.yaml",
        "pcl_reasoner/report/report.html.jinja",
        "pcl_reasoner/report/report.css",
        "pcl_reasoner/contamination/evidence.html.jinja",
        "pcl_reasoner/handlers/packing.py",
    } <= expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls"], "v15_opg"),
        (["validate", "v15_opg"], "ok: 16 stages"),
        (["validate", "recipes/v1_sft.yaml", "--launch", "v1_dp8_tp8_pp2"], "ok: "),
        (["run", "v15_opg", "--until", "difficulty"], "v15_opg/difficulty"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_installed_command_works_from_any_folder(
    installed: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    answer = subprocess.run(
        [str(installed), *words], cwd=tmp_path, capture_output=True, text=True, env={"PATH": "/bin"}
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert said in answer.stdout


PAIRS = ["mindspore_2_7.txt", "mindspore_2_9.txt"]


def pins(name: str) -> dict[str, Requirement]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(item.name): item for item in found}


@pytest.mark.parametrize("extra", [None, "dev", "faiss", "fastokens", "openvino", "ray"])
def test_what_is_pinned_is_what_the_package_asks_for(extra: str | None) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    asked = (
        setup["options.extras_require"][extra] if extra else setup["options"]["install_requires"]
    )
    base = [["torch.txt", "base.txt", pair] for pair in PAIRS]
    for files in {None: base, "dev": [["dev.txt"]]}.get(extra, [["extras.txt"]]):
        pinned = {name: pin for file in files for name, pin in pins(file).items()}
        check_pins(asked, pinned)


def check_pins(asked: str, pinned: dict[str, Requirement]) -> None:
    for line in asked.strip().splitlines():
        wanted = Requirement(line)
        pin = pinned[canonicalize_name(wanted.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert wanted.specifier.contains(exact.version), f"{pin} is not in {wanted}"


def test_every_pin_is_exact_and_stands_once() -> None:
    groups = [pins(name) for name in ("torch.txt", "base.txt", "dev.txt", PAIRS[0])]
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names))
    for group in groups:
        for pin in group.values():
            assert [item.operator for item in pin.specifier] == ["=="]
