"""Changes the settings of a MindFormers configuration that do not work on a CPU."""

from collections.abc import Callable
from typing import Any

CPU_MODEL_KEYS: dict[str, Any] = {
    "fused_rms_norm": False,  # RmsNorm has no CPU kernel
    "use_rope_slice": True,  # without it, rotary embedding by matrix product has a shape error
    "disable_lazy_inline": True,
    # Always on. Otherwise MindFormers adds the mask to the scores as 0 and 1: tokens see later
    # tokens, no error is raised, and every gradient is wrong.
    "use_flash_attention": True,
    "compute_dtype": "float32",
    "layernorm_compute_type": "float32",
    "softmax_compute_type": "float32",
    "rotary_dtype": "float32",
    "param_init_type": "float32",
}
_ASCEND_CONTEXT_KEYS = ("ascend_config", "graph_kernel_flags", "jit_config", "max_device_memory")
_SHORTEST_COMPRESSED_MASK = 2048

Put = Callable[[str, Any], None]


OUR_WRAPPERS = ("PclTrainOneStepCell", "PclRoundStepCell")
"""Training steps whose overflow check works on a CPU."""


def adapt_to_cpu(config: dict[str, Any], ranks: int) -> list[str]:
    """Change settings that fail on a CPU: kernels, precisions, tensor and pipeline parallelism.

    Args:
        config: A MindFormers configuration, changed in place.
        ranks: Number of training processes.

    Returns:
        ``key: before -> now`` for each changed setting, to be shown to the user.
    """
    changed: list[str] = []

    def put(dotted: str, value: Any) -> None:
        found = config
        *sections, key = dotted.split(".")
        for name in sections:
            if found.get(name) is None:
                found[name] = {}
            found = found[name]
        if found.get(key) != value:
            changed.append(f"{dotted}: {found.get(key)} -> {value}")
            found[key] = value

    put("context.device_target", "CPU")
    for key in _ASCEND_CONTEXT_KEYS:
        if key in config["context"]:
            changed.append(f"context.{key}: left out")
            config["context"].pop(key)
    for key, value in CPU_MODEL_KEYS.items():
        put(f"model.model_config.{key}", value)
    if config.get("runner_wrapper", {}).get("type") not in OUR_WRAPPERS:
        put("runner_wrapper.type", OUR_WRAPPERS[0])
    put("runner_config.sink_mode", False)
    # MindSpore refuses more workers than cores; one is fast enough for a model on a CPU.
    put("train_dataset.num_parallel_workers", 1)
    put("train_dataset.python_multiprocessing", False)
    _without_model_parallelism(put, ranks)
    _mask(config, put)
    return changed


def _without_model_parallelism(put: Put, ranks: int) -> None:
    """Keep only data parallelism (parallel mode 0): a CPU supports no other parallelism."""
    for key in ("model_parallel", "pipeline_stage", "micro_batch_num"):
        put(f"parallel_config.{key}", 1)
    for key in ("use_seq_parallel", "optimizer_shard"):
        put(f"parallel_config.{key}", False)
    put("use_parallel", ranks > 1)
    put("parallel_config.data_parallel", ranks)
    # Every rank holds all weights, so a checkpoint is not cut into slices.
    put("auto_trans_ckpt", False)
    put("parallel.parallel_mode", 0)
    put("parallel.enable_parallel_optimizer", False)
    put("parallel.gradients_mean", True)
    put("recompute_config.recompute", False)
    put("recompute_config.select_recompute", False)


def _mask(config: dict[str, Any], put: Put) -> None:
    """Use the dense mask for rows under 2 048 tokens: the compressed mask needs longer rows."""
    model = config["model"]["model_config"]
    if not model.get("use_eod_attn_mask_compression"):
        return
    if int(model["seq_length"]) >= _SHORTEST_COMPRESSED_MASK:
        return
    put("model.model_config.use_eod_attn_mask_compression", False)
    put("train_dataset.data_loader.create_compressed_eod_mask", False)
    dataset = config["train_dataset"]
    if dataset["data_loader"].get("adaptor_config"):
        put("train_dataset.data_loader.adaptor_config.compress_mask", False)
    for key in ("input_columns", "construct_args_key"):
        columns = ["attention_mask" if name == "actual_seq_len" else name for name in dataset[key]]
        put(f"train_dataset.{key}", columns)
