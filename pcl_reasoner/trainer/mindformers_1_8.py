"""Code that is specific to MindFormers 1.8 and 1.9.

Some operators have no CPU kernel. ``prepare_before_import`` and ``install_cpu_operators`` replace
them (cpu_operators.py); on another device, both functions change nothing. The changes that a
configuration needs for a CPU are in adapt.py.
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

import mindspore as ms
from mindspore import Tensor, ops

from pcl_reasoner.core.errors import InputError

VERSION = metadata.version("mindformers")

_DIVIDING_MODES = (1, 2, "semi_auto_parallel", "auto_parallel")
"""Values of ``parallel_mode`` in which operators are divided among ranks."""


def on_cpu() -> bool:
    """True when this process's device is the CPU."""
    return str(ms.get_context("device_target")) == "CPU"


def prepare_before_import() -> None:
    """Replace MindSpore's barrier by an all-reduce on a CPU; call before importing mindformers.

    MindFormers copies the name ``barrier`` on import, so a later replacement has no effect.
    """
    import mindspore.communication.comm_func as comm_func
    from mindspore.communication import GlobalComm

    original = comm_func.barrier

    def barrier(group: str = GlobalComm.WORLD_COMM_GROUP) -> Any:
        if not on_cpu():
            return original(group)
        return ops.AllReduce(group=group)(Tensor([1.0], ms.float32)).asnumpy()

    comm_func.barrier = barrier


def sort_before_checkpoints(callbacks: Sequence[type]) -> None:
    """Make callbacks finish a step before its checkpoint starts, whatever the order in the YAML.

    MindFormers sorts CheckpointMonitor before callbacks that it does not know. A run that is killed
    after the checkpoint would then resume after a step that has no line in metrics.jsonl.

    Args:
        callbacks: Classes, in the order in which they are to run.
    """
    from mindformers.core.callback.callback import CheckpointMonitor
    from mindformers.trainer.base_trainer import CALLBACK_HAS_SORT

    index = CALLBACK_HAS_SORT.index(CheckpointMonitor)
    CALLBACK_HAS_SORT[index:index] = [one for one in callbacks if one not in CALLBACK_HAS_SORT]


def translate_older(config: dict[str, Any]) -> list[str]:
    """Rename or drop keys that only MindFormers 1.5's loader accepts; PCL-Reasoner V1 used 1.5.

    Args:
        config: A MindFormers configuration, changed in place.

    Returns:
        The changes, as lines to print.
    """
    loader = config.get("train_dataset", {}).get("data_loader", {})
    if loader.get("type") not in ("CommonDataLoader", "HFDataLoader"):
        return []
    changed = []
    if loader.get("load_func") == "load_from_disk" and "path" in loader:
        loader["dataset_path"] = loader.pop("path")
        changed.append("data_loader.path -> data_loader.dataset_path")
    if loader.get("packing") and not loader.get("handler"):
        loader["create_attention_mask"] = True
        changed.append("data_loader.packing -> data_loader.create_attention_mask: True")
    if loader.pop("mock_config", None) is not None:
        changed.append("data_loader.mock_config: left out")
    return changed


def complete_tensorboard(config: dict[str, Any]) -> None:
    """Set ``scale_sense`` to 1 if MindFormers' TensorBoard is on and the YAML has no such key.

    MindFormers' TensorBoard code fails without the key. 1 is the scale that training then uses.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    section = config.get("tensorboard") or {}
    if section.get("tensorboard_dir") and config["runner_wrapper"].get("scale_sense") is None:
        config["runner_wrapper"]["scale_sense"] = 1.0


def offset_per_micro_batch(config: dict[str, Any]) -> None:
    """Make MindFormers offset a compressed mask's segment ends within each micro-batch.

    A micro-batch of several rows is one long row for the attention, so each row's ends are offset
    by the rows before. Where gradients are accumulated without a pipeline, MindFormers counts the
    rows of all micro-batches. The mask is then wrong from the second micro-batch on, without an
    error.

    Args:
        config: A MindFormers configuration.
    """
    steps = config["runner_config"].get("gradient_accumulation_steps") or 1
    parallel = config.get("parallel") or {}
    divided = config.get("use_parallel") and parallel.get("parallel_mode") in _DIVIDING_MODES
    stages = (config.get("parallel_config") or {}).get("pipeline_stage") or 1
    # Otherwise MindFormers resets the number of steps to 1.
    if steps == 1 or stages > 1 or not divided:
        return
    import mindformers.dataset.causal_language_model_dataset as dataset

    offset = dataset.asl_batch_wrapper

    def by_micro_batch(*columns: Any, micro_batch_num: int) -> Any:
        return offset(*columns, micro_batch_num=max(micro_batch_num, steps))

    dataset.asl_batch_wrapper = by_micro_batch


def refuse_wrong_masks(config: dict[str, Any], where: str) -> None:
    """Refuse configurations that MindFormers would train with a wrong mask and without an error.

    First: without flash attention MindFormers' Llama adds a mask to the scores as 0 and 1, so
    forbidden tokens are visible and even get higher scores. Second: without the compressed mask it
    ignores ``actual_seq_len``, so a row's segments see each other.

    Args:
        config: A MindFormers configuration.
        where: Its file, for the error.

    Raises:
        InputError: The configuration is one of these two.
    """
    model = config["model"].get("model_config") or {}
    dataset = config.get("train_dataset") or {}
    keys = ("construct_args_key", "input_columns")
    columns = {name for key in keys for name in dataset.get(key) or []}
    flash = model.get("use_flash_attention")
    if "attention_mask" in columns and not flash:
        raise InputError(
            f"{where}: model.model_config.use_flash_attention is {flash}, and the data contain "
            "attention_mask. MindFormers would add it to the scores as 0 and 1: every token would "
            "see later tokens and other segments, without an error. Set use_flash_attention: True."
        )
    compressed = model.get("use_eod_attn_mask_compression")
    if "actual_seq_len" in (dataset.get("construct_args_key") or []) and not compressed:
        raise InputError(
            f"{where}: model.model_config.use_eod_attn_mask_compression is {compressed}, and the "
            "data contain actual_seq_len. MindFormers would ignore it: a row's segments would see "
            "each other, without an error. Set it to True, or give attention_mask as last column."
        )


def install_cpu_operators() -> None:
    """Replace MindFormers' operators by those for a CPU; call before a model is built."""
    if not on_cpu():
        return
    import mindformers.modules.flash_attention as flash_attention
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    from pcl_reasoner.trainer.cpu_operators import CpuAdamW, CpuFlashAttentionScore

    flash_attention.FlashAttentionScore = CpuFlashAttentionScore
    MindFormerRegister.registry[MindFormerModuleType.OPTIMIZER]["AdamW"] = CpuAdamW
