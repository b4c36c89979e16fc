"""The program that a worker runs: MindFormers' Trainer on a MindFormers YAML.

    python -m pcl_reasoner.train finetune.yaml [runner_config.epochs=1 …]
    msrun --worker_num=2 --local_worker_num=2 python -m pcl_reasoner.train finetune.yaml

Any MindFormers YAML will do, V1's published one included; what a CPU cannot run is changed and
printed when the device is a CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import yaml

from pcl_reasoner.train import worker


def read_config(path: str, overrides: list[str], device: str | None) -> tuple[Any, list[str]]:
    """Read a MindFormers YAML, apply overrides, and adapt it to this version and to a CPU.

    Returns:
        The MindFormerConfig, and what was changed in it.
    """
    from mindformers.tools.register import MindFormerConfig

    from pcl_reasoner.train import mindformers_1_8 as version
    from pcl_reasoner.train.adapt import adapt_to_cpu

    config = MindFormerConfig(path)
    for override in overrides:
        dotted, _, text = override.partition("=")
        section = config
        *parents, last = dotted.split(".")
        for parent in parents:
            section = section[parent]
        section[last] = yaml.safe_load(text)
    target = device or config["context"]["device_target"]
    changed = [f"for MindFormers {version.VERSION}: {it}" for it in version.translate_older(config)]
    if target == "CPU":
        ranks = int(os.environ.get("MS_WORKER_NUM", "1"))  # set by msrun
        changed += [f"for the CPU: {it}" for it in adapt_to_cpu(config, ranks)]
    return config, changed


def train(config: Any) -> None:
    """Build the context and let MindFormers' Trainer train."""
    from mindformers.core.context import build_context
    from mindformers.trainer import Trainer
    from mindformers.utils.file_utils import set_output_path

    from pcl_reasoner.train import mindformers_1_8 as version

    set_output_path(config.output_dir)
    build_context(config)
    version.install_cpu_operators()
    Trainer(config).train()


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.train")
    parser.add_argument("config", help="a MindFormers YAML")
    parser.add_argument("overrides", nargs="*", help="key.key=value")
    parser.add_argument("--device", help="CPU or Ascend; the YAML's own when left out")
    given = parser.parse_intermixed_args(arguments)
    if worker.DIE_WITH_PARENT in os.environ:
        worker.die_with_parent()

    from pcl_reasoner.train import mindformers_1_8 as version

    version.prepare_before_import()
    import mindformers  # noqa: F401  (first, so that the next import registers)

    import pcl_reasoner.handlers  # noqa: F401

    config, changed = read_config(given.config, given.overrides, given.device)
    for change in changed:
        sys.stdout.write(f"changed {change}\n")
    train(config)
