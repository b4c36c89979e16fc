"""Compiles ranks one after the other, one process per rank, and explains failures."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import last_lines
from pcl_reasoner.core.schemas import PACKED_ROWS
from pcl_reasoner.cpu_ranks import mindspore_2_7 as version
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.precompile.compile_plan import Job
from pcl_reasoner.precompile.mindspore_2_7_graph import Communication, communications, reason
from pcl_reasoner.rl.render import ROUND_LOADER
from pcl_reasoner.rounds.files import ROWS, Published, publish, round_folder, write_end
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.train import worker
from pcl_reasoner.train.render import to_yaml

CONFIG = "mindformers.yaml"
LOG = "log.txt"
PROGRAM = "pcl_reasoner.precompile.rank"
"""Module that compiles one rank."""


@dataclass(frozen=True)
class Compiled:
    """The result of one rank's compile.

    Args:
        rank: The rank.
        stage: The rank's pipeline stage, from 0.
        compile_seconds: Seconds of the compile alone.
        all_seconds: Seconds including imports and model building.
        peak_bytes: Peak memory of the process.
        parameters: One entry per trained parameter: ``name``; the complete shape (``whole``); the
            shape of the rank's tensor-parallel ``slice``; ``optimizer_group``, the ranks that
            share the slice; and ``held``, the shape of the rank's share.
        communications: Communication operations of one step.
    """

    rank: int
    stage: int
    compile_seconds: float
    all_seconds: float
    peak_bytes: int
    parameters: list[dict[str, Any]]
    communications: list[Communication]


def for_compiling(config: dict[str, Any], rows: Path) -> dict[str, Any]:
    """Return the configuration with artificial rows and without weights, for a compile.

    Args:
        config: A MindFormers configuration.
        rows: Folder of artificial rows, or of rounds with such rows.
    """
    dataset = config["train_dataset"]
    loader = dict(dataset["data_loader"])
    if _has_rounds(config):
        loader |= {"rounds": str(rows)}
    else:
        loader |= {"path": str(rows), "epochs": 1, "max_steps": None}
    # MindSpore refuses more workers than the machine has cores.
    workers = {"num_parallel_workers": 1, "python_multiprocessing": False}
    dataset = dataset | {"data_loader": loader} | workers
    return config | {
        "load_checkpoint": "",
        "auto_trans_ckpt": False,
        "resume_training": False,
        "output_dir": "work",
        "train_dataset": dataset,
        "train_dataset_task": config["train_dataset_task"] | {"dataset_config": dataset},
    }


def _has_rounds(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration is that of a stage ``rl``."""
    return bool(config["train_dataset"]["data_loader"]["type"] == ROUND_LOADER)


def possible() -> bool:
    """Return whether this machine and the installed MindSpore can run the front-end compile."""
    return version.machine_problem() is None


def require(with_cann: bool) -> None:
    """Raise an error if this machine cannot run the requested compile.

    Args:
        with_cann: True if MindSpore's own dry run is requested; it needs CANN, but runs on any
            architecture.

    Raises:
        InputError: The dry run is requested, but this machine has no CANN.
        StageError: The machine is not x86-64, or MindSpore has an unsupported version.
    """
    if with_cann and not {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} & os.environ.keys():
        raise InputError(
            "--with-cann: CANN is missing (ASCEND_HOME_PATH is not set). Source its set_env.sh "
            "first, or omit --with-cann."
        )
    if not with_cann and (problem := version.machine_problem()):
        raise StageError(problem)


def prepare(job: Job, folder: Path) -> Path:
    """Write artificial rows and the YAML that every rank compiles; return the YAML's path.

    Args:
        job: The configuration to compile.
        folder: The output folder; an existing one is deleted first.
    """
    worker.remove_tree(folder)
    rows = _write_batch(job, folder)
    config = folder / CONFIG
    config.write_text(to_yaml(for_compiling(job.config, rows.absolute())), encoding="utf-8")
    return config


def _write_batch(job: Job, folder: Path) -> Path:
    """Write the rows of one step, or of one round of one micro-step; return their folder."""
    loader = job.config["train_dataset"]["data_loader"]
    length = job.config["model"]["model_config"]["seq_length"]
    if _has_rounds(job.config):
        rounds, size = folder / "rounds", loader["rows"]
        write_rows(round_folder(rounds, 0) / ROWS, size, length)
        publish(rounds, Published(round=0, micro_steps=1, segments=size, rows=size))
        write_end(rounds, 1)
        return rounds
    write_rows(folder / "rows", loader["global_batch_size"], length)
    return folder / "rows"


def write_rows(folder: Path, count: int, length: int) -> None:
    """Write artificial rows of one segment each, in which all tokens but the first are trained.

    A compile needs the shapes of one batch, not its values.

    Args:
        folder: A new folder.
        count: Number of rows.
        length: Tokens per row.
    """
    import pyarrow as pa

    folder.mkdir(parents=True)
    zeros = [0] * length
    values: dict[str, list[Any]] = {
        "input_ids": zeros,
        "labels": [IGNORED, *zeros[1:]],
        "segment_ids": zeros,
        "actual_seq_len": [length],
        "problem_ids": ["0"],
    }
    columns: dict[str, list[Any]] = {name: [values.get(name, [0])] for name in PACKED_ROWS.names}
    columns |= {"trained_segments": [1], "trained_tokens": [length - 1]}
    row = pa.RecordBatch.from_pydict(columns, schema=PACKED_ROWS)
    write_arrow_folder(folder, PACKED_ROWS, (row for _ in range(count)))


def compile_rank(job: Job, config: Path, rank: int) -> Compiled:
    """Compile one rank in a separate process.

    Args:
        job: The configuration to compile.
        config: The YAML from ``prepare``.
        rank: The rank.

    Raises:
        StageError: The compile failed; the message has MindSpore's reason and the log's path.
    """
    folder = config.parent / f"rank_{rank}"
    graphs = folder / "graphs"
    graphs.mkdir(parents=True)
    arguments = [str(config.absolute()), str(rank), str(job.layout.world)]
    command = [sys.executable, "-m", PROGRAM, *arguments]
    code = run_logged(command, folder, version.environment(graphs.absolute()))
    if code != 0:
        raise StageError(failure(job, rank, code, folder / LOG))
    value = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    (graph,) = sorted(graphs.glob(f"*_{version.GRAPH_PASS}_*.ir"))[-1:]
    with graph.open(encoding="utf-8") as lines:
        found = communications(lines)
    shutil.rmtree(graphs)
    return Compiled(rank=rank, stage=job.layout.stage_of(rank), communications=found, **value)


def run_logged(command: list[str], folder: Path, extra: dict[str, str]) -> int:
    """Run a command in a folder, log its output there, and return its exit code."""
    with Supervised.here(command, folder / LOG, folder, worker.environment(extra)) as compiling:
        code = compiling.wait()
    assert code is not None
    return code


def failure(job: Job, rank: int, code: int, log: Path) -> str:
    """Return the error message for a failed compile.

    Args:
        job: The configuration.
        rank: The rank.
        code: Exit code of the compile's process; negative for a signal.
        log: The log of this process.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    if code == -9:
        why = (
            f"killed, most likely because memory ran out; about {job.estimate / 1e9:.1f} GB were "
            "expected. Free memory, or use --scale small."
        )
    elif code < 0:
        why = (
            f"signal {-code} ended its process. The binary layout of MindSpore's wheel may differ "
            f"from that of {' and '.join(version.VERSIONS)}."
        )
    else:
        why = reason(text) or last_lines(log)
    return f"{title(job, rank)}: failed: {why}\nIts log is {log}."


def title(job: Job, rank: int) -> str:
    """Return the compile's title, ``front-end parallel compile, rank 64 of 128 (stage 2 of 2)``."""
    layout = job.layout
    return (
        f"front-end parallel compile, rank {rank} of {layout.world} "
        f"(stage {layout.stage_of(rank) + 1} of {layout.stages})"
    )
