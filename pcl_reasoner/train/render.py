"""Renders a train stage's settings into the YAML of MindFormers' Trainer.

The result has every key of the YAML that was published with PCL-Reasoner V1. The keys under
``train.mindformers`` in a recipe are merged last and unchanged.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.files import shipped
from pcl_reasoner.losses.columns import column_names
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.train.adapt import adapt_to_cpu
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.probe import PROBE, PROBLEMS
from pcl_reasoner.train.shape import shape_of
from pcl_reasoner.train.sizes import dataset_strategy, gradient_scale, mock_rows
from pcl_reasoner.weights.model_config import ModelShape

WORK = "work"
"""MindFormers' output folder while it runs; removed when training is complete."""


def render(config: TrainConfig, shape: ModelShape, paths: Mapping[str, str]) -> dict[str, Any]:
    """Build the MindFormers configuration.

    Args:
        config: The stage's settings.
        shape: The model's shape.
        paths: ``packs``, ``policy``, ``metrics``, ``output_dir``; optional ``start`` (loaded in
            place of the policy), ``resume`` (name of the checkpoint file in ``start`` to resume
            from) and ``row_count`` (packed rows, for mock sizes).
    """
    value = {
        **_run(config, paths),
        **_steps(config),
        "train_dataset": (dataset := _dataset(config, paths)),
        "train_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": dataset},
        "eval_dataset": (held_out := _eval_dataset()),
        "eval_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": held_out},
        **_layout(config),
        "callbacks": _callbacks(config, paths),
        "context": _context(config, paths),
        "model": {"model_config": _model(config, shape), "arch": {"type": "PclQwen2ForCausalLM"}},
        "processor": {
            "return_tensors": "ms",
            "tokenizer": {
                "type": "Qwen2Tokenizer",
                "model_max_length": 131072,
                "vocab_file": f"{paths['policy']}/vocab.json",
                "merges_file": f"{paths['policy']}/merges.txt",
                "unk_token": "<|endoftext|>",
                "eos_token": "<|endoftext|>",
                "pad_token": "<|endoftext|>",
            },
            "type": "Qwen2Processor",
        },
    }
    if config.device == "CPU":
        adapt_to_cpu(value, config.devices)
    return merge(value, config.mindformers)


def _run(config: TrainConfig, paths: Mapping[str, str]) -> dict[str, Any]:
    resume = paths.get("resume", "")
    return {
        "seed": config.seed,
        "output_dir": paths["output_dir"],
        "load_checkpoint": paths.get("start", paths["policy"]),
        "load_ckpt_format": "safetensors",
        "src_strategy_path_or_dir": "",
        # Cuts complete weights into each rank's slices, which MindFormers requires for several
        # ranks. To resume, each rank loads its own slices: MindFormers would first empty the folder
        # of the strategy files that it needs to merge them.
        "auto_trans_ckpt": config.devices > 1 and not resume,
        "only_save_strategy": False,
        # A single process gets the file itself. Several find their files by rank and by this name.
        "resume_training": bool(resume) if config.devices == 1 else resume or False,
        "run_mode": "finetune",
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "pcl_qwen2"},
        "do_eval": False,
        "eval_step_interval": -1,
        "eval_epoch_interval": 50,
    }


def _steps(config: TrainConfig) -> dict[str, Any]:
    accumulates = config.pipeline_stage == 1
    wrapper: dict[str, Any] = {
        "type": "PclTrainOneStepCell",
        "use_clip_grad": config.clip_grad is not None,
        "max_grad_norm": config.clip_grad or 1.0,
    }
    if config.precision == "float16":
        wrapper["scale_sense"] = {
            "type": "DynamicLossScaleUpdateCell",
            "loss_scale_value": config.loss_scale,
            "scale_factor": 2,
            "scale_window": 1000,
        }
    return {
        "runner_config": {
            # The loader joins all epochs in a recorded order, so this is one long epoch.
            "epochs": 1,
            "batch_size": config.micro_batch_size,
            "sink_mode": config.device != "CPU",
            "sink_size": 1,
            # A pipeline has its own number, parallel_config.micro_batch_num.
            "gradient_accumulation_steps": config.micro_batch_num if accumulates else 1,
        },
        "runner_wrapper": wrapper,
        "optimizer": {
            "type": "AdamW",
            "betas": list(config.betas),
            "eps": config.eps,
            "learning_rate": config.learning_rate,
            "weight_decay": config.weight_decay,
            **({"swap": True} if config.swap_optimizer else {}),
        },
        "lr_schedule": {
            "type": "CosineWithWarmUpLR",
            "learning_rate": config.learning_rate,
            "lr_end": config.learning_rate_end,
            "warmup_ratio": config.warmup_ratio,
            "total_steps": -1,
        },
    }


def _dataset(config: TrainConfig, paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "data_loader": {
            "type": "PclPackedDataLoader",
            "path": paths["packs"],
            "load_func": "load_from_disk",
            "shuffle": False,
            "packing": "pack",
            "create_attention_mask": True,
            "create_compressed_eod_mask": config.compressed_mask,
            "use_broadcast_data": False,
            "adaptor_config": {
                "compress_mask": config.compressed_mask,
                "eod_pad_length": config.max_segments,
            },
            "mock_config": {
                "seq_length": config.seq_length,
                "eod_pad_length": config.max_segments,
                "size": mock_rows(config, int(paths.get("row_count", 0))),
            },
            "epochs": config.epochs,
            "seed": config.seed,
            "global_batch_size": config.global_batch_size,
            "max_segments": config.max_segments,
            "max_steps": config.max_steps,
            "balance_rows": config.balance_rows,
            "micro_batches": config.micro_batch_num,
            "gradient_scale": gradient_scale(config),
        },
        "input_columns": column_names(config.compressed_mask),
        "construct_args_key": column_names(config.compressed_mask),
        "num_parallel_workers": 1 if config.device == "CPU" else 8,
        "python_multiprocessing": config.device != "CPU",
        "drop_remainder": True,
        "numa_enable": False,
        "prefetch_size": 1,
    }


def _eval_dataset() -> dict[str, Any]:
    return {
        "data_loader": {"type": "MindDataset", "dataset_dir": "", "shuffle": False},
        "input_columns": ["input_ids", "target_ids", "attention_mask"],
        "num_parallel_workers": 1,
        "python_multiprocessing": False,
        "drop_remainder": False,
        "repeat": 1,
        "numa_enable": False,
        "prefetch_size": 1,
    }


def _layout(config: TrainConfig) -> dict[str, Any]:
    return {
        "parallel_config": {
            "data_parallel": config.data_parallel,
            "model_parallel": config.model_parallel,
            "pipeline_stage": config.pipeline_stage,
            "use_seq_parallel": config.sequence_parallel,
            "optimizer_shard": config.optimizer_shard,
            "micro_batch_num": config.micro_batch_num,
            "vocab_emb_dp": False,
            "gradient_aggregation_group": config.gradient_aggregation_group,
        },
        "micro_batch_interleave_num": 1,
        "use_parallel": config.devices > 1,
        "parallel": {
            "parallel_mode": 1,
            "gradients_mean": False,
            "enable_alltoall": False,
            "full_batch": False,
            "dataset_strategy": dataset_strategy(config),
            "search_mode": "sharding_propagation",
            "enable_parallel_optimizer": config.optimizer_shard,
            "strategy_ckpt_save_file": "./ckpt_strategy.ckpt",
            "parallel_optimizer_config": {
                "gradient_accumulation_shard": False,
                "parallel_optimizer_threshold": 64,
            },
        },
        "recompute_config": {
            "recompute": config.recompute,
            "select_recompute": config.select_recompute,
            "parallel_optimizer_comm_recompute": False,
            "mp_comm_recompute": False,
            "recompute_slice_activation": False,
        },
        "swap_config": {"swap": config.swap},
    }


def _callbacks(config: TrainConfig, paths: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": "MFLossMonitor", "per_print_times": 1 if config.device != "CPU" else 20},
        _metrics(config, paths),
        *_probe(config, paths),
        {
            "type": "CheckpointMonitor",
            "prefix": "policy",
            "save_checkpoint_steps": config.checkpoint_steps,
            "keep_checkpoint_max": config.keep_checkpoints,
            "checkpoint_format": "safetensors",
            "integrated_save": False,
            "async_save": False,
        },
    ]


def _metrics(config: TrainConfig, paths: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "PclMetrics", "path": paths["metrics"]}
    if rules := config.stop_if.model_dump(exclude_defaults=True):
        found["stop_if"] = rules
    if config.pipeline_stage > 1:
        # Only the last pipeline stage has the loss.
        found["rank"] = config.devices - config.devices // config.pipeline_stage
    if config.micro_batch_num > 1:
        # The loss is the sum over all micro-batches.
        found["loss_divisor"] = gradient_scale(config)
    return found


def _probe(config: TrainConfig, paths: Mapping[str, str]) -> list[dict[str, Any]]:
    if config.probe is None:
        return []
    settings = config.probe.model_dump(exclude_defaults=True)
    files = {"path": PROBE, "problems": f"{paths['output_dir']}/{PROBLEMS}"}
    return [{"type": "PclProbe", **files, "policy": paths["policy"], "settings": settings}]


def _context(config: TrainConfig, paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "graph_kernel_flags": "--enable_cluster_ops=MatMul --online_tuning=1",
        "jit_config": {"jit_level": "O0"},
        "memory_optimize_level": "O0",
        "mode": 0,
        "device_target": config.device,
        "max_call_depth": 10000,
        "max_device_memory": config.max_device_memory,
        "save_graphs": False,
        "save_graphs_path": f"{paths['output_dir']}/graph",
        "device_id": 0,
        "ascend_config": {
            "precision_mode": "must_keep_origin_dtype",
            "parallel_speed_up_json_path": _speed_up_file(config.parallel_speed_up_json),
        },
    }


def _speed_up_file(name: str) -> str:
    """Return the absolute path of a file with MindSpore's options, by path or shipped name."""
    given = Path(name)
    known = given if given.is_file() else shipped("launch") / name
    return str(known.absolute()) if name and known.is_file() else name


def _model(config: TrainConfig, shape: ModelShape) -> dict[str, Any]:
    return {
        "type": "PclQwen2Config",
        "loss": config.loss,
        "loss_parameters": config.loss_parameters,
        "max_segments": config.max_segments,
        "entropy": config.entropy,
        "logits_chunk_tokens": config.logits_chunk_tokens,
        "input_sliced_sig": True,
        "use_eod_attn_mask_compression": config.compressed_mask,
        "batch_size": config.micro_batch_size,
        "seq_length": config.seq_length,
        **shape.model_dump(),
        "qkv_has_bias": True,
        "emb_dropout_prob": 0.0,
        "compute_dtype": config.precision,
        "layernorm_compute_type": "float32",
        "softmax_compute_type": "float32",
        "rotary_dtype": "float32",
        "param_init_type": "float32",
        "use_flash_attention": True,
        "use_past": False,
        "fine_grain_interleave": 1,
        "offset": 0,
        "checkpoint_name_or_path": "",
        "repetition_penalty": 1,
        "max_decode_length": 2048,
        "top_k": 0,
        "top_p": 0.8,
        "do_sample": False,
        "compute_in_2d": True,
        "is_dynamic": False,
        "qkv_concat": False,
        "rotary_pct": 1.0,
        "rotary_emb_base": int(shape.theta),
        "kv_channels": shape.hidden_size // shape.num_heads,
        "fused_rms_norm": True,
    }


def merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``changes``, section by section."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def render_for_plan(planned: PlannedStage) -> dict[str, Any]:
    """Render the configuration that a planned train stage would give to MindFormers.

    The number of packed rows is known only once the rows are packed. Until then it is 0.
    """
    config = planned.spec.config
    assert isinstance(config, TrainConfig)
    inputs = {role: source.path for role, source in planned.inputs.items()}
    paths = _paths(inputs, planned.partial, row_count=str(packed_rows(planned) or 0))
    return render(config, shape_of(config, inputs["policy"]), paths)


def write_yaml(config: TrainConfig, inputs: Mapping[str, Path], folder: Path, **paths: str) -> None:
    """Write ``mindformers.yaml``, the configuration of the training process, into a folder.

    Args:
        config: The stage's settings.
        inputs: Folders of the policy and of the packed rows.
        folder: The working directory of the training process.
        paths: Entries of ``render``'s paths to add, or to change from their defaults.
    """
    value = render(config, shape_of(config, inputs["policy"]), _paths(inputs, folder, **paths))
    (folder / "mindformers.yaml").write_text(to_yaml(value), encoding="utf-8")


def _paths(inputs: Mapping[str, Path], folder: Path, **paths: str) -> dict[str, str]:
    """Return paths relative to the folder, so that equal runs write equal YAML files."""
    return {
        "packs": os.path.relpath(inputs["packs"], folder),
        "policy": os.path.relpath(inputs["policy"], folder),
        "metrics": "metrics.jsonl",
        "output_dir": WORK,
        **paths,
    }


def packed_rows(planned: PlannedStage) -> int | None:
    """Return the number of rows of a planned train stage; None until they are packed."""
    accounting = planned.inputs["packs"].path / "accounting.json"
    try:
        return int(json.loads(accounting.read_text(encoding="utf-8"))["rows"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # also if the file is damaged, since the rows are packed again


def to_yaml(value: dict[str, Any]) -> str:
    """Format a configuration as YAML, its keys in the order of MindFormers' own files."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes a repeated mapping out in full each time, without YAML anchors."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(value, Dumper=Plain, sort_keys=False, allow_unicode=True)
