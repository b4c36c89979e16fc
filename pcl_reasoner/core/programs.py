"""The programs of a launch file, vLLM and MindFormers: where they are, and their environments.

placement:
  training: {executable: /opt/mindspore/bin/python, set_env: /opt/cann-8.5.0/set_env.sh}
  sampling: {executable: /opt/vllm/bin/vllm,
             set_env: [/opt/cann-9.1.0/set_env.sh, /opt/nnal-9.1.0/atb/set_env.sh]}
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from pcl_reasoner.core.checks import ProgramPath, Variables


class Section(BaseModel):
    """A part of a file. Unknown keys are refused; values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Container(Section):
    """The container in which a program runs; it is started and removed with the program."""

    image: str = Field(min_length=1)
    """The image, e.g. quay.io/ascend/vllm-ascend:v0.13.0-a3. Every host must have it already."""
    runtime: ProgramPath = "docker"
    """The command that runs it: ``docker``, or another with the same options, e.g. ``podman``."""
    ascend: bool = True
    """True: it gets the program's own Ascend devices, and the driver's files."""
    mounts: list[str] = Field(default_factory=list)
    """Folders and files of the host, ``PATH`` (same path inside) or ``HOST:INSIDE[:ro]``: weights,
    data, the folder of runs, and the folder of this package."""
    options: list[str] = Field(default_factory=list)
    """Further options of ``docker run``, before the image."""

    @field_validator("mounts")
    @classmethod
    def _absolute(cls, mounts: list[str]) -> list[str]:
        for mount in mounts:
            paths = mount.split(":")[:2]
            if not all(PurePosixPath(path).is_absolute() for path in paths):
                raise ValueError(f"write absolute paths, PATH or HOST:INSIDE[:ro], got {mount!r}")
        return mounts


def _as_list(files: Any) -> Any:
    return [files] if isinstance(files, str) else files


class Program(Section):
    """The environment of one program, which other programs of the launch file do not share."""

    set_env: Annotated[list[str] | None, BeforeValidator(_as_list)] = None
    """Shell files that are sourced first, e.g. CANN's set_env.sh and then NNAL's. They replace the
    placement's and the host's; ``[]``: none is sourced; None: the placement's or the host's."""
    environment: Variables = Field(default_factory=dict)
    """Environment variables of the program alone; they override ``env``."""
    container: Container | None = None
    """The container in which it runs; None: directly on the host."""


class Training(Program):
    """MindFormers' processes: training, export and forward passes."""

    executable: ProgramPath | None = None
    """Path of ``python``; ``msrun`` is taken from its folder. None: the Python of ``pclr-ms``.
    ``per_host.<name>.python`` overrides it."""

    @property
    def python(self) -> str | None:
        """The path, with ``~`` replaced by the home folder; None: the Python of ``pclr-ms``."""
        return self.executable and str(Path(self.executable).expanduser())
