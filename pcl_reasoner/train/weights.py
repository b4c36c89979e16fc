"""Weights between Hugging Face's names for Qwen2 and MindFormers' for LlamaForCausalLM.

    model.layers.0.self_attn.q_proj.weight   <->   model.layers.0.attention.wq.weight
    lm_head.weight                           <->   lm_head.weight

Shapes and layouts are the same, so only names change and a round trip is bit-exact.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.errors import StageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PARTS = (
    ("embed_tokens.weight", "tok_embeddings.embedding_weight"),
    (".self_attn.q_proj.", ".attention.wq."),
    (".self_attn.k_proj.", ".attention.wk."),
    (".self_attn.v_proj.", ".attention.wv."),
    (".self_attn.o_proj.", ".attention.wo."),
    (".mlp.gate_proj.", ".feed_forward.w1."),
    (".mlp.down_proj.", ".feed_forward.w2."),
    (".mlp.up_proj.", ".feed_forward.w3."),
    (".input_layernorm.", ".attention_norm."),
    (".post_attention_layernorm.", ".ffn_norm."),
    ("model.norm.", "model.norm_out."),
)


def mindformers_name(hugging_face: str) -> str:
    """Hugging Face's name of a parameter -> MindFormers'."""
    name = hugging_face
    for theirs, ours in _PARTS:
        name = name.replace(theirs, ours)
    return name


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a Hugging Face folder: those of its index, or all.

    Raises:
        StageError: There are none, or the index names one that is not there.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    absent = [path.name for path in files if not path.is_file()]
    if absent or not files:
        what = f"missing {', '.join(absent)}" if absent else "no safetensors file"
        raise StageError(f"{folder}: {what}; the weights must be safetensors, whole.")
    return files


def header(path: Path) -> dict[str, dict[str, Any]]:
    """The tensors' entries of a safetensors file, after checking that the file is whole.

    Raises:
        StageError: The file is shorter than its header says: it was cut off.
    """
    size = path.stat().st_size
    with path.open("rb") as handle:
        first = handle.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else size
        if 8 + length > size:
            raise StageError(f"{path}: cut off ({size} bytes); not a whole safetensors file.")
        entries: dict[str, dict[str, Any]] = json.loads(handle.read(length))
    entries.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if 8 + length + end != size:
        raise StageError(
            f"{path}: {size} bytes, its header says {8 + length + end}: cut off or damaged."
        )
    return entries


def is_whole(path: Path) -> bool:
    """True when a safetensors file is all there."""
    try:
        header(path)
    except (StageError, OSError, ValueError):
        return False
    return True


def tensors(files: list[Path]) -> Iterator[tuple[str, NDArray[Any]]]:
    """All tensors of the files, one at a time."""
    from safetensors import safe_open

    for path in files:
        with safe_open(path, framework="np") as opened:
            for name in opened.keys():  # noqa: SIM118  (not a mapping)
                yield name, opened.get_tensor(name)


def tensor_hash(tensor: NDArray[Any]) -> str:
    """First 16 hex digits of SHA-256 of a tensor's bytes, with its dtype and shape."""
    import numpy as np

    digest = hashlib.sha256(f"{tensor.dtype}{tensor.shape}".encode())
    digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()[:16]


def write_mindformers(policy: Path, file: Path) -> None:
    """Write a Hugging Face folder's weights under MindFormers' names, all in one file."""
    from safetensors.numpy import save_file

    held = {mindformers_name(name): tensor for name, tensor in tensors(weight_files(policy))}
    save_file(held, file)


def match(
    wanted: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]], where: Path
) -> dict[str, str]:
    """Find each Hugging Face tensor in a MindFormers checkpoint.

    Args:
        wanted: Entries of the policy's files, Hugging Face names.
        found: Entries of the checkpoint, MindFormers names; optimizer states are passed over.
        where: The checkpoint, for errors.

    Returns:
        Hugging Face name -> MindFormers name.

    Raises:
        StageError: A tensor is missing or has another shape; each is named.
    """
    names = {name: mindformers_name(name) for name in wanted}
    wrong = [f"{name} (as {ours}) is missing" for name, ours in names.items() if ours not in found]
    wrong += [
        f"{name} has shape {found[ours]['shape']}, expected {wanted[name]['shape']}"
        for name, ours in names.items()
        if ours in found and found[ours]["shape"] != wanted[name]["shape"]
    ]
    if wrong:
        shown = "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        raise StageError(f"{where}: does not hold the policy's weights: {shown}.")
    return names


def shards(
    names: dict[str, str], entries: dict[str, dict[str, Any]], limit: int
) -> list[list[str]]:
    """Split Hugging Face names into files of at most ``limit`` bytes, in their order."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, ours in names.items():
        begin, end = entries[ours]["data_offsets"]
        if groups[-1] and size + end - begin > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += end - begin
    return groups


def write_hugging_face(
    checkpoint: Path, names: dict[str, str], output: Path, limit: int
) -> dict[str, str]:
    """Write a checkpoint's tensors under Hugging Face's names, one file in memory at a time.

    Args:
        checkpoint: A MindFormers safetensors file.
        names: Hugging Face name -> MindFormers name.
        output: The Hugging Face folder.
        limit: Largest file, bytes.

    Returns:
        Hugging Face name -> hash of the tensor as written.
    """
    from safetensors import safe_open
    from safetensors.numpy import save_file

    groups = shards(names, header(checkpoint), limit)
    hashes: dict[str, str] = {}
    weight_map: dict[str, str] = {}
    with safe_open(checkpoint, framework="np") as opened:
        for index, group in enumerate(groups):
            file = (
                "model.safetensors"
                if len(groups) == 1
                else f"model-{index + 1:05d}-of-{len(groups):05d}.safetensors"
            )
            held = {name: opened.get_tensor(names[name]) for name in group}
            save_file(held, output / file, metadata={"format": "pt"})
            hashes |= {name: tensor_hash(tensor) for name, tensor in held.items()}
            weight_map |= dict.fromkeys(group, file)
    if len(groups) > 1:
        index_file = {"metadata": {}, "weight_map": dict(sorted(weight_map.items()))}
        text = json.dumps(index_file, indent=1, sort_keys=True)
        (output / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8")
    return hashes
