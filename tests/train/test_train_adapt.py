"""What a CPU cannot run is changed and said; what it can run is left alone."""

from __future__ import annotations

from typing import Any

import yaml
from paths import HELPERS
from train_helpers import train_config

from pcl_reasoner.train.adapt import adapt_to_cpu
from pcl_reasoner.train.compare import flatten
from pcl_reasoner.train.render import render
from pcl_reasoner.weights.model_config import ModelShape

SMALL = ModelShape(
    num_layers=1, hidden_size=8, num_heads=1, n_kv_heads=1, intermediate_size=8, vocab_size=8
)
PUBLISHED = HELPERS / "published_v1.yaml"
PATHS = {"packs": "p", "policy": "w", "metrics": "m", "output_dir": "work"}


def published() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(PUBLISHED.read_text())
    return value


def test_every_change_is_said_and_every_unsaid_key_is_as_it_was() -> None:
    before, after = flatten(published()), published()
    changes = adapt_to_cpu(after, ranks=1)
    said = {change.partition(":")[0] for change in changes}
    now = flatten(after)
    # The second mention of the data set is an alias of the first.
    changed = {
        key
        for key in before.keys() | now.keys()
        if before.get(key) != now.get(key) and not key.startswith("train_dataset_task")
    }
    for key in changed:
        assert any(key == one or key.startswith(f"{one}.") for one in said), key
    assert all(any(key == one or key.startswith(f"{one}.") for key in changed) for one in said)


def test_flash_attention_is_put_on_where_a_configuration_has_it_off() -> None:
    """Off, a packed mask is added to the scores as 0 and 1: every gradient is wrong, no error."""
    config = published()
    config["model"]["model_config"]["use_flash_attention"] = False
    changes = adapt_to_cpu(config, ranks=1)
    assert config["model"]["model_config"]["use_flash_attention"] is True
    assert "model.model_config.use_flash_attention: False -> True" in changes


def test_rows_of_2048_tokens_keep_the_compressed_mask() -> None:
    def columns(length: int) -> tuple[bool, str]:
        config = published()
        config["model"]["model_config"]["seq_length"] = length
        adapt_to_cpu(config, ranks=1)
        compressed = config["model"]["model_config"]["use_eod_attn_mask_compression"]
        return compressed, config["train_dataset"]["construct_args_key"][-1]

    assert columns(2047) == (False, "attention_mask")
    assert columns(2048) == (True, "actual_seq_len")


def test_several_ranks_are_data_parallel() -> None:
    config = published()
    adapt_to_cpu(config, ranks=4)
    assert config["use_parallel"] is True
    assert config["parallel_config"]["data_parallel"] == 4
    assert config["parallel"]["parallel_mode"] == 0


def test_what_is_rendered_for_a_cpu_needs_no_further_change() -> None:
    assert adapt_to_cpu(render(train_config(), SMALL, PATHS), ranks=1) == []
