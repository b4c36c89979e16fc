"""Runs a shell line in a container that ends with the shell.

docker rm --force pclr-server-8000 >/dev/null 2>&1 || true; trap 'docker stop …' TERM;
docker run --rm --name pclr-server-8000 --device=/dev/davinci0 … IMAGE bash -c 'source …' &
wait $!; wait $!

The keeper sends SIGTERM to the shell, which stops the container. What a killed shell left, the next
start removes: its container has the same name.
"""

import shlex
from collections.abc import Sequence

from pcl_reasoner.core.programs import Container

STOP_SECONDS = 10
"""Seconds between SIGTERM and SIGKILL in the container: fewer than the keeper grants the shell."""
_PASSED = ("PCL_RUN", "VLLM_API_KEY", "PCLR_MASTER", "SLURM_NODEID", "SLURMD_NODENAME")
"""Variables of the shell that the program may need. One that is not set stays so inside."""
_MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_DRIVER = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/tools/hccn_tool",
    "/usr/local/Ascend/driver/lib64/",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)
"""Devices and files that every container needs, with those that it computes on.

Source: vllm-ascend's installation page, "Set up using Docker"."""


def in_container(line: str, container: Container, name: str, devices: Sequence[str]) -> str:
    """Return a shell line that runs another one in a container, and removes the container.

    Args:
        line: The shell line.
        container: The launch file's part.
        name: The container's name, one per host and program.
        devices: Numbers of the Ascend devices, as in /dev/davinci0. No other container can use them
            meanwhile: sharing is off unless ``npu-smi set -t device-share`` turned it on.
    """
    runtime = shlex.quote(container.runtime)
    words = ["run", "--rm", "--pull=never", "--init", "--name", name]
    words += ["--network=host", "--ipc=host"]
    words += [word for variable in _PASSED for word in ("--env", variable)]
    if container.ascend:
        numbered = [f"/dev/davinci{device}" for device in devices]
        words += [f"--device={device}" for device in (*numbered, *_MANAGERS)]
        words += [f"--volume={file}:{file}" for file in _DRIVER]
    words += [f"--volume={_both_paths(mount)}" for mount in container.mounts]
    words += [*container.options, container.image, "bash", "-c", line]
    stop = f"{runtime} stop -t {STOP_SECONDS} {name} >/dev/null"
    return (
        f"{runtime} rm --force {name} >/dev/null 2>&1 || true; trap {shlex.quote(stop)} TERM; "
        # The shell must run meanwhile, to get the signal. The second wait is for the end after it.
        f"{runtime} {shlex.join(words)} & wait $!; wait $!"
    )


def _both_paths(mount: str) -> str:
    return mount if ":" in mount else f"{mount}:{mount}"
