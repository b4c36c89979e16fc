"""Changes the few settings of a cluster's configuration that ranks on a CPU cannot follow.

Everything else stays as on a cluster. docs/cluster/rehearsal.md lists these settings, with reasons.
"""

from collections.abc import Mapping
from typing import Any

_MODEL: dict[str, Any] = {
    # A CPU has few kernels for bfloat16 and float16. Also, a comparison needs float32's precision.
    "compute_dtype": "float32",
    # MindSpore's CPU back end refuses a graph with cells that are inlined late.
    "disable_lazy_inline": True,
}
_DATA: dict[str, Any] = {
    # MindSpore refuses more workers than the machine has cores.
    "num_parallel_workers": 1,
    "python_multiprocessing": False,
}


def adapt_to_cpu_ranks(config: dict[str, Any]) -> list[str]:
    """Change settings that ranks on a CPU cannot follow.

    Args:
        config: A MindFormers configuration for Ascend, changed in place.

    Returns:
        ``key: before -> now`` for each changed setting.
    """
    dataset = config["train_dataset"]
    return [
        *_put(config["model"]["model_config"], "model.model_config", _MODEL),
        *_put(dataset, "train_dataset", _DATA),
        *_put(config["train_dataset_task"]["dataset_config"], "train_dataset_task", _DATA),
    ]


def _put(section: dict[str, Any], name: str, values: Mapping[str, Any]) -> list[str]:
    changed = []
    for key, value in values.items():
        if section.get(key) != value:
            changed.append(f"{name}.{key}: {section.get(key)} -> {value}")
            section[key] = value
    return changed
