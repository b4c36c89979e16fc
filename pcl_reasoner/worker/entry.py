"""The training program: it runs MindFormers' Trainer on a MindFormers YAML.

    python -m pcl_reasoner.worker --config finetune.yaml [runner_config.epochs=1 …]
    msrun --worker_num=2 --local_worker_num=2 python -m pcl_reasoner.worker finetune.yaml

Any MindFormers YAML can be given, for example the one published with PCL-Reasoner V1. If the device
is a CPU, settings that do not work there are changed. Every change is printed.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from pcl_reasoner.core.errors import InputError, PclError
from pcl_reasoner.cpu_ranks import variables
from pcl_reasoner.cpu_ranks.adapt import adapt_to_cpu_ranks
from pcl_reasoner.supervise.processes import die_with_parent
from pcl_reasoner.train.worker import DIE_WITH_PARENT


def follow_environment() -> None:
    """Follow the environment variables that make this process end with its parent, or be a rank."""
    if DIE_WITH_PARENT in os.environ:
        die_with_parent()
    if variables.requested():
        from pcl_reasoner.cpu_ranks.become import become_rank

        become_rank()


def import_mindformers() -> None:
    """Import MindFormers and register this package's classes with it, in the required order."""
    from pcl_reasoner.trainer import mindformers_1_8 as version

    version.prepare_before_import()
    import mindformers  # noqa: F401  (before the classes that register with it)

    import pcl_reasoner.handlers as handlers

    handlers.register()
    # A YAML with `auto_register: pclr_ms.…` then needs no further setup.
    os.environ.setdefault("REGISTER_PATH", next(iter(handlers.__path__)))


def read_yaml(path: str, overrides: list[str]) -> Any:
    """Read a MindFormers YAML and apply overrides.

    Args:
        path: The file.
        overrides: ``key.key=value`` each, with the value in YAML.

    Returns:
        A MindFormerConfig.

    Raises:
        InputError: There is no such file, or an override has no ``=`` or an unknown section.
    """
    from mindformers.tools.register import MindFormerConfig

    if not Path(path).is_file():
        raise InputError(f"{path}: no such file. Give a MindFormers YAML.")
    config = MindFormerConfig(path)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        section = config
        *parents, last = dotted.split(".")
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if not equals or not isinstance(section, dict):
            raise InputError(
                f"{override}: expected key.key=value, with sections that exist in {path}."
            )
        section[last] = yaml.safe_load(text)
    return config


def read_config(path: str, overrides: list[str], device: str | None) -> tuple[Any, list[str]]:
    """Read a MindFormers YAML, apply overrides, and adapt it to MindFormers and the device.

    Returns:
        The MindFormerConfig, and the changes as lines to print.

    Raises:
        InputError: As for read_yaml, or the configuration would train with a wrong attention mask.
    """
    from pcl_reasoner.train.adapt import adapt_to_cpu
    from pcl_reasoner.trainer import mindformers_1_8 as version
    from pcl_reasoner.trainer.curves import add_curves
    from pcl_reasoner.trainer.rank_times import add_rank_times
    from pcl_reasoner.trainer.seals import add_seals
    from pcl_reasoner.trainer.step_seconds import add_step_seconds
    from pcl_reasoner.trainer.use_rounds import use_rounds

    config = read_yaml(path, overrides)
    target = device or config["context"]["device_target"]
    changed = [
        f"for MindFormers {version.VERSION}: {change}" for change in version.translate_older(config)
    ]
    if target == "CPU":
        ranks = int(os.environ.get("MS_WORKER_NUM", "1"))  # set by msrun
        changed += [f"for the CPU: {change}" for change in adapt_to_cpu(config, ranks)]
    elif variables.requested():
        changed += [f"for ranks on a CPU: {change}" for change in adapt_to_cpu_ranks(config)]
    version.refuse_wrong_masks(config, path)
    version.offset_per_micro_batch(config)
    version.complete_tensorboard(config)
    add_curves(config)
    add_rank_times(config)
    add_seals(config)
    add_step_seconds(config)
    use_rounds(config)
    return config, changed


def train(config: Any) -> None:
    """Set up MindSpore's context and train with MindFormers' Trainer."""
    from mindformers.core.context import build_context
    from mindformers.trainer import Trainer
    from mindformers.utils.file_utils import set_output_path

    from pcl_reasoner.trainer import mindformers_1_8 as version

    set_output_path(config.output_dir)
    build_context(config)
    version.install_cpu_operators()
    Trainer(config).train()


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.worker")
    parser.add_argument("arguments", nargs="*", metavar="argument", help="FILE, then key.key=value")
    parser.add_argument("--config", help="the MindFormers YAML, in place of FILE")
    parser.add_argument("--device", help="CPU or Ascend; the YAML's own when left out")
    parsed = parser.parse_intermixed_args(arguments)
    if not (parsed.config or parsed.arguments):
        parser.error("a MindFormers YAML is needed")
    file = parsed.config or parsed.arguments.pop(0)
    try:
        follow_environment()
        import_mindformers()
        config, changed = read_config(file, parsed.arguments, parsed.device)
        for change in changed:
            sys.stdout.write(f"changed {change}\n")
        train(config)
    except PclError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
