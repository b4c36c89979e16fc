"""Converts weights between Hugging Face's and MindFormers' formats, and verifies the result.

parity.json is written into the folder of the converted weights:

    {"tensors": {"lm_head.weight": {"mindformers": "lm_head.weight", "dtype": "BF16",
                                    "shape": [272, 64], "sha256": "9f86d0…"}, …},
     "left_out": {"adam_m": 339, …},
     "logits": {"tokens": [2, 32], "largest": 11.2, "difference": 1.4e-05, …}}

``sha256`` is the hash of the tensor's bytes as read from the source. The written tensor is read
back, and must have the same hash.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.prompt.trained import PROMPT, copy_prompt, write_template
from pcl_reasoner.weights.logits import compare_apart
from pcl_reasoner.weights.model_config import ModelShape, read_shape
from pcl_reasoner.weights.names import first_few, match, mindformers_name, styled
from pcl_reasoner.weights.slices import complete_files, open_checkpoint
from pcl_reasoner.weights.stream import (
    INDEX,
    NAME_MAP,
    StoredTensor,
    Style,
    digest,
    read_files,
    weight_files,
    write_file,
    write_folder,
)

PARITY = "parity.json"
_NOT_COPIED = {"manifest.json", "quarantined.jsonl", PARITY, PROMPT, INDEX, NAME_MAP}
_OTHER_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".index.json")


def write_mindformers(policy: Path, file: Path) -> None:
    """Write a Hugging Face folder's weights to one file, under MindFormers' names."""
    found = read_files(weight_files(policy))
    names = match(found, shape_in(policy), "huggingface", policy).names
    tensors = {mindformers_name(name): found[stored] for name, stored in names.items()}
    write_file(file, tensors, "mindformers")


def write_trained(checkpoint: Path, policy: Path, file: Path) -> None:
    """Write a training run's checkpoint to one file: complete tensors, no optimizer state.

    Args:
        checkpoint: MindFormers' output folder, with one folder per rank.
        policy: The Hugging Face folder from which training started.
        file: The safetensors file to write.

    Raises:
        StageError: The checkpoint does not hold the policy's tensors.
    """
    write_opened(open_checkpoint(checkpoint), checkpoint, policy, file)


def write_opened(found: Mapping[str, StoredTensor], where: Path, policy: Path, file: Path) -> None:
    """Write opened tensors to one file: those of the model alone, by MindFormers' names.

    Args:
        found: The tensors of a training run.
        where: Their folder, for errors.
        policy: The Hugging Face folder from which training started.
        file: The safetensors file to write.

    Raises:
        StageError: The policy's tensors are not among them.
    """
    names = match(found, shape_in(policy), "mindformers", where).names
    write_file(file, {stored: found[stored] for stored in names.values()}, "mindformers")


def shape_in(folder: Path) -> ModelShape:
    """Read the model's shape from the folder's config.json.

    Raises:
        StageError: The file is absent, cannot be read, or does not describe a Qwen2 model.
    """
    shape = read_shape(folder)
    if shape is None:
        raise StageError(
            f"{folder}: no config.json, which gives the tensors' shapes. Name a folder with one."
        )
    return shape


def write_model(
    found: Mapping[str, StoredTensor],
    shape: ModelShape,
    where: Path,
    output: Path,
    to: Style,
    limit: int,
) -> dict[str, Any]:
    """Write a model's weights under the other framework's names, read them back, and compare.

    Args:
        found: The stored tensors, by MindFormers' names if ``to`` is ``huggingface``, and by
            Hugging Face's if ``to`` is ``mindformers``.
        shape: The model's shape.
        where: Folder of ``found``, for error messages.
        output: Folder to write into.
        to: The framework whose names are written.
        limit: Maximum size of a file, bytes.

    Returns:
        The content of parity.json.

    Raises:
        StageError: A tensor is missing, unexpected, of the wrong shape, or different after
            writing.
    """
    style: Style = "mindformers" if to == "huggingface" else "huggingface"
    matched = match(found, shape, style, where)
    tensors = {styled(name, to): found[stored] for name, stored in matched.names.items()}
    hashes = write_folder(output, tensors, limit, to)
    _compare(tensors, hashes, output)
    entries = {
        name: {
            "mindformers": mindformers_name(name),
            "dtype": found[stored].dtype,
            "shape": list(found[stored].shape),
            "sha256": hashes[styled(name, to)],
        }
        for name, stored in matched.names.items()
    }
    return {"tensors": entries, "left_out": matched.left_out}


def _compare(tensors: Mapping[str, StoredTensor], hashes: Mapping[str, str], output: Path) -> None:
    """Raise StageError if a written tensor's type, shape or hash differs from the source's."""
    written = read_files(weight_files(output))
    wrong = sorted(written.keys() ^ tensors.keys())
    for name in sorted(written.keys() & tensors.keys()):
        got, expected = written[name], tensors[name]
        same_form = (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if not same_form or digest(got) != hashes[name]:
            wrong.append(name)
    if wrong:
        raise StageError(
            f"{output}: these tensors differ from the source after writing: {', '.join(wrong)}. "
            "Check the disk, and write them again."
        )


def check_recorded(folder: Path, parity: Mapping[str, Any]) -> None:
    """Compare the new parity.json with the source folder's, if an earlier conversion wrote one.

    Only this comparison detects that two tensors of the same shape were swapped.

    Raises:
        StageError: A tensor has changed; if it has another tensor's values, both are named.
    """
    path = folder / PARITY
    if not path.is_file():
        return
    recorded = json.loads(path.read_text(encoding="utf-8"))["tensors"]
    owners = {entry["sha256"]: name for name, entry in recorded.items()}
    wrong = []
    for name, entry in parity["tensors"].items():
        sha256 = entry["sha256"]
        if name in recorded and recorded[name]["sha256"] != sha256:
            owner = owners.get(sha256)
            wrong.append(f"{name} holds the values of {owner}" if owner else f"{name} has changed")
    if wrong:
        raise StageError(
            f"{path}: the weights are not the recorded ones: {first_few(wrong)}. Use the recorded "
            "files, or delete parity.json if the weights were changed on purpose."
        )


def copy_others(folder: Path, output: Path) -> None:
    """Copy configuration, tokenizer and generation settings: all files of the folder but a few.

    Weights, their indexes, parity.json, prompt.json, manifest.json and quarantined.jsonl are not
    copied.
    """
    for path in sorted(folder.iterdir()):
        skipped = path.name in _NOT_COPIED or path.name.endswith(_OTHER_WEIGHTS)
        if path.is_file() and not skipped:
            shutil.copyfile(path, output / path.name)


def convert(
    source: Path, destination: Path, to: Style, limit: int, like: Path | None, logits: bool
) -> dict[str, Any]:
    """Convert a folder. The destination appears only after it is complete and verified.

    Args:
        source: A Hugging Face folder; or a MindFormers folder, checkpoint or training output.
        destination: A folder that does not exist yet.
        to: The framework whose names the destination has.
        limit: Maximum size of a file, bytes.
        like: Folder with config.json and tokenizer; None: the source.
        logits: True: compare the logits of a probe batch too.

    Returns:
        The content of parity.json.

    Raises:
        InputError: The source or ``like`` does not exist, or the destination exists.
        StageError: The weights are not the model's, or differ after writing, or the logits differ.
    """
    model = like or source
    for folder in (source, model):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder.")
    if destination.exists():
        raise InputError(f"{destination}: already exists. Name a folder that does not exist.")
    shape = shape_in(model)
    partial = destination.with_name(destination.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        found = read_files(weight_files(source)) if to == "mindformers" else open_checkpoint(source)
        parity = write_model(found, shape, source, partial, to, limit)
        check_recorded(source, parity)
        copy_others(model, partial)
        copy_prompt(source, partial)
        write_template(partial)
        if logits:
            parity["logits"] = compare_logits(source, partial, to)
        write_json(partial / PARITY, parity)
        partial.rename(destination)
    except OSError as error:
        raise StageError(f"{partial}: {error.strerror}; nothing was converted.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return parity


def compare_logits(source: Path, output: Path, to: Style) -> dict[str, Any]:
    """Compare a probe batch's logits, computed by transformers and by MindFormers.

    transformers loads the Hugging Face folder, and MindFormers loads the other folder. If that is a
    checkpoint with one folder per rank, one process cannot load it. MindFormers then loads the
    Hugging Face folder, too.
    """
    if to == "mindformers":
        return compare_apart(source, weight_files(output))
    return compare_apart(output, complete_files(source) or weight_files(output))
