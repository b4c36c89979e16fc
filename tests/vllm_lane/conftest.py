"""A real vLLM server on a CPU, and the policy that the laptop's V1 recipe trains.

PCLR_VLLM names the ``vllm`` or the ``python`` of an environment that has what
requirements/vllm.txt says.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from vllm_helpers import CONTEXT, SERVED, serving

from pcl_reasoner.sample.server import SupervisedServer
from pcl_reasoner.sample.stage import SampleConfig

ROOT = Path(__file__).resolve().parent.parent.parent
VLLM = os.environ.get("PCLR_VLLM", "")
WHY = "PCLR_VLLM is not set: the path of vllm, or of python, in an environment that has vLLM"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.vllm)
            if not VLLM:
                item.add_marker(pytest.mark.skip(reason=WHY))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The laptop recipe's run up to its samples, which a vLLM server draws."""
    folder = tmp_path_factory.mktemp("vllm")
    launch = yaml.safe_load((ROOT / "launch" / "laptop.yaml").read_text())
    launch["name"] = "laptop_vllm"
    launch["hashed"] |= {"sample": {"engine": "server"}, "evaluate": {"engine": "server"}}
    launch["placement"]["sampling"] = serving()
    (folder / "laptop_vllm.yaml").write_text(yaml.safe_dump(launch))
    command = [str(Path(sys.executable).with_name("pclr-ms")), "run", "recipes/v15_opg.yaml"]
    options = ["--launch", str(folder / "laptop_vllm.yaml"), "--runs", str(folder / "runs")]
    done = subprocess.run(
        [*command, *options, "--until", "sample"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs"


@pytest.fixture(scope="session")
def policy(runs: Path) -> Path:
    """The exported weights."""
    (found,) = (runs / "v1_sft").glob("export-*")
    return found


@pytest.fixture(scope="session")
def inputs(runs: Path, policy: Path) -> dict[str, Path]:
    """What the recipe's stage ``sample`` reads."""
    (problems,) = (runs / "v15_opg").glob("contamination-*")
    return {"problems": problems, "policy": policy}


@pytest.fixture(scope="session")
def url(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the policy for all tests that do not kill it."""
    config = SampleConfig(max_model_len=CONTEXT, served_model=SERVED)
    log = tmp_path_factory.mktemp("server") / "server.log"
    placement: dict[str, Any] = {"sampling": serving()}
    server = SupervisedServer(placement["sampling"], placement, policy, config, log)

    async def ready() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            await server.ready(http)

    try:
        server.start()
        asyncio.run(ready())
        yield f"{server.root}/v1"
    finally:
        server.stop()
