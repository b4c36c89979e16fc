"""A real vLLM server on a CPU, and the policy that the laptop's V1 recipe trains.

PCLR_VLLM names the ``vllm`` or the ``python`` of an environment that has what
requirements/vllm.txt says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from vllm_helpers import SERVED, served, serving, write_judgements

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
    launched = ["--launch", str(folder / "laptop_vllm.yaml")]
    run_recipe("v15_opg", folder / "runs", *launched, "--until", "sample")
    return folder / "runs"


def run_recipe(name: str, runs: Path, *words: str) -> None:
    """Run a shipped recipe by its command."""
    command = [str(Path(sys.executable).with_name("pclr-ms")), "run", f"recipes/{name}.yaml"]
    done = subprocess.run(
        [*command, "--runs", str(runs), *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def drawn(runs: Path) -> Path:
    """The recipe's own samples."""
    (found,) = (runs / "v15_opg").glob("sample-*")
    return found


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another exported model: the V1 recipe trains it to say whether two numbers are the same."""
    folder = tmp_path_factory.mktemp("judge")
    write_judgements(folder / "judgements.jsonl", seed=0)
    source = f"sources.distilled.path={folder / 'judgements.jsonl'}"
    # After one epoch it takes a quarter of the wrong pairs for right ones, on some processors.
    run_recipe("v1_sft", folder / "runs", "--until", "export", source, "train.epochs=2")
    (found,) = (folder / "runs" / "v1_sft").glob("export-*")
    return found


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
    yield from served(policy, SERVED, tmp_path_factory.mktemp("server"))
