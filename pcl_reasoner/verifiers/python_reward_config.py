"""Settings of a reward of the user's own."""

from pydantic import Field

from pcl_reasoner.core.stage import FileName, StageConfig


class PythonRewardConfig(StageConfig):
    """A Python function that gives the reward."""

    file: FileName
    """The Python file. Its content is part of the stage's fingerprint."""
    function: str = Field("reward", pattern=r"^[A-Za-z_]\w*$")
    """Name of the function in it."""
    sandboxed: bool = True
    """True: it runs in the sandbox, without packages, files or network. False: it runs in the
    stage's own process and may import what is installed."""
