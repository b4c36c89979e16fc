"""Thresholds that were measured for one embedder, in a file that names its weights.

    {"format": 1, "embedder": {"name": "my-model", "dimension": 768, "sha256": "…"},
     "settings": {"threshold": 0.8123, "half_threshold": 0.9374, "cosine_scale": [0.6541, 0.8123],
                  "window_tokens": 128, "all_scripts": false},
     "measured": {…}}

``pclr-ms contamination calibrate`` writes it. A cosine of 0.7 says something else in every model:
one gives 0.7 to most pairs of problems, another one to none but copies. Only the standard library
is imported here, because a recipe is checked before anything heavy is loaded.
"""

import json
from collections.abc import Mapping
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import expanded

FORMAT = 1
SETTINGS = ("threshold", "half_threshold", "cosine_scale", "window_tokens", "all_scripts")
"""The settings of ContaminationConfig that the file has."""
HOW_TO_MAKE = "pclr-ms contamination calibrate QUESTIONS --model MODEL -o FILE"


def to_json(
    embedder: Mapping[str, Any], settings: Mapping[str, Any], measured: Mapping[str, Any]
) -> str:
    """The content of a file of thresholds.

    Args:
        embedder: ``Embedder.facts()``.
        settings: Value of each name in SETTINGS.
        measured: The counts from which the settings were derived.
    """
    value = {
        "format": FORMAT,
        "embedder": dict(embedder),
        "settings": {name: settings[name] for name in SETTINGS},
        "measured": dict(measured),
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _read(file: str) -> Any:
    """The content of a file of thresholds.

    Raises:
        ValueError: There is no such file, or it is not a file of thresholds.
    """
    path = expanded(file)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        complete = value["format"] == FORMAT and set(value["settings"]) == set(SETTINGS)
        if not (complete and isinstance(value["embedder"]["sha256"], str)):
            raise ValueError(f"expected format {FORMAT} with {', '.join(SETTINGS)}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path}: not a file of thresholds ({type(error).__name__}: {error}). Make one with: "
            f"{HOW_TO_MAKE}"
        ) from error
    return value


def with_thresholds(values: Any) -> Any:
    """Add the settings of the file ``calibration`` to a configuration; given values stay.

    Args:
        values: Key -> value of ContaminationConfig, before they are checked.

    Raises:
        ValueError: The file cannot be read, or the method is not ``windows``.
    """
    file = values.get("calibration") if isinstance(values, Mapping) else None
    if not isinstance(file, str):
        return values
    if values.get("method") == "upstream":
        raise ValueError("calibration is for the method windows: leave one of the two out")
    return {**_read(file)["settings"], **values}


def require_weights(file: str, embedder: Mapping[str, Any]) -> None:
    """Check that thresholds are those of an embedder.

    Args:
        file: The file of thresholds.
        embedder: ``Embedder.facts()`` of the embedder in use.

    Raises:
        StageError: The thresholds were measured for other weights.
    """
    try:
        made_for = _read(file)["embedder"]
    except ValueError as error:
        raise StageError(f"contamination: {error}") from error
    if made_for["sha256"] != embedder["sha256"]:
        raise StageError(
            f"{file}: thresholds of {made_for.get('name')} (weights {made_for['sha256'][:12]}), "
            f"but the check's model is {embedder['name']} (weights {embedder['sha256'][:12]}), "
            f"whose cosines mean something else. Set model to {made_for.get('name')}, or measure "
            f"this model with: {HOW_TO_MAKE}"
        )
