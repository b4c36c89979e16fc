"""Builds cpu_ranks.cc against the installed MindSpore, and says why where that cannot be."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

from pcl_reasoner.precompile import mindspore_2_7

SOURCE = Path(__file__).parent / "cpu_ranks.cc"
KEPT = Path(__file__).parents[2] / "build"
LIBRARIES = ("cpu", "core", "common", "hardware_abstract", "backend_manager")
FOLDERS = (
    "",
    "mindspore",
    "mindspore/core",
    "mindspore/core/include",
    "mindspore/core/mindrt",
    "mindspore/core/mindrt/include",
    "mindspore/core/mindrt/src",
    "mindspore/ccsrc",
    "mindspore/ccsrc/include",
    "mindspore/ops",
    "mindspore/ops/include",
    "mindspore/ops/kernel/include",
    "third_party",
    "third_party/include",
    "third_party/robin_hood_hashing",
    "third_party/pybind11",
    "third_party/nlohmann",
)


def problem() -> str | None:
    """Why ranks cannot run on this machine; None where they can."""
    if found := mindspore_2_7.machine_problem():
        return found
    needs = "Ranks on a CPU need a small C++ extension"
    if shutil.which("g++") is None:
        return f"g++ is missing. {needs}. Install it: apt-get install g++"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return f"{headers} has no Python.h. {needs}. Install it: apt-get install python3-dev"
    return None


def build() -> Path:
    """Build the extension, once per source and wheel, in about 10 seconds; return its file.

    Raises:
        RuntimeError: g++ refused it.
    """
    version = metadata.version("mindspore")
    made_from = SOURCE.read_bytes() + Path(__file__).read_bytes() + version.encode()
    digest = hashlib.sha256(made_from).hexdigest()[:12]
    library = KEPT / f"cpu_ranks-{digest}.so"
    if library.exists():
        return library
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        made = Path(folder) / library.name
        done = subprocess.run(_command(Path(folder), made), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{SOURCE.name} does not build:\n{done.stderr[-4000:]}")
        made.replace(library)
    return library


def _command(folder: Path, made: Path) -> list[str]:
    import mindspore

    # One of the wheel's headers names a file that the wheel has under another path.
    shim = folder / "common" / "log_adapter.h"
    shim.parent.mkdir()
    shim.write_text('#include "utils/log_adapter.h"\n')
    root = Path(mindspore.__file__).parent
    folders = [root, *(root / "include" / name for name in FOLDERS), folder]
    folders.append(Path(sysconfig.get_path("include")))
    return [
        "g++",
        *("-std=c++17", "-O1", "-fPIC", "-shared", "-w"),
        *("-D_GLIBCXX_USE_CXX11_ABI=0", "-DENABLE_FAST_HASH_TABLE=1"),
        *(f"-I{name}" for name in folders),
        str(SOURCE),
        *("-o", str(made), f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"),
        *(f"-l:libmindspore_{name}.so" for name in LIBRARIES),
    ]
