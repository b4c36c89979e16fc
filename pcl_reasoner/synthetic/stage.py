"""The synthetic sources: Nemotron-like Parquet, V1-like JSONL, a benchmark and a base model.

    nemotron/part-0000N.parquet   messages [{role, content}], metadata '{"expected_answer": "8"}'
    conversations/math.jsonl      {"conversations": [{"from": "human", "value": …}, {…}]}
    benchmark.jsonl               {"id": "embedded-0001", "problem": …, "answer": "8"}
    base_model/                   a Hugging Face folder with random weights
    planted.json                  the number of special cases in the data, by type

The data contains special cases for the later stages to find: problems solved 16, 20 and 32
times, short chains of thought, repeated rows, blank ground truths, questions of the benchmark
(copied, wrapped and paraphrased), and malformed rows of several kinds.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.synthetic import task

FILES = 2
"""Number of Parquet files: several, as in the real data set."""
REMARKS = ("", "", "I start. ", "Let me reckon step by step. ")
WRAPPER = (
    "<|im_start|>user\n{0.problem}\nPlease reason step by step.<|im_end|>\n<|im_start|>assistant\n"
)
MALFORMED_LINES = (
    b'{"conversations": [{"from": "human", "value": "cut\n',
    b'{"conversations": [{"from": "human", "value": "no response"}]}\n',
    b'{"conversations": [{"from": "human", "value": "\xff\xfe"}, {"value": "x"}]}\n',
    b'{"messages": []}\n',
)
"""Malformed lines among the V1-like lines, which convert must quarantine."""


Changes = Annotated[int, Field(ge=1, le=len(task.DAYS))]
"""A problem has at most one change per day of a week."""


class SyntheticConfig(StageConfig):
    """Amount and difficulty of the synthetic data."""

    data: Literal["pcl_reasoner", "am_thinking"] = "pcl_reasoner"
    """``pcl_reasoner``: the sources of V1 and V1.5. ``am_thinking``: those of AM-Thinking-v1
    (am_thinking.py)."""
    seed: int
    """Seed of all random draws."""
    benchmark_problems: int = Field(160, gt=0)
    """Number of held-out problems, which form the benchmark."""
    sft_problems: int = Field(4000, gt=0)
    """Number of problems in the SFT data, with one response each."""
    rl_problems: int = Field(320, gt=0)
    """Number of problems that suit RL: solved in some samples, with long chains of thought."""
    math_problems: int = Field(1600, gt=0)
    """AM-Thinking-v1: number of math problems."""
    code_problems: int = Field(600, gt=0)
    """AM-Thinking-v1: number of programs to write."""
    instruction_problems: int = Field(80, gt=0)
    """AM-Thinking-v1: number of lists of words to write."""
    chat_problems: int = Field(120, gt=0)
    """AM-Thinking-v1: number of greetings to write."""
    held_out_problems: int = Field(32, gt=0)
    """AM-Thinking-v1: number of problems of each kind that on-policy training never sees."""
    changes: list[Changes] = Field([3, 4, 5], min_length=1)
    """Possible numbers of changes (gains and losses) in a problem of the SFT data."""
    hard_changes: list[Changes] = Field([4, 5], min_length=1)
    """Possible numbers of changes in a problem of the benchmark or of the RL data."""
    hasty: float = Field(0.32, ge=0, le=1)
    """Probability that an SFT response stops after the third change if there are more changes."""
    worked_problems: int = Field(0, ge=0)
    """Most other problems that an SFT response works through first, which makes it long."""
    planted: int = Field(10, ge=0)
    """Number of special cases of each type in the data, which the stages must find.

    planted.json lists the types. Three types have other numbers: problems solved 20 times and
    problems solved 32 times (half of this number each), and problems with short chains of thought
    (three times this number). The number of malformed rows is fixed.
    """
    vocab_size: int = Field(512, gt=300)
    """Tokens of the tiny tokenizer."""
    hidden_size: int = Field(128, gt=0, multiple_of=32)
    """Hidden size of the tiny model."""
    layers: int = Field(2, gt=0)
    """Layers of the tiny model."""


def synthetic(
    config: SyntheticConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Generate all synthetic sources from the seed.

    Raises:
        StageError: There are too few problems for the special cases.
    """
    from pcl_reasoner.synthetic import am_thinking, base_model

    if config.data == "am_thinking":
        _check_sizes(config, am_thinking.least_sizes(config.planted))
        return am_thinking.write_sources(config, output, context)
    _check_sizes(config, {"benchmark_problems": 3 * config.planted})
    rng = random.Random(config.seed)
    taken: set[str] = set()
    benchmark = task.make_problems(rng, config.benchmark_problems, config.hard_changes, taken)
    sft = task.make_problems(rng, config.sft_problems, config.changes, taken)
    rows, planted = nemotron_rows(config, rng, benchmark, taken)
    lines, planted_lines = conversation_lines(config, rng, sft, benchmark)
    _write_benchmark(output / "benchmark.jsonl", benchmark)
    _write_parquet(output / "nemotron", rows)
    (output / "conversations").mkdir()
    (output / "conversations" / "math.jsonl").write_bytes(b"".join(lines))
    context.progress.update(1, 2, "steps", "tokenizer and base model")
    texts = [text for item in sft for text in (item.problem, item.response())]
    size = (config.vocab_size, config.hidden_size, config.layers)
    base_model.write_model_folder(output / "base_model", texts, *size, config.seed)
    summary = {"nemotron": planted, "conversations": planted_lines}
    (output / "planted.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    sizes = {"nemotron": len(rows), "conversations": len(lines), "benchmark": len(benchmark)}
    total = sum(sizes.values())
    return Counts(unit="rows", read=total, kept=total, info=sizes)


def _check_sizes(config: SyntheticConfig, least: Mapping[str, int]) -> None:
    """Refuse fewer problems than the special cases are made of.

    Raises:
        StageError: A number is too small.
    """
    found = {name: getattr(config, name) for name in least}
    few = [
        f"{name} is {found[name]}, expected at least {number}"
        for name, number in least.items()
        if found[name] < number
    ]
    if few:
        raise StageError(f"{'; '.join(few)}. Raise it, or lower planted ({config.planted}).")


def nemotron_row(problem: str, cot: str, answer: str | None) -> dict[str, Any]:
    """Return one row in the schema of the Nemotron data set."""
    return {
        "uuid": "",
        "messages": [{"role": "user", "content": problem}, {"role": "assistant", "content": cot}],
        "metadata": json.dumps({"expected_answer": answer, "problem_source": "synthetic"}),
        "category": "math",
    }


def nemotron_rows(
    config: SyntheticConfig, rng: random.Random, benchmark: list[task.Problem], taken: set[str]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return all Nemotron-like rows in random order, and the number of special cases by type."""
    rows: list[dict[str, Any]] = []
    planted: dict[str, int] = {}

    def add(
        kind: str,
        problems: list[task.Problem],
        counts: Iterable[int],
        template: str = "{0.problem}",
        remarks: tuple[str, ...] = REMARKS,
    ) -> None:
        before = len(rows)
        for item, count in zip(problems, counts, strict=False):
            for _ in range(count):
                response = item.response(remark=rng.choice(remarks))
                rows.append(nemotron_row(template.format(item), response, item.answer))
        planted[f"{kind}_problems"] = len(problems)
        planted[f"{kind}_rows"] = len(rows) - before

    def draw(count: int, changes: Sequence[int] = config.hard_changes) -> list[task.Problem]:
        return task.make_problems(rng, count, changes, taken)

    n = config.planted
    solved = [min(15, 1 + int(rng.expovariate(0.4))) for _ in range(config.rl_problems)]
    add("partial", draw(config.rl_problems), solved)
    add("solved_16_times", draw(n), repeat(16))
    add("solved_32_times", draw(n // 2), repeat(32))
    add("solved_20_times", draw(n // 2), repeat(20))
    add("short_cot", draw(3 * n, [2]), repeat(3), remarks=("",))
    copied = rng.sample(benchmark, 3 * n)
    add("copied", copied[:n], repeat(2))
    add("wrapped", copied[n : 2 * n], repeat(1), template=WRAPPER)
    add("paraphrased", copied[2 * n :], repeat(1), template="{0.paraphrase}")
    _add_blank(rows, planted, draw(n))
    _add_malformed(rows, planted, draw(4))
    rng.shuffle(rows)
    for index, row in enumerate(rows):
        row["uuid"] = f"{config.seed:04d}-{index:08d}"
    return rows, planted


def _add_blank(
    rows: list[dict[str, Any]], planted: dict[str, int], problems: list[task.Problem]
) -> None:
    """Add rows with a blank or null ground truth; half of the problems also have a valid row."""
    blanks: list[str | None] = ["", "  ", None]
    for index, item in enumerate(problems):
        rows.append(nemotron_row(item.problem, item.response(), blanks[index % 3]))
        if index % 2:
            rows.append(nemotron_row(item.problem, item.response(), item.answer))
    planted["blank_ground_truth_rows"] = len(problems)
    planted["blank_ground_truth_only_problems"] = (len(problems) + 1) // 2


def _add_malformed(
    rows: list[dict[str, Any]], planted: dict[str, int], problems: list[task.Problem]
) -> None:
    """Add rows that convert must quarantine, two of each type."""
    malformed = [nemotron_row(item.problem, item.response(), item.answer) for item in problems]
    malformed[0]["metadata"] = '{"expected_answer": "4"'
    malformed[1]["metadata"] = '{"problem_source": "synthetic"}'
    malformed[2]["messages"] = malformed[2]["messages"][:1]
    malformed[3]["messages"][0]["content"] = "   "
    rows += [dict(row) for row in [*malformed, *malformed]]
    planted["malformed_rows"] = 2 * len(malformed)


def conversation_line(item: task.Problem, hasty: bool = False, remark: str = "") -> bytes:
    """Return one line in V1's format; ``remark``: see `task.Problem.response`."""
    turns = [
        {"from": "human", "value": item.problem},
        {"from": "assistant", "value": item.response(hasty, remark)},
    ]
    return json.dumps({"conversations": turns}).encode() + b"\n"


def conversation_lines(
    config: SyntheticConfig,
    rng: random.Random,
    problems: list[task.Problem],
    benchmark: list[task.Problem],
) -> tuple[list[bytes], dict[str, int]]:
    """Return all V1-like lines in random order, and the number of special cases of each type.

    The responses are those of a teacher that sometimes stops too early (``config.hasty``).
    """
    hasty = [len(p.changes) > task.HASTY_STOP and rng.random() < config.hasty for p in problems]
    remarks = worked_problems(rng, problems, config.worked_problems)
    lines = [
        conversation_line(p, stops, remark)
        for p, stops, remark in zip(problems, hasty, remarks, strict=True)
    ]
    copied = rng.sample(benchmark, config.planted)
    lines += [conversation_line(item) for item in copied]
    lines += MALFORMED_LINES
    rng.shuffle(lines)
    planted = {
        "copied_rows": len(copied),
        "malformed_rows": len(MALFORMED_LINES),
        "hasty_rows": sum(hasty),
    }
    return lines, planted


def worked_problems(
    rng: random.Random, problems: Sequence[task.Problem], most: int
) -> Iterator[str]:
    """Yield, for each problem, 0 to ``most`` other problems with their calculations, as text."""
    for _ in problems:
        count = rng.randint(0, most) if most else 0
        others = rng.choices(problems, k=count) if count else []
        yield "".join(f"{other.problem}{other.thought()}\n" for other in others)


def _write_benchmark(path: Path, problems: list[task.Problem]) -> None:
    with path.open("w", encoding="utf-8") as handle:
        for index, item in enumerate(problems):
            # The id seeds a problem's random streams: another id would give other responses.
            name = f"embedded-{index:04d}"
            record = {"id": name, "problem": item.problem, "answer": item.answer}
            handle.write(json.dumps(record) + "\n")


def _write_parquet(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows into FILES files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    turns = pa.list_(pa.struct({"role": text, "content": text}))
    schema = pa.schema({"uuid": text, "messages": turns, "metadata": text, "category": text})
    folder.mkdir()
    size = -(-len(rows) // FILES)
    for index in range(FILES):
        part = rows[index * size : (index + 1) * size]
        table = pa.Table.from_pylist(part, schema=schema)
        pq.write_table(table, folder / f"part-{index:05d}.parquet", compression="zstd")
