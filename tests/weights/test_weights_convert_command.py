"""``pclr-ms convert``: there and back, bit by bit; what MindFormers and others make of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_helpers import write_policy
from transformers import AutoModelForCausalLM, AutoTokenizer
from weights_helpers import CONFIG, content, renamed, write_random

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.train.adapt import CPU_MODEL_KEYS
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.logits import check_difference, compare_apart
from pcl_reasoner.weights.model_config import read_shape
from pcl_reasoner.weights.names import expected_shapes
from pcl_reasoner.weights.stream import (
    StoredTensor,
    read_files,
    weight_files,
    write_file,
    write_folder,
)
from pcl_reasoner.worker.logits import mindformers_logits, probe, transformers_logits

OTHERS = ("config.json", "tokenizer.json", "generation_config.json")


def convert(source: Path, destination: Path, to: str, *options: str) -> int:
    return main(["convert", str(source), str(destination), "--to", to, *options])


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("tied", [False, True])
def test_there_and_back_is_bit_exact(tmp_path: Path, dtype: str, tied: bool) -> None:
    """Random bits: NaNs with payloads are among them, which no cast would keep."""
    tensors = write_random(tmp_path / "hf", dtype, limit=60_000, tie_word_embeddings=tied)
    assert convert(tmp_path / "hf", tmp_path / "ms", "mindformers") == 0
    assert [file.name for file in weight_files(tmp_path / "ms")] == ["model.safetensors"]
    assert content(read_files(weight_files(tmp_path / "ms"))) == content(renamed(tensors))

    options = ["--max-shard-bytes", "50000"]
    assert convert(tmp_path / "ms", tmp_path / "back", "huggingface", *options) == 0
    files = weight_files(tmp_path / "back")
    assert len(files) > 3
    assert content(read_files(files)) == content(tensors)
    for name in OTHERS:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "hf" / name).read_bytes()
    both = [json.loads((tmp_path / name / "parity.json").read_text()) for name in ("ms", "back")]
    assert both[0] == both[1]
    assert len(both[0]["tensors"]) == (26 if tied else 27)


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_random(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "ms", "mindformers")
    assert capsys.readouterr().out == f"27 tensors, bit by bit: {tmp_path}/ms\n"


@pytest.mark.parametrize("name", ["hf", "ms"])
def test_mindformers_loads_the_folder(name: str, tmp_path: Path) -> None:
    """By the function that its Trainer calls, several files, Hugging Face's names or its own."""
    from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
    from mindformers.tools.register import MindFormerConfig
    from mindformers.utils.load_checkpoint_utils import load_safetensors_checkpoint

    policy = write_policy(tmp_path / "hf", layers=2)
    conversion.convert(policy, tmp_path / "ms", "mindformers", 60_000, None, logits=False)
    shape = read_shape(policy)
    assert shape is not None
    settings = {"qkv_has_bias": True, **shape.model_dump(), **CPU_MODEL_KEYS}
    model = LlamaForCausalLM(config=LlamaConfig(**settings))
    files = [str(file) for file in weight_files(tmp_path / name)]
    assert len(files) == (1 if name == "hf" else 10)
    config = MindFormerConfig(
        use_parallel=False, load_ckpt_format="safetensors", model={"model_config": {}}
    )
    load_safetensors_checkpoint(config, files, model, None, str(tmp_path / name), None)
    expected = renamed(read_files(weight_files(policy)))
    found = {one.name: one.asnumpy() for one in model.get_parameters()}
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert found[key].dtype == np.float32
        assert found[key].tobytes() == b"".join(value.chunks()), key


def test_what_vllm_and_transformers_ask_of_a_folder(tmp_path: Path) -> None:
    """vLLM itself is not among the tests' libraries; this is what it reads."""
    policy = write_policy(tmp_path / "policy", layers=2)
    model = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.bfloat16)
    model.save_pretrained(policy)
    conversion.convert(policy, tmp_path / "ms", "mindformers", 60_000, None, logits=False)
    output = tmp_path / "hf"
    conversion.convert(tmp_path / "ms", output, "huggingface", 60_000, None, logits=False)

    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    # Every safetensors file in the folder is in the index, and no other form of weights is there.
    index = json.loads((output / "model.safetensors.index.json").read_text())
    files = {path.name for path in output.iterdir()} - {"model.safetensors.index.json"}
    assert set(index["weight_map"].values()) == {n for n in files if n.endswith(".safetensors")}
    assert not [name for name in files if name.endswith((".bin", ".pt", ".ckpt"))]
    assert "param_name_map.json" not in files
    for file in weight_files(output):
        with file.open("rb") as handle:
            head = json.loads(handle.read(8 + int.from_bytes(handle.read(8), "little"))[:-8])
        assert head["__metadata__"] == {"format": "pt"}
        # The type that config.json names, so that nothing is cast on the way.
        kinds = {tensor.dtype for tensor in read_files([file]).values()}
        assert kinds == {"BF16"} and config["dtype"] == "bfloat16"
    words = "user assistant"
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (policy, output)]
    assert tokenizers[0](words)["input_ids"] == tokenizers[1](words)["input_ids"]
    back = AutoModelForCausalLM.from_pretrained(output, torch_dtype="auto")
    assert back.dtype == torch.bfloat16
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name


def test_tensors_that_changed_places_since_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_random(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "ms", "mindformers")
    file = tmp_path / "ms" / "model.safetensors"
    held = read_files([file])
    w1, w3 = (f"model.layers.0.feed_forward.{name}.weight" for name in ("w1", "w3"))
    write_file(tmp_path / "new", {**held, w1: held[w3], w3: held[w1]}, "mindformers")
    (tmp_path / "new").rename(file)
    assert convert(tmp_path / "ms", tmp_path / "back", "huggingface") == 1
    gate, up = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up"))
    assert f"{gate} holds the values of {up}; {up} holds the values of {gate}." in (
        capsys.readouterr().err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "ms"]
    # Changed on purpose: without parity.json the folder is taken as it is.
    (tmp_path / "ms" / "parity.json").unlink()
    assert convert(tmp_path / "ms", tmp_path / "back", "huggingface") == 0


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error() -> str:
        return capsys.readouterr().err

    write_random(tmp_path / "hf")
    assert convert(tmp_path / "absent", tmp_path / "out", "mindformers") == 2
    assert "absent: no such folder" in error()
    assert convert(tmp_path / "hf", tmp_path / "hf", "mindformers") == 2
    assert "hf: already exists" in error()
    assert convert(tmp_path / "hf", tmp_path / "out", "huggingface") == 1
    assert "Its names are Hugging Face's already." in error()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(CONFIG | {"model_type": "llama"}))
    assert convert(tmp_path / "hf", tmp_path / "out", "mindformers") == 1
    assert "model_type is 'llama', expected 'qwen2'" in error()
    (tmp_path / "hf" / "config.json").unlink()
    assert convert(tmp_path / "hf", tmp_path / "out", "mindformers") == 1
    assert "no config.json" in error()
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_random(tmp_path / "hf")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion, "write_json", full)
    assert convert(tmp_path / "hf", tmp_path / "ms", "mindformers") == 1
    assert "No space left on device; nothing was converted" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.mark.slow
def test_logits_by_both_frameworks(tmp_path: Path) -> None:
    """bfloat16 weights, widened by both; gate and up exchanged are no longer the same model."""
    policy = write_policy(tmp_path / "hf", layers=2)
    AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.bfloat16).save_pretrained(policy)
    parity = conversion.convert(policy, tmp_path / "ms", "mindformers", 60_000, None, logits=True)
    found = parity["logits"]
    assert found["tokens"] == [2, 32]
    assert 1 < found["largest"] < 100
    assert found["difference"] < 1e-5 * found["largest"]

    held = read_files(weight_files(tmp_path / "ms"))
    w1, w3 = (f"model.layers.1.feed_forward.{name}.weight" for name in ("w1", "w3"))
    exchanged = tmp_path / "exchanged.safetensors"
    write_file(exchanged, {**held, w1: held[w3], w3: held[w1]}, "mindformers")
    shape = conversion.shape_in(policy)
    theirs = transformers_logits(policy, probe(shape.vocab_size))
    ours = mindformers_logits([exchanged], shape, probe(shape.vocab_size))
    assert float(np.abs(theirs).max()) == found["largest"]
    assert float(np.abs(theirs - ours).max()) > 0.01 * found["largest"]


@pytest.mark.parametrize("difference", [0.00101, float("nan")])
def test_logits_that_differ_are_an_error(difference: float) -> None:
    check_difference({"largest": 10.0, "difference": 0.00099}, Path("model"))
    with pytest.raises(StageError, match="model: logits by transformers and by MindFormers differ"):
        check_difference({"largest": 10.0, "difference": difference}, Path("model"))


def test_logits_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write_random(tmp_path / "hf", vocab_size=1 << 17)
    needed = (
        3 * 4 * sum(one.size // 2 for one in read_files(weight_files(tmp_path / "hf")).values())
    )

    def configured(name: str) -> int:
        return {"SC_AVPHYS_PAGES": needed // 4096, "SC_PAGE_SIZE": 4095}[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sysconf", configured)
        with pytest.raises(StageError, match=r"comparing logits takes 0\.2 GiB of memory"):
            compare_apart(tmp_path / "hf", [])


# VmHWM and not ru_maxrss, which begins at what the parent had when it forked.
MEASURE = """
import re, sys
from pathlib import Path
import numpy, safetensors.numpy  # The modules of the check of headers are not what is held.
from pcl_reasoner.weights import conversion
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
conversion.convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], 100_000_000, None, False)
print(before, peak())
"""


@pytest.mark.slow
def test_memory_stays_far_under_one_shard(tmp_path: Path) -> None:
    """600 MB in files of 100 MB, there and back; chunks of 16 MiB are all that is held."""
    folder = tmp_path / "hf"
    folder.mkdir()
    sizes = {
        "num_hidden_layers": 12,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 4096,
        "vocab_size": 48_000,
    }
    (folder / "config.json").write_text(json.dumps(CONFIG | sizes))
    shape = read_shape(folder)
    assert shape is not None
    block = np.random.default_rng(0).bytes(1 << 20)

    def tensor(dimensions: tuple[int, ...]) -> StoredTensor:
        size = 2 * int(np.prod(dimensions))
        blocks = [block] * (size >> 20) + [block[: size % (1 << 20)]]
        return StoredTensor("BF16", dimensions, size, lambda: iter(blocks))

    tensors = {name: tensor(dimensions) for name, dimensions in expected_shapes(shape).items()}
    assert sum(one.size for one in tensors.values()) > 590_000_000
    write_folder(folder, tensors, 100_000_000, "huggingface")
    assert len(weight_files(folder)) > 5
    for source, destination, to in (("hf", "ms", "mindformers"), ("ms", "back", "huggingface")):
        words = [str(tmp_path / source), str(tmp_path / destination), to]
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, check=True
        )
        before, peak = map(int, done.stdout.split())
        assert peak - before < 50_000_000, (before, peak)
    for name in ("ms", "back"):
        assert len(weight_files(tmp_path / name)) == len(weight_files(folder))
