"""Runs the handlers of a MindFormers YAML before training, and saves the rows as Arrow files.

    python -m pcl_reasoner.worker.preprocess --config finetune.yaml --save_path packs/

It replaces ``datasets_preprocess``, a script of MindFormers' repository that its wheel lacks.
The rows are the same as those that MindFormers makes from this YAML when training starts.
"""

import argparse
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError, PclError


def preprocess(config: Any, save_path: Path) -> Any:
    """Load a YAML's data, run its handlers, and save the result.

    Args:
        config: The ``data_loader`` section of a MindFormers configuration.
        save_path: The folder to create; it appears once it is complete.

    Returns:
        The datasets.Dataset that was saved.

    Raises:
        InputError: The section has no handler.
    """
    from mindformers.dataset.dataloader.hf_dataloader import HFDataLoader, process_legacy_args
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    if not config.get("handler"):
        raise InputError(
            "the YAML's train_dataset.data_loader has no handler, so there is nothing to run. "
            "Name some there, e.g. handler: [{type: InstructionHandler, …}]."
        )
    named = MindFormerRegister.get_cls(MindFormerModuleType.DATASET_LOADER, config["type"])
    # CommonDataLoader is another name for HFDataLoader, but lacks these methods.
    loader = named if hasattr(named, "process_dataset") else HFDataLoader
    arguments = {key: config[key] for key in config if key not in ("type", "auto_register")}
    built = loader._build_config(**process_legacy_args(**arguments))
    dataset, _ = loader.process_dataset(built, loader.load_dataset(built))
    partial = save_path.with_name(f"{save_path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    dataset.save_to_disk(str(partial))
    partial.rename(save_path)
    return dataset


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, preprocess, and print what to put into the YAML."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.worker.preprocess")
    parser.add_argument("--config", required=True, help="a MindFormers YAML with handlers")
    parser.add_argument("--save_path", required=True, type=Path, help="the Arrow folder to make")
    parser.add_argument("overrides", nargs="*", help="key.key=value")
    parsed = parser.parse_intermixed_args(arguments)
    save_path = parsed.save_path
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    from pcl_reasoner.worker.entry import import_mindformers, read_yaml

    try:
        if save_path.exists():
            raise InputError(f"{save_path}: already exists. Remove it, or give another path.")
        import_mindformers()
        config = read_yaml(parsed.config, parsed.overrides)
        dataset = preprocess(config["train_dataset"]["data_loader"], save_path)
    except PclError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
    sys.stdout.write(
        f"{save_path}: {len(dataset)} rows. To train on them, data_loader has load_func: "
        f"load_from_disk, path: {save_path}, and no handler, data_files and split.\n"
    )


if __name__ == "__main__":
    main()
