"""Reads a model folder's JSON files and tokenizer.json, and refuses folders that run code."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")
"""Ends of names of weights that are not safetensors; loading most of them can run any program."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} if the file does not exist.

    Raises:
        StageError: The file cannot be read, or it is not a JSON object.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(
            f"{path}: cannot be read as JSON ({error}). Fetch the model again."
        ) from error
    except RecursionError as error:
        raise StageError(
            f"{path}: is nested too deeply to be read as JSON. Fetch the model again."
        ) from error
    if not isinstance(value, dict):
        raise StageError(f"{path}: must be a JSON object, got {type(value).__name__}.")
    return value


def open_tokenizer(file: Path) -> "Tokenizer":
    """Open a tokenizer.json.

    Raises:
        StageError: The file cannot be read as a tokenizer.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    # The library raises a bare Exception for every error, and a panic is not even an Exception.
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise StageError(
            f"{file}: cannot be read as a tokenizer ({error}). Fetch the model again."
        ) from error


def refuse_code(folder: Path) -> None:
    """Refuse a model's folder that asks for code of its own. Only two JSON files are read.

    Raises:
        StageError: config.json or tokenizer_config.json has ``auto_map``.
    """
    for name in ("config.json", "tokenizer_config.json"):
        asked = read_json(folder / name).get("auto_map")
        if asked:
            raise StageError(
                f"{folder / name}: auto_map asks for the model's own code ({_short(asked)}), which "
                "is never run here. Use a model of an architecture that its libraries know. If "
                "they know this one, remove auto_map from the file."
            )


def refuse_pickles(folder: Path) -> None:
    """Refuse weights that are not safetensors, by name: none of the files is opened.

    Raises:
        StageError: The folder has such a file.
    """
    found = sorted(path.name for path in folder.glob("*") if path.suffix.lower() in _PICKLES)
    if found:
        raise StageError(
            f"{folder / found[0]}: is not a safetensors file ({len(found)} such files), and files "
            "of this kind can run any program when they are loaded. They are never loaded here: "
            "fetch or export the model as safetensors."
        )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:120]}…"
