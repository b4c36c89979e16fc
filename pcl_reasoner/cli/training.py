"""Commands about training. main.py adds them to the command line and translates their errors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import (
    FILE,
    FOLDER,
    PATH,
    POSITIVE,
    example,
    load,
    recipe_options,
    require_done,
    runs_option,
)
from pcl_reasoner.core.errors import InputError

if TYPE_CHECKING:
    from pcl_reasoner.perplexity.inspect import Inspected
    from pcl_reasoner.precompile.compile_plan import Job
    from pcl_reasoner.precompile.compile_run import Compiled
    from pcl_reasoner.runner.plan import Plan
    from pcl_reasoner.runner.recipe import Recipe
    from pcl_reasoner.train.config import TrainConfig


@click.command(
    epilog=example(
        "pclr-ms convert models/mine models/mine_mindformers --to mindformers",
        "pclr-ms convert output models/trained --to huggingface --like models/mine",
    )
)
@click.argument("source", type=PATH)
@click.argument("destination", type=PATH)
@click.option(
    "--to",
    required=True,
    type=click.Choice(["mindformers", "huggingface"]),
    help="The names of the destination's tensors.",
)
@click.option(
    "--like",
    type=PATH,
    metavar="DIR",
    help="Folder that config.json and the tokenizer are taken from; SOURCE if left out.",
)
@click.option(
    "--max-shard-bytes",
    default=5_000_000_000,
    type=POSITIVE,
    help="Largest size of a safetensors file.",
)
@click.option(
    "--logits",
    is_flag=True,
    help="Also compare the logits of transformers and MindFormers; needs memory for three copies "
    "of the model in float32.",
)
def convert(source: Path, destination: Path, to: Any, max_shard_bytes: int, **options: Any) -> None:
    """Convert a Qwen2 model's weights between Hugging Face's names and MindFormers'.

    SOURCE is a Hugging Face folder, a folder with MindFormers' safetensors, or a training run's
    output folder (checkpoint/rank_N; with tensor or pipeline parallelism, also a folder strategy).
    Every tensor is read back and compared after writing; parity.json has its SHA-256.
    """
    from pcl_reasoner.weights.conversion import convert as convert_folder

    parity = convert_folder(source, destination, to, max_shard_bytes, **options)
    click.echo(f"{len(parity['tensors'])} tensors, bit by bit: {destination}")
    for kind, count in parity["left_out"].items():
        click.echo(f"left out: {kind} ({count})")
    if "logits" in parity:
        found = parity["logits"]
        click.echo(f"logits differ by at most {found['difference']:.2g} of {found['largest']:.3g}")


@click.command(
    "compile",
    epilog=example(
        "pclr-ms compile v1_sft --launch v1_dp8_tp8_pp2",
        "pclr-ms compile v15_opg --launch atlas_910c_16x8 --ranks 0,127 --scale small",
        "pclr-ms compile am_thinking_v1 --launch atlas_910c_rl --stage rl_1",
    ),
)
@recipe_options
@click.option(
    "--ranks",
    "listed",
    metavar="LIST",
    help="Ranks, e.g. 0,32, or all; the first rank of each pipeline stage if left out.",
)
@click.option(
    "--scale",
    default="auto",
    type=click.Choice(["full", "auto", "small"]),
    help="Size of the model: auto is full where memory allows, else as many layers as fit.",
)
@click.option("--with-cann", is_flag=True, help="Also run MindSpore's own dry run; needs CANN.")
@click.option("--stage", help="Only this stage; all stages that train if left out.")
@runs_option
def compile_(
    listed: str | None,
    scale: Any,
    with_cann: bool,
    stage: str | None,
    runs: Path,
    **options: Any,
) -> None:
    """Compile a recipe's training, for chosen ranks, on an x86-64 machine without a device.

    MindSpore's front end compiles the recipe's own MindFormers YAML for parallel training: operator
    strategies, pipeline split, optimizer sharding. The command shows slices, communication and
    errors in the layout. It refuses a graph if MindSpore's graph optimization made its gradients
    wrong. The graph is not executed: kernels, device memory and computed values are not checked.
    Of a stage rl, the step that adds up the gradients of a round's micro-steps is compiled.
    """
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.train.shape import training_stages

    recipe = load(**options)
    for name in training_stages(recipe, "to compile", stage):
        folder = runs.absolute() / recipe.name / "compile" / name
        _compile_stage(make_plan(recipe, runs, until=name), folder, listed, scale, with_cann)


def _compile_stage(
    plan: Plan, folder: Path, listed: str | None, scale: Any, with_cann: bool
) -> None:
    """Compile ranks of one stage that trains, print each rank's result, and write all to a file."""
    from pcl_reasoner.precompile import compile_plan, compile_report, compile_run

    config = compile_plan.configuration(plan)
    job = compile_plan.plan_size(config, scale, compile_plan.free_bytes())
    ranks = compile_plan.ranks_to_compile(job.layout, listed)
    title = plan.stages[-1].title
    compile_run.require(with_cann)
    for line in compile_report.headlines(title, job):
        click.echo(line)
    yaml = compile_run.prepare(job, folder)
    done = []
    for rank in ranks if compile_run.possible() else ():
        done.append(compile_run.compile_rank(job, yaml, rank))
        _show_compiled(job, done[-1])
    click.echo(f"written: {compile_report.write(job, title, done, folder)}")
    compile_report.refuse_merged(job, done)
    _dry_runs(job, yaml, ranks, with_cann)


def _dry_runs(job: Job, yaml: Path, ranks: Sequence[int], with_cann: bool) -> None:
    """Print the commands of MindSpore's own dry runs; with CANN, run them and print the memory."""
    from pcl_reasoner.precompile import cann

    click.echo("on a machine with CANN, MindSpore's own dry run (not tried here):")
    for rank in ranks:
        click.echo(f"  {cann.command(job, yaml, rank)}")
        if with_cann:
            figures = cann.simulate(job, yaml, rank)
            sizes = (f"{name} {size / 2**30:.1f} GiB" for name, size in figures.items())
            click.echo(f"  device memory: {', '.join(sizes) or 'not in its log'}")


def _show_compiled(job: Job, compiled: Compiled) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.precompile import compile_report

    click.echo(f"\n{compile_report.summary(job, compiled)}")
    terminal.table(
        ("parameter", "count", "complete", "slice", "optimizer shards", "held"),
        compile_report.parameter_rows(compiled),
        right=("count", "optimizer shards"),
    )
    click.echo()
    terminal.table(
        ("group", "operation", "why", "per step", "MiB per step"),
        compile_report.communication_rows(job, compiled),
        right=("per step", "MiB per step"),
    )
    inserted = compile_report.redistribution_rows(job, compiled)
    click.echo(f"\nredistribution inserted between our own operators: {len(inserted) or 'none'}")
    if inserted:
        terminal.table(("where", "operation", "group", "from", "to", "per step"), inserted)


@click.command(
    "hardware-check",
    epilog=example(
        "pclr-ms hardware-check",
        "pclr-ms hardware-check --device CPU --parts kernels,losses --output cpu.json",
    ),
)
@click.option(
    "--device",
    type=click.Choice(["CPU", "Ascend"]),
    help="Device; the one that MindSpore finds if left out.",
)
@click.option("--parts", default="", metavar="NAME,…", help="Only these parts; all if left out.")
@click.option(
    "--limit",
    default=300,
    type=POSITIVE,
    metavar="SECONDS",
    help="Time after which a part is ended.",
)
@click.option(
    "--output",
    default="hardware_check.json",
    type=FILE,
    help="The file to send back; an existing file is overwritten.",
)
@click.option(
    "--figures", type=FILE, help="Reference results of a CPU; the shipped ones if left out."
)
@click.option(
    "--write-figures",
    type=FILE,
    help="On a CPU: write reference results to FILE, and check nothing.",
)
def hardware_check(
    device: str | None,
    parts: str,
    limit: int,
    output: Path,
    figures: Path | None,
    write_figures: Path | None,
) -> int:
    """Check one node: kernels, losses, packing, five steps of training, parallel layouts.

    Takes about ten minutes on a node with eight Ascend devices, and writes one JSON file to send
    back. The file has versions, results and times, but no host names, addresses or paths. On a CPU
    only the parts that apply there are run. The exit code is 1 if something is wrong.
    """
    from pcl_reasoner.core.artifact import write_atomically
    from pcl_reasoner.hardware_check import check

    if write_figures is not None:
        if device == "Ascend" or parts or figures:
            raise InputError(
                "--write-figures: combine it only with --limit; figures are made on a CPU."
            )
        write_atomically(write_figures, check.make_figures(limit, _show_part))
        click.echo(f"written: {write_figures}")
        return 0
    names = [name for name in parts.split(",") if name]
    check.check_names(names)
    expected = check.read_figures(figures or check.FIGURES)
    report, _ = check.hardware_check(device, names, expected, limit, _show_part)
    write_atomically(output, json.dumps(report, indent=1) + "\n")
    _show_checked(report)
    click.echo(f"written: {output}")
    return 1 if check.verdict(report)[check.WRONG] else 0


def _show_part(entry: dict[str, Any]) -> None:
    click.echo(f"{entry['name']}: {entry['status']}, {entry['seconds']:g} s")


def _show_checked(report: dict[str, Any]) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.hardware_check import check

    click.echo()
    rows = [
        (part["name"], part["title"], part["status"], part["why"].partition("\n")[0])
        for part in report["parts"]
    ]
    terminal.table(("part", "what", "", "why"), rows)
    wrong = [
        (part["name"], *(one[key] for key in ("name", "got", "expected", "error", "tolerance")))
        for part in report["parts"]
        for one in part["checks"]
        if not one["ok"]
    ]
    if wrong:
        click.echo()
        terminal.table(("part", "wrong", "got", "expected", "error", "tolerance"), wrong)
    statuses = (f"{count} {status}" for status, count in check.verdict(report).items())
    kind = report["device"]["kind"]
    click.echo(f"\n{report['device'].get('count', 0)} x {kind}: {', '.join(statuses)}")


@click.command(
    epilog=example(
        "pclr-ms inspect v15_opg --responses 8",
        "pclr-ms inspect v15_opg --weights runs/v15_opg/export-1a2b3c4d --output inspected.jsonl",
    )
)
@recipe_options
@click.option(
    "--responses",
    default=16,
    type=POSITIVE,
    help="Responses to show, evenly spaced over all; they are weighted as one global batch.",
)
@click.option(
    "--weights",
    type=FOLDER,
    metavar="DIR",
    help="Hugging Face folder; the policy that training starts from if left out.",
)
@click.option("--stage", default="train", help="The train stage.")
@click.option("--output", type=FILE, help="Write all figures to FILE, a JSON line per response.")
@runs_option
def inspect(
    responses: int,
    weights: Path | None,
    stage: str,
    output: Path | None,
    runs: Path,
    **options: Any,
) -> None:
    """Show what the recipe's loss does to single responses, without training.

    For each response: m, p, advantage, gradient weight, entropy, and the tokens that weigh most,
    i.e. whose |gradient with respect to the token's own logit| is largest. The responses shown are
    some of those that the train stage's rows are packed from.
    """
    from pcl_reasoner.cli import terminal

    recipe = load(until=stage, **options)
    click.echo(terminal.headline(recipe))
    found = _inspected(recipe, runs, stage, responses, weights)
    if output is not None:
        lines = [json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in found]
        output.write_text("".join(lines), encoding="utf-8")
    terminal.inspected(found)


def _inspected(
    recipe: Recipe, runs: Path, stage: str, responses: int, weights: Path | None
) -> list[Inspected]:
    """Compute the loss's values for some of a train stage's responses, evenly spaced over all."""
    from pcl_reasoner.pack.arrow_folder import read_arrow_folder
    from pcl_reasoner.perplexity.inspect import find_samples, find_train, inspect, spaced_indices
    from pcl_reasoner.perplexity.old_log_probs import Evaluation
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.train.config import TrainConfig

    plan = make_plan(recipe, runs, until=stage)
    train = find_train(plan)
    origin = find_samples(plan, train)
    require_done(origin, recipe)
    config = train.spec.config
    assert isinstance(config, TrainConfig)
    samples = read_arrow_folder(origin.folder)
    samples = samples.take(spaced_indices(samples.num_rows, responses))
    meta = json.loads((origin.folder / "meta.json").read_text(encoding="utf-8"))
    policy = (weights or train.inputs["policy"].path).absolute()
    evaluation = Evaluation(_forward(config), policy, samples, meta["pad_token_id"], gradient=True)
    with tempfile.TemporaryDirectory() as folder:
        placement = recipe.launch.placement
        return inspect(evaluation, plan.tokenizer_file(origin), Path(folder), placement)


def _forward(config: TrainConfig) -> TrainConfig:
    """Return settings for a forward pass, one response per row, with the stage's model and loss."""
    from pcl_reasoner.perplexity.old_log_probs import forward_config

    names = (
        *("loss", "loss_parameters", "seq_length", "max_segments", "model", "mindformers"),
        *("device", "precision", "compressed_mask", "max_device_memory"),
    )
    return forward_config(rows=1, **{name: getattr(config, name) for name in names})
