"""A file of thresholds in a configuration: what it sets, what wins, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.validation import validated
from pcl_reasoner.embedding.thresholds import require_weights, to_json

EMBEDDER = {"name": "mine", "dimension": 32, "sha256": "ab" * 32}
SETTINGS = {
    "threshold": 0.91,
    "half_threshold": 0.97,
    "cosine_scale": (0.81, 0.91),
    "window_tokens": 48,
    "all_scripts": True,
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.json"
    path.write_text(to_json(EMBEDDER, SETTINGS, {"share": 0.001}))
    return str(path)


def of(**values: Any) -> ContaminationConfig:
    return validated(ContaminationConfig, values, "settings")


def test_the_files_settings_hold_and_given_ones_win(file: str) -> None:
    config = of(calibration=file)
    assert {name: getattr(config, name) for name in SETTINGS} == SETTINGS
    config = of(calibration=file, threshold=0.7, all_scripts=False)
    changed = SETTINGS | {"threshold": 0.7, "all_scripts": False}
    assert {name: getattr(config, name) for name in SETTINGS} == changed


def test_without_a_file_nothing_changes() -> None:
    config = of()
    assert (config.threshold, config.window_tokens, config.all_scripts) == (0.7, 256, False)


def test_the_file_is_part_of_the_fingerprint(file: str) -> None:
    config = of(calibration=file)
    assert config.named_files() == {"calibration": Path(file)}
    assert config.hashed()["threshold"] == 0.91
    # What is dumped can be read back, and says the same.
    assert of(**config.model_dump()) == config


def test_upstreams_method_has_its_own_threshold(file: str) -> None:
    with pytest.raises(InputError, match="calibration is for the method windows"):
        of(calibration=file, method="upstream")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"format": 1}',
        b"\xff",
        json.dumps({"format": 2, "settings": SETTINGS, "embedder": EMBEDDER}).encode(),
        json.dumps({"format": 1, "settings": {}, "embedder": EMBEDDER}).encode(),
        json.dumps({"format": 1, "settings": SETTINGS, "embedder": {"sha256": 1}}).encode(),
    ],
)
def test_another_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"other\.json: not a file of thresholds .*calibrate"):
        of(calibration=str(path))
    with pytest.raises(InputError, match="not a file of thresholds"):
        of(calibration=str(tmp_path / "absent.json"))


def test_a_wrong_value_in_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(to_json(EMBEDDER, SETTINGS | {"threshold": 1.5}, {}))
    with pytest.raises(InputError, match="threshold: Input should be less than or equal to 1"):
        of(calibration=str(path))


def test_other_weights_are_refused(file: str) -> None:
    require_weights(file, EMBEDDER)
    with pytest.raises(StageError) as caught:
        require_weights(file, EMBEDDER | {"name": "yours", "sha256": "cd" * 32})
    said = str(caught.value)
    assert "thresholds of mine (weights abababababab)" in said
    assert "the check's model is yours (weights cdcdcdcdcdcd)" in said
    assert "Set model to mine, or measure this model with: pclr-ms contamination calib" in said
