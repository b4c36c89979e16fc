"""Stages ``tokenize`` (responses -> segments) and ``pack`` (segments -> rows).

tokenize: problem_id 9f0c…, sample_index 3, input_ids [151644, …], labels [−100, …], length 913,
          reward 1.0, pass_rate 0.375, advantage 1.29; meta.json has the model's padding and
          end tokens
pack:     rows of seq_length tokens, accounting.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.parts import fixed_batches, open_parquet
from pcl_reasoner.grade.reading import prompt_columns, value_of
from pcl_reasoner.pack.config import PackConfig, TokenizeConfig

if TYPE_CHECKING:
    from pcl_reasoner.pack.encoder import Encoder

_BATCH_ROWS = 64
"""Records encoded at a time."""
_SAMPLE_COLUMNS = ("problem_id", "sample_index", "response", "token_ids", "finish_reason")
_RL_COLUMNS = (*_SAMPLE_COLUMNS, "reward", "pass_rate")
_ADVANTAGE = "advantage"
"""An optional column, which only some losses need; training with such a loss checks for it."""
_ROW_COLUMNS = ["conversations", "problem_id", "problem", "prompt", "response", "cot", "kind"]


def tokenize(
    config: TokenizeConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Encode responses; write an Arrow folder and meta.json.

    Raises:
        StageError: A reward is missing or out of range, the problem of a response is unknown, or no
            segment is left.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import SEGMENTS
    from pcl_reasoner.pack.arrow_folder import write_arrow_folder
    from pcl_reasoner.pack.encoder import Encoder, load_encoder
    from pcl_reasoner.pack.tokens import Segmenter
    from pcl_reasoner.prompt.trained import write_prompt

    prompt = config.model_dump(include=set(Encoder.PROMPT_KEYS))
    encoder = load_encoder(inputs["policy"], **prompt)
    segmenter = Segmenter(encoder, config.max_segment_tokens, config.over_length)
    problems = {} if config.source == "rows" else _problems(config, inputs)
    files = _source_files(config, inputs["responses"])
    total = sum(open_parquet(file).metadata.num_rows for file in files)

    def segments() -> Iterator[Any]:
        for file in files:
            first = 0
            for table in _tables(config, file, problems):
                columns = {name: table[name].to_pylist() for name in table.column_names}
                encoded = segmenter.encode(columns, range(table.num_rows), file.name)
                yield pa.record_batch(encoded, SEGMENTS)
                _quarantine(segmenter.malformed, table, file.name, first, context)
                segmenter.malformed.clear()
                first += table.num_rows
                context.progress.update(first, total, "segments", file.name)

    kept = write_arrow_folder(output, SEGMENTS, segments())
    _check_kept(kept, total, segmenter.dropped, inputs["responses"])
    _write_meta(output, inputs["policy"], encoder)
    write_prompt(output, config.system, config.suffix, config.template)
    return Counts(
        unit="segments",
        read=total,
        kept=kept,
        dropped=dict(sorted(segmenter.dropped.items())),
        info={"truncated": segmenter.truncated},
    )


def pack(
    config: PackConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Put segments into rows; write an Arrow folder and accounting.json.

    Raises:
        StageError: A segment is longer than a row and ``over_length`` is ``error``, or no segment
            is left.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
    from pcl_reasoner.pack.rows import plan_packing
    from pcl_reasoner.prompt.trained import copy_prompt

    folder = inputs["samples"]
    samples = read_arrow_folder(folder)
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    settings = dict(config)
    if config.pad_token_id is None:
        settings["pad_token_id"] = meta["pad_token_id"]
    packing = plan_packing(samples, **settings)

    def batches() -> Iterator[Any]:
        done = 0
        for batch in packing.batches():
            yield batch
            done += batch.num_rows
            context.progress.update(done, len(packing.plan.rows), "rows")

    write_arrow_folder(output, packing.schema, batches())
    copy_prompt(folder, output)
    accounting = packing.accounting(config.max_segments)
    write_json(output / "accounting.json", accounting)
    info = {key: value for key, value in accounting.items() if key != "dropped"}
    return Counts(
        unit="segments",
        read=samples.num_rows,
        kept=accounting["segments"],
        dropped=packing.dropped,
        info=info,
    )


def _check_kept(kept: int, total: int, dropped: Mapping[str, int], folder: Path) -> None:
    if not kept:
        raise StageError(
            f"{folder}: no segment is left of {total} responses (dropped: {dict(dropped)}). "
            "Check the stage that wrote them, or max_segment_tokens."
        )


def _problems(config: TokenizeConfig, inputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Return column -> (problem_id -> value): what the sampled responses do not have."""
    if "problems" not in inputs:
        raise StageError(
            f"source {config.source} needs the problems that were sampled: give the stage the "
            "input `problems`, e.g. contamination; or set source to rows for a data set with a cot."
        )
    return prompt_columns(inputs["problems"], config.suffix)


def _source_files(config: TokenizeConfig, folder: Path) -> list[Path]:
    patterns = {
        "responses": ["responses.parquet"],
        "samples": ["responses/*.parquet", "responses.parquet"],
        "rows": ["clean.parquet", "rows/*.parquet"],
    }[config.source]
    found = [sorted(folder.glob(pattern)) for pattern in patterns]
    files = next((files for files in found if files), [])
    if not files:
        raise StageError(
            f"{folder}: has no {' and no '.join(patterns)}, which source {config.source} needs. "
            "Give the stage the right input, or set its source."
        )
    return files


def _tables(
    config: TokenizeConfig, file: Path, problems: Mapping[str, Mapping[str, Any]]
) -> Iterator[Any]:
    """Yield a file's records as tables; sampled responses get the columns of ``problems``."""
    import pyarrow as pa

    present = open_parquet(file).schema_arrow.names
    if config.source == "responses":
        _check_rewarded(present, file)
    wanted = {
        "responses": [*_RL_COLUMNS, _ADVANTAGE],
        "samples": list(_SAMPLE_COLUMNS),
        "rows": _ROW_COLUMNS,
    }[config.source]
    columns = [name for name in wanted if name in present]
    if config.encode_text and "token_ids" in columns:
        columns.remove("token_ids")
    for batch in fixed_batches(file, _BATCH_ROWS, columns):
        table = pa.Table.from_batches([batch])
        names = table["problem_id"].to_pylist() if problems else []
        for column, values in problems.items():
            found = [value_of(name, values) for name in names]
            table = table.append_column(column, pa.array(found, pa.string()))
        yield table


def _check_rewarded(present: list[str], file: Path) -> None:
    absent = [name for name in _RL_COLUMNS if name not in present]
    if absent:
        raise StageError(
            f"{file.name}: columns {', '.join(absent)} are missing. A missing reward is not a 0: "
            "give the stage `select`'s output."
        )


def _quarantine(
    malformed: list[tuple[int, str]], table: Any, file: str, first: int, context: StageContext
) -> None:
    for index, reason in malformed:
        record = table.slice(index, 1).to_pylist()[0]
        raw = json.dumps(record, ensure_ascii=False, sort_keys=True, default=str)
        context.quarantine(file, first + index, reason, raw)


def _write_meta(output: Path, policy: Path, encoder: Encoder) -> None:
    from pcl_reasoner.core.artifact import write_json

    special = encoder.template.special_tokens
    pad = special.get("pad_token") or encoder.template.eos_token or encoder.template.end_of_turn
    model = json.loads((policy / "config.json").read_text(encoding="utf-8"))
    write_json(
        output / "meta.json",
        {
            "pad_token_id": encoder.tokenizer.token_to_id(pad),
            "eos_token_id": encoder.tokenizer.token_to_id(encoder.template.eos_token),
            "end_of_turn_ids": encoder.end_of_turn,
            "vocab_size": model["vocab_size"],
        },
    )
