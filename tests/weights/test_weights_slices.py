"""Ranks' slices merged into whole tensors; MindFormers' own code cuts them, from the same files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from weights_helpers import content, renamed, stored, write_random

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.names import mindformers_name
from pcl_reasoner.weights.slices import Layout, merge, open_checkpoint, read_layouts
from pcl_reasoner.weights.stream import StoredTensor, read_files, weight_files, write_file

# What MindSpore wrote in a front-end parallel compile: of v1_sft's own YAML with 4 layers, as
# ranks 0 and 4 of 8 with optimizer sharding; of a Qwen2 with 2 layers, as rank 0 of 8 with
# optimizer shards of 2 ranks.
STRATEGIES = Path(__file__).parent / "strategies"
LAYOUTS = {"dp2_tp2_pp2": 4, "dp4_tp2": 2}
"""With the layers of the model."""
RANKS = 8


def cut(source: Path, strategy: Path, output: Path, ranks: int = RANKS) -> Path:
    """What ``auto_trans_ckpt`` makes of a Hugging Face or MindFormers folder for every rank."""
    import mindspore as ms
    from mindformers.models.llama import LlamaForCausalLM
    from mindformers.utils.safetensors import convert_safetensors

    merged = output.parent / f"{output.name}.ckpt"
    ms.merge_pipeline_strategys(str(strategy), str(merged))
    names = None
    folder = output.parent / f"{output.name}_source"
    shutil.copytree(source, folder)  # MindFormers writes a name map into it
    files = sorted(map(str, folder.glob("*.safetensors")))
    if (source / "config.json").is_file():
        names = LlamaForCausalLM.obtain_name_map(files)
        index = (str(folder), str(folder), LlamaForCausalLM.convert_map_dict, False)
        convert_safetensors._convert_index_json(*index)
    for rank in range(ranks):
        ms.load_distributed_checkpoint(
            network=None,
            predict_strategy=str(merged),
            unified_safetensors_dir=str(folder),
            dst_safetensors_dir=str(output / "checkpoint"),
            rank_id=rank,
            format="safetensors",
            name_map=names,
        )
    shutil.copytree(strategy, output / "strategy")
    return output


def slices(folder: Path, rank: int) -> dict[str, StoredTensor]:
    return read_files([folder / "checkpoint" / f"rank_{rank}" / "net.safetensors"])


def writable(path: Path) -> Path:
    path.chmod(0o644)
    return path


@pytest.fixture(scope="module", params=LAYOUTS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with an index, random bits of bfloat16."""
    folder = tmp_path_factory.mktemp(request.param) / "policy"
    write_random(folder, limit=60_000, num_hidden_layers=LAYOUTS[request.param])
    return folder


@pytest.fixture(scope="module")
def distributed(whole: Path) -> Path:
    strategy = next(name for name in LAYOUTS if name in whole.parent.name)
    return cut(whole, STRATEGIES / strategy, whole.parent / "run")


def test_slices_by_hand(distributed: Path) -> None:
    """Query weights [64, 64] are cut by tensor parallelism into 32 rows, and for the optimizer
    into 16; the head [272, 64] is on the last stage only."""
    pipeline = "dp2_tp2_pp2" in str(distributed)
    query, head, output = (
        "model.layers.0.attention.wq.weight",
        "lm_head.weight",
        "model.layers.0.attention.wo.weight",
    )
    first, last = slices(distributed, 1), slices(distributed, 7)
    assert first[query].shape == (16, 64)
    # Cut along its columns by tensor parallelism, along its rows for the optimizer.
    assert first[output].shape == (32, 32)
    assert (query in last) == (not pipeline)
    assert (head in first) == (not pipeline)
    assert last[head].shape == (68, 64)


def test_merged_slices_are_the_whole_weights_bit_by_bit(distributed: Path, whole: Path) -> None:
    expected = renamed(read_files(weight_files(whole)))
    assert content(open_checkpoint(distributed)) == content(expected)


def test_what_was_merged_is_cut_into_the_same_slices(
    distributed: Path, whole: Path, tmp_path: Path
) -> None:
    output = tmp_path / "export"
    conversion.convert(distributed, output, "huggingface", 60_000, whole, logits=False)
    again = cut(output, distributed / "strategy", tmp_path / "again")
    for rank in range(RANKS):
        assert content(slices(again, rank)) == content(slices(distributed, rank)), rank


def test_the_optimizers_slices_do_not_leak(whole: Path, tmp_path: Path) -> None:
    """Cut with their own layouts, as a run saves them, with counters that have none."""
    ours = renamed(read_files(weight_files(whole)))
    states = {f"{kind}.{name}": one for name, one in ours.items() for kind in ("adam_m", "adam_v")}
    (tmp_path / "one").mkdir()
    write_file(tmp_path / "one" / "all.safetensors", ours | states, "mindformers")
    strategy = next(name for name in LAYOUTS if name in whole.parent.name)
    run = cut(tmp_path / "one", STRATEGIES / strategy, tmp_path / "run")
    for rank in range(RANKS):
        file = run / "checkpoint" / f"rank_{rank}" / "net.safetensors"
        step = stored(b"\7\0\0\0", "I32", (1,))
        held = slices(run, rank) | {"global_step": step}
        write_file(file.with_suffix(".new"), held, "mindformers")
        file.with_suffix(".new").rename(writable(file))
    parity = conversion.convert(run, tmp_path / "hf", "huggingface", 1 << 40, whole, logits=False)
    assert parity["left_out"] == {"adam_m": len(ours), "adam_v": len(ours), "global_step": 1}
    back = read_files(weight_files(tmp_path / "hf"))
    assert content(back) == content(read_files(weight_files(whole)))


def test_places_by_hand() -> None:
    # 4 x 2 ranks; the second axis cuts rows, optimizer shards of 2 ranks cut them once more.
    rows = Layout((4, 2), ((0,), ()), step=2, size=2)
    assert rows.parts == (4, 1)
    assert [rows.part_of(rank) for rank in range(8)] == [
        (part, 0) for part in (0, 2, 1, 3, 0, 2, 1, 3)
    ]
    columns = Layout((2, 2), ((), (0,)))
    assert columns.parts == (1, 2)
    assert [columns.part_of(rank) for rank in range(4)] == [(0, 0), (0, 1), (0, 0), (0, 1)]
    both = Layout((2, 3), ((0, 1),))
    assert both.parts == (6,)
    assert [both.part_of(rank) for rank in range(6)] == [(0,), (2,), (4,), (1,), (3,), (5,)]
    assert Layout((2, 2), ()).parts == ()


def write_strategy(
    folder: Path,
    devices: Sequence[int],
    maps: Sequence[Sequence[int]],
    step: int = 0,
    size: int = 0,
) -> Path:
    """A strategy file of one tensor, in MindSpore's own form."""
    from mindspore.train import node_strategy_pb2

    content = node_strategy_pb2.ParallelStrategyMap()
    content.current_stage = 1
    content.parallel_strategy_item.add(node_name="node").parallel_strategys.stage = 0
    item = content.parallel_layout_item.add()
    item.param_name = "model.w"
    layout = item.parallel_layouts
    layout.field = 0
    layout.param_split_shape.add()
    layout.dev_matrix.add().dim.extend(devices)
    for dimensions in maps:
        layout.tensor_map.add().dim.extend(dimensions)
    layout.opt_weight_shard_step = step
    layout.opt_weight_shard_size = size
    folder.mkdir()
    (folder / "one.ckpt").write_bytes(content.SerializeToString())
    return folder


@pytest.mark.parametrize(
    ("devices", "maps", "step", "size"),
    [
        ([2, 2, 2], [[0, 1]], 0, 0),
        ([2, 2, 2], [[2, -1]], 0, 0),
        ([8], [[-1, -1]], 0, 0),
        ([8], [[-1, -1]], 1, -1),
        ([2, 2, 2], [[0, -1]], 2, -1),
        ([2, 2, 2], [[-1, 0]], 2, 2),
        ([4, 2], [[-1, 0]], 2, 2),
        ([2, 2, 2], [[2, 1], [0]], 0, 0),
        ([2, 2, 2], [[1, 0], [-1]], 0, 0),
        ([2, 2, 2], [[1, 0], [-1]], 4, -1),
    ],
)
def test_layouts_of_all_kinds(
    tmp_path: Path, devices: list[int], maps: list[list[int]], step: int, size: int
) -> None:
    """Every value is its own index, so a slice in a wrong place shows."""
    value = np.arange(32 * 24, dtype=np.float32).reshape(32, 24)
    (tmp_path / "one").mkdir()
    save_file({"model.w": value}, tmp_path / "one" / "all.safetensors")
    strategy = write_strategy(tmp_path / "strategy", devices, maps, step, size)
    run = cut(tmp_path / "one", strategy, tmp_path / "run")
    whole = open_checkpoint(run)["model.w"]
    found = np.frombuffer(b"".join(whole.chunks()), np.float32).reshape(whole.shape)
    np.testing.assert_array_equal(found, value)


def pair(tmp_path: Path, held: dict[int, Any]) -> dict[int, Path]:
    """Ranks' files with the tensor ``model.w``."""
    files = {}
    for rank, value in held.items():
        files[rank] = tmp_path / f"{rank}.safetensors"
        save_file({"model.w": value} if value is not None else {"x": np.zeros(1)}, files[rank])
    return files


HALVES = {"model.w": {0: Layout((2, 2), ((0,),))}}
LEFT, RIGHT = np.array([1.0, 2.0]), np.array([3.0, 4.0])


def test_copies_that_are_left_out_or_differ(tmp_path: Path) -> None:
    """Two ranks hold each half. A checkpoint without redundancy has it once."""
    once = pair(tmp_path, {0: LEFT, 1: RIGHT, 2: None, 3: None})
    data = b"".join(merge(once, HALVES, tmp_path)["model.w"].chunks())
    assert data == np.array([1.0, 2.0, 3.0, 4.0]).tobytes()
    apart = pair(tmp_path, {0: LEFT, 1: RIGHT, 2: LEFT, 3: -RIGHT})
    with pytest.raises(StageError, match=r"model\.w: ranks 1 and 3 should hold the same values"):
        list(merge(apart, HALVES, tmp_path)["model.w"].chunks())


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({0: LEFT, 1: None, 2: LEFT, 3: None}, r"model\.w: part \(1,\) of \(2,\) is missing"),
        ({0: LEFT, 1: RIGHT, 2: LEFT}, "files of 3 ranks, expected 4 ranks"),
        ({0: LEFT, 1: np.zeros(3), 2: LEFT, 3: RIGHT}, r"model\.w: slices differ"),
        ({rank: np.eye(2) for rank in range(4)}, r"model\.w: slices have shape \[2, 2\]"),
    ],
)
def test_slices_that_do_not_go_together(tmp_path: Path, held: dict[int, Any], message: str) -> None:
    with pytest.raises(StageError, match=message):
        merge(pair(tmp_path, held), HALVES, tmp_path)


def test_slices_without_their_strategy_files_are_refused(
    distributed: Path, whole: Path, tmp_path: Path
) -> None:
    """Pipeline stages hold other tensors each; without stages it is shapes alone that tell."""
    shutil.copytree(distributed / "checkpoint", tmp_path / "run" / "checkpoint")
    message = (
        r"embed_tokens\.weight .* has shape \[136, 64\], expected \[272, 64\].*'strategy'"
        if "dp4_tp2" in str(distributed)
        else "rank 4 holds other tensors than rank 0.*'strategy'"
    )
    with pytest.raises(StageError, match=message):
        conversion.write_trained(tmp_path / "run", whole, tmp_path / "trained.safetensors")


def test_a_training_runs_slices_become_its_checkpoint(
    distributed: Path, whole: Path, tmp_path: Path
) -> None:
    conversion.write_trained(distributed, whole, tmp_path / "trained.safetensors")
    expected = renamed(read_files(weight_files(whole)))
    assert content(read_files([tmp_path / "trained.safetensors"])) == content(expected)


def test_a_damaged_strategy_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(b"not a strategy")
    with pytest.raises(StageError, match="cannot read the strategy files"):
        read_layouts(tmp_path)


def test_ranks_of_data_parallelism_alone_hold_everything(whole: Path, tmp_path: Path) -> None:
    ours = renamed(read_files(weight_files(whole)))
    for rank in (0, 1):
        file = tmp_path / "checkpoint" / f"rank_{rank}" / f"policy_rank_{rank}-1_20.safetensors"
        file.parent.mkdir(parents=True)
        write_file(file, ours, "mindformers")
    assert content(open_checkpoint(tmp_path)) == content(ours)
    assert mindformers_name("lm_head.weight") in ours
