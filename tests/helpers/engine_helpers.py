"""Programs that stand for an engine: their packages, CANN and NNAL are empty files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


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
