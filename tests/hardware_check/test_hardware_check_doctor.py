"""Whether the versions that are installed go together."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pcl_reasoner.hardware_check import doctor

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("2.13.0+cpu", ">=2.4", True),
        ("2.3.9", ">=2.4", False),
        ("1.26.4", ">=1.26,<2", True),
        ("2.0.0", ">=1.26,<2", False),
        ("2.7.2", "==2.7.2", True),
        ("2.7.10", "==2.7.1", False),
        ("19", "==19.0.0", True),
    ],
)
def test_bounds(version: str, wanted: str, fits: bool) -> None:
    assert doctor.satisfies(version, wanted) is fits


def test_bounds_are_setup_cfgs() -> None:
    text = (ROOT / "setup.cfg").read_text()
    wanted = dict(re.findall(r"^    ([\w-]+)([=><][^\s]+)$", text, re.M))
    assert {name: wanted[name] for name in doctor.LAPTOP} == doctor.LAPTOP


def test_what_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(mindspore: str, mindformers: str, cann: str | None) -> dict[str, bool]:
        versions = {"mindspore": mindspore, "mindformers": mindformers}
        monkeypatch.setattr(doctor, "installed_version", lambda name: versions.get(name))
        monkeypatch.setattr(doctor, "cann_version", lambda environment: cann)
        monkeypatch.setattr(doctor, "driver_version", lambda: None)
        return {check.name: check.ok for check in doctor.checks()}

    pair = "MindSpore with MindFormers"
    assert found("2.7.2", "1.8.0", "8.5.0")[pair]
    assert found("2.7.2", "1.8.0", "8.5.0")["CANN"]
    assert not found("2.7.2", "1.7.0", None)[pair]
    assert found("2.7.1", "1.7.0", "8.3.RC1")["CANN"]
    assert not found("2.7.1", "1.7.0", "8.5.0")["CANN"]
    assert found("2.6.0", "1.5.0", "8.1.RC1")[pair]
    assert not found("2.5.0", "1.5.0", None)[pair]


def test_cann_from_its_own_files(tmp_path: Path) -> None:
    environment = {"ASCEND_HOME_PATH": str(tmp_path)}
    assert doctor.cann_version(environment) is None
    old = "# version: 1.0\nruntime_running_version=[7.6.0.1.220:8.3.RC1]\n"
    (tmp_path / "version.cfg").write_text(old)
    assert doctor.cann_version(environment) == "8.3.RC1"
    info = tmp_path / "aarch64-linux" / "ascend_toolkit_install.info"
    info.parent.mkdir()
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=aarch64\n")
    assert doctor.cann_version(environment) == "8.5.0"


def test_exit_code_says_whether_the_laptop_path_runs(call, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "LAPTOP", {"mindspore": "==2.7.2", "mindformers": "==1.8.0"})
    monkeypatch.setattr(
        doctor, "installed_version", {"mindspore": "2.7.2", "mindformers": "1.8.0"}.get
    )
    code, out, _ = call("doctor")
    assert code == (0 if sys.version_info[:2] == (3, 11) else 1)
    monkeypatch.setattr(doctor, "installed_version", {"mindspore": "2.7.2"}.get)
    code, out, _ = call("doctor")
    assert code == 1
    assert "pip install 'mindformers==1.8.0'" in out
    assert "the laptop path cannot run: mindformers, MindSpore with MindFormers" in out
