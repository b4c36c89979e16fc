"""What a candidate may use."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Limits of one test, unless another unit is said.

    Args:
        seconds: Seconds, without those for which it waited for a processor.
        compile_seconds: Wall-clock seconds of the compiler.
        compile_megabytes: MiB of memory of every process of the compiler.
        megabytes: MiB of memory, of every process and of all processes together.
        disk_megabytes: MiB of files.
        processes: Processes and threads at a time.
        output_bytes: Bytes that it may write to standard output, standard error and its channel.
    """

    seconds: float = 6.0
    compile_seconds: float = 10.0
    compile_megabytes: int = 2048
    megabytes: int = 512
    disk_megabytes: int = 32
    processes: int = 24
    output_bytes: int = 1 << 20

    def as_json(self) -> dict[str, Any]:
        """The limits as the program in the sandbox reads them."""
        return asdict(self)
