"""The rows of versions.yaml.

training   mindspore 2.7.2, mindformers 1.8.0, cann 8.5.0, driver 25.5.0
serving    vllm_ascend 0.13.0, vllm 0.13.0, cann 8.5.0, torch 2.8.0, torch_npu 2.8.0.post2
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from pcl_reasoner.core.yaml_file import read_yaml

FILE = Path(__file__).with_name("versions.yaml")


class TrainingRow(NamedTuple):
    """Versions that fit together in an environment that trains."""

    mindspore: str
    mindformers: str
    cann: str
    driver: str


class ServingRow(NamedTuple):
    """Versions that fit together in an environment that serves; NNAL has CANN's version."""

    vllm_ascend: str
    vllm: str
    cann: str
    torch: str
    torch_npu: str


@cache
def training_rows() -> tuple[TrainingRow, ...]:
    """Return the rows of training; the first is what this package is made for."""
    return tuple(TrainingRow(**_texts(row)) for row in read_yaml(FILE)["training"])


@cache
def serving_rows() -> tuple[ServingRow, ...]:
    """Return the rows of serving, in the order of the releases."""
    return tuple(ServingRow(**_texts(row)) for row in read_yaml(FILE)["serving"])


def _texts(row: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}
