"""Reports the versions in a program's environment; runs there, with any Python, as ``python -c``.

python -c "$(cat probe.py)"
-> {"python": "3.11.9", "machine": "aarch64", "packages": {"vllm": "0.13.0", "mindspore": null, …},
    "cann": "8.5.0", "nnal": "8.5.0", "libatb": "/usr/local/Ascend/nnal/…/libatb.so",
    "driver": "25.5.0"}

This module uses only the standard library, and nothing of this package: vLLM's environment has
neither.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("mindspore", "mindformers", "vllm", "vllm-ascend", "torch", "torch-npu")
CANN_ROOTS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
_VERSION = re.compile(r"\d+\.\d+\.\w+")


def cann_version(environment: Mapping[str, str], roots: tuple[str, ...] = CANN_ROOTS) -> str | None:
    """Return CANN's version from its own files; None if it is not installed.

    ``<arch>-linux/ascend_toolkit_install.info`` has a line ``version=8.5.0``; older releases have
    ``version.cfg`` with ``toolkit_running_version=[7.6.0.1.220:8.3.RC1]``.
    """
    named = [environment.get(name, "") for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")]
    for root in (Path(one) for one in (*named, *roots) if one):
        infos = sorted(root.glob("*-linux/ascend_toolkit_install.info"))
        for path in [*infos, root / "version.cfg"]:
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                match = re.search(r"(?:^version=|:)(\d+\.\d+\.\w+)", text, re.MULTILINE)
                if match:
                    return match.group(1)
    return None


def libatb(environment: Mapping[str, str]) -> str | None:
    """Return the path of NNAL's libatb.so that a program would load; None if there is none."""
    folders = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    home = environment.get("ATB_HOME_PATH")
    for folder in [*folders, *([f"{home}/lib"] if home else [])]:
        if folder and (Path(folder) / "libatb.so").is_file():
            return str(Path(folder) / "libatb.so")
    return None


def nnal_version(library: str | None) -> str | None:
    """Return NNAL's version from the folder of its release, …/nnal/atb/8.5.0/…; None: not shown."""
    parts = Path(library).resolve().parts if library else ()
    return next((part for part in parts if _VERSION.fullmatch(part)), None)


def driver_version(file: str = "/usr/local/Ascend/driver/version.info") -> str | None:
    """Return the driver's version from its own file; None if there is none."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^Version=(\S+)", text, re.MULTILINE)
    return match.group(1) if match else None


def package_version(name: str) -> str | None:
    """Return an installed package's version; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def facts() -> dict[str, Any]:
    """Return what this environment has."""
    library = libatb(os.environ)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "cann": cann_version(os.environ),
        "nnal": nnal_version(library),
        "libatb": library,
        "driver": driver_version(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts()) + "\n")
