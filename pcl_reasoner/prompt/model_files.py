"""Reads the JSON files of a model's folder: config.json, tokenizer_config.json and others."""

import json
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError


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
    if not isinstance(value, dict):
        raise StageError(f"{path}: must be a JSON object, got {type(value).__name__}.")
    return value
