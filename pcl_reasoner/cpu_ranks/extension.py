"""Builds cpu_ranks.cc against the installed MindSpore, and says why if that is not possible."""

import hashlib
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

from pcl_reasoner.core.errors import StageError

VERSIONS = ("2.7.2", "2.9.0")
"""Wheels with which the extension was checked."""

_SOURCE = Path(__file__).with_name("cpu_ranks.cc")
_LIBRARIES = ("cpu", "core", "common", "hardware_abstract", "backend_manager")
_FOLDERS = (
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
_WHY = "Ranks on a CPU need a small C++ extension, which is built once."


def problem() -> str | None:
    """Return why ranks cannot run on this machine; None if they can."""
    machine = platform.machine()
    if machine != "x86_64":
        return (
            f"ranks on a CPU need x86-64, this machine is {machine}: they use the internals of "
            "MindSpore's x86-64 wheel. Run them on an x86-64 machine."
        )
    version = metadata.version("mindspore")
    if version not in VERSIONS:
        return (
            f"ranks on a CPU were checked with MindSpore {' and '.join(VERSIONS)} only, whose "
            f"internals they use, got {version}. Install such a pair: "
            "make install PAIR=requirements/mindspore_2_7.txt"
        )
    if shutil.which("g++") is None:
        return f"g++ is missing. {_WHY} Install g++: apt-get install g++"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return f"{headers}/Python.h is missing. {_WHY} Install it: apt-get install python3-dev"
    return None


def build(cache: Path) -> Path:
    """Build the extension once for each source and wheel, in about 10 seconds; return its path.

    Args:
        cache: Folder that keeps it.

    Raises:
        StageError: The extension cannot be built on this machine, or g++ reports an error.
    """
    if found := problem():
        raise StageError(found)
    version = metadata.version("mindspore")
    made_from = _SOURCE.read_bytes() + Path(__file__).read_bytes() + version.encode()
    digest = hashlib.sha256(made_from).hexdigest()[:12]
    library = cache.absolute() / f"cpu_ranks-{version}-{digest}.so"
    if library.exists():
        return library
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        built = Path(folder) / library.name
        done = subprocess.run(_command(Path(folder), built), capture_output=True, text=True)
        if done.returncode:
            raise StageError(
                f"{_SOURCE}: g++ cannot build it against MindSpore {version}. Send us its "
                f"output; the end of it:\n{done.stderr[-4000:]}"
            )
        built.replace(library)
    return library


def _command(folder: Path, built: Path) -> list[str]:
    import mindspore

    # A header of the wheel includes a file that the wheel has under another path.
    shim = folder / "common" / "log_adapter.h"
    shim.parent.mkdir()
    shim.write_text('#include "utils/log_adapter.h"\n')
    root = Path(mindspore.__file__).parent
    folders = [root, *(root / "include" / name for name in _FOLDERS), folder]
    folders.append(Path(sysconfig.get_path("include")))
    return [
        "g++",
        *("-std=c++17", "-O1", "-fPIC", "-shared", "-w"),
        *("-D_GLIBCXX_USE_CXX11_ABI=0", "-DENABLE_FAST_HASH_TABLE=1"),
        *(f"-I{name}" for name in folders),
        str(_SOURCE),
        *("-o", str(built), f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"),
        *(f"-l:libmindspore_{name}.so" for name in _LIBRARIES),
    ]
