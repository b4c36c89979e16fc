"""The sources of AM-Thinking-v1's recipe on a laptop: queries of four kinds, a teacher, an opinion.

math/math.parquet          data_source, prompt, ability, reward_model       format am_rl
code/code.parquet          problem, tests, solutions                        format deepcoder
instruction/ifeval.jsonl   key, prompt, instruction_id_list, kwargs         format ifeval
chat/chat.jsonl            messages                                         format chat
truths/responses/…         the teacher's answers to the math problems, several each
teacher/responses/…        the teacher's responses to train on
opinions.jsonl             {"problem_id": "9f0c…", "answer": "6"}: the third model's answers
benchmark_math.jsonl, benchmark_code.jsonl
held_out.jsonl             {"id": "chat-0003", "problem": …, "kind": "chat", …}: all kinds, in turn
base_model/, scorer/       the policy with random weights; the model that measures perplexity
reward_model/              counts courteous words (reward_model.py)
planted.json               how many cases each stage must find, by reason
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate import problem_id
from pcl_reasoner.synthetic import reward_model, task
from pcl_reasoner.synthetic.bigrams import write_scorer
from pcl_reasoner.synthetic.kinds import FENCE, TESTED, Task, make_tasks

TRUTHS = 5
"""The teacher's answers to each math problem."""
REVISABLE, UPHELD, DISPUTED = 8, 2, 2
"""Math problems with a wrong ground truth: the opinion agrees with the teacher, with the ground
truth, or with neither."""
MISFITS: dict[str, Callable[[str], str]] = {
    "url": lambda text: f"{text} See https://example.org/story.",
    "image": lambda text: f"{text} The goods are shown in the figure below.",
    "table": lambda text: f"{text}\n\n| day | goods |\n|---|---|\n| Monday | three |",
    "non_letters": lambda text: f"{text} {'■◆●▲★☎✂✈☂☃' * 12}",
}
"""Reason of convert -> what makes a query that it drops."""


@dataclass
class Sources:
    """What is drawn from one seed.

    Args:
        rng: Source of randomness.
        counts: The configuration: how many of what.
        planted: Reason -> number of cases, by stage.
        texts: All texts, for the tokenizer.
    """

    rng: random.Random
    counts: Any
    planted: dict[str, dict[str, int]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def plant(self, stage: str, reason: str, number: int) -> None:
        """Note how many cases a stage must find."""
        self.planted.setdefault(stage, {})[reason] = number


def least_sizes(planted: int) -> dict[str, int]:
    """Return the fewest problems that suffice for the special cases, by key.

    Args:
        planted: Number of special cases of each type.
    """
    wrong = REVISABLE + UPHELD + DISPUTED
    return {
        "benchmark_problems": max(planted, 2),
        "math_problems": max(3 * planted, planted + wrong),
        "code_problems": 3 * _planted_programs(planted),
    }


def _planted_programs(planted: int) -> int:
    return max(planted // 2, 1)


def write_sources(config: StageConfig, output: Path, context: StageContext) -> Counts:
    """Write all sources."""
    found = Sources(random.Random(config.seed), config)  # type: ignore[attr-defined]
    counts, taken = found.counts, set[str]()
    draw = found.rng
    benchmark = task.make_problems(draw, counts.benchmark_problems, counts.hard_changes, taken)
    stories = task.make_problems(draw, counts.math_problems, counts.changes, taken)
    coded = make_tasks(draw, "code", counts.benchmark_problems // 2, [2, 3, 4], taken)
    programs = make_tasks(draw, "code", counts.code_problems, [2, 3, 4], taken)
    lists = make_tasks(draw, "instruction", counts.instruction_problems, [2, 3, 4], taken)
    greetings = make_tasks(draw, "chat", counts.chat_problems, [0], taken)
    held_out = _held_out(found, taken)
    truths = _wrong_truths(found, stories)
    _write_math(found, output / "math", stories, truths, benchmark)
    _write_code(found, output / "code", programs)
    _write_lines(output / "instruction" / "ifeval.jsonl", map(_ifeval, range(10**6), lists))
    _write_lines(output / "chat" / "chat.jsonl", map(_chat, greetings))
    _write_truths(found, output, stories, truths)
    _write_teacher(found, output / "teacher", stories, [*programs, *lists, *greetings])
    _write_lines(output / "benchmark_math.jsonl", map(_question, range(10**6), benchmark))
    _write_lines(output / "benchmark_code.jsonl", map(_code_question, range(10**6), coded))
    _write_lines(output / "held_out.jsonl", held_out)
    context.progress.update(1, 2, "steps", "tokenizer and models")
    _write_models(found, output)
    text = json.dumps(found.planted, indent=1) + "\n"
    (output / "planted.json").write_text(text, encoding="utf-8")
    sizes = {"math": len(stories), "code": len(programs)}
    sizes |= {"instruction": len(lists), "chat": len(greetings)}
    total = sum(sizes.values())
    return Counts(unit="problems", read=total, kept=total, info=sizes)


def _held_out(found: Sources, taken: set[str]) -> list[dict[str, Any]]:
    """Draw the problems that training never sees: as many of each kind, the kinds in turn."""
    counts, number = found.counts, found.counts.held_out_problems
    # A stream of its own: the number of these problems changes nothing else.
    draw = random.Random(f"{counts.seed}/held out")
    stories = task.make_problems(draw, number, counts.hard_changes, taken)
    by_kind: dict[str, list[dict[str, Any]]] = {
        "math": [{"problem": one.problem, "answer": one.answer} for one in stories]
    }
    for kind, sizes in (("code", [2, 3, 4]), ("instruction", [2, 3, 4]), ("chat", [0])):
        tasks = make_tasks(draw, kind, number, sizes, taken)  # type: ignore[arg-type]
        by_kind[kind] = [{"problem": one.problem, "checks": _checks(one)} for one in tasks]
    return [
        {"id": f"held-out-{kind}-{place:04d}", "kind": kind, **by_kind[kind][place]}
        for place in range(number)
        for kind in by_kind
    ]


def _checks(one: Task) -> dict[str, Any]:
    """Return what verifies a response, as ``convert`` writes it."""
    if one.kind == "code":
        pairs = zip(TESTED, one.checks["outputs"], strict=True)
        cases = [{"args": [x], "out": value} for x, value in pairs]
        return {
            "tests": {"language": "python", "format": "functional", "entry": "f", "cases": cases}
        }
    if one.kind == "instruction":
        names = zip(one.checks["instruction_id_list"], one.checks["kwargs"], strict=True)
        return {"instructions": [{"id": name, "kwargs": kwargs} for name, kwargs in names]}
    return {}


def _wrong_truths(found: Sources, stories: Sequence[task.Problem]) -> dict[str, tuple[str, str]]:
    """Return problem -> (wrong ground truth, the opinion's answer) of some math problems."""
    chosen = found.rng.sample(list(stories), REVISABLE + UPHELD + DISPUTED)
    truths = {}
    for place, one in enumerate(chosen):
        wrong, third = _others(one.answer)
        if place < REVISABLE:
            opinion = one.answer
        else:
            opinion = wrong if place < REVISABLE + UPHELD else third
        truths[one.problem] = (wrong, opinion)
    found.plant("revise", "revised", REVISABLE)
    found.plant("revise", "kept_upheld", UPHELD)
    found.plant("revise", "kept_disputed", DISPUTED)
    return truths


def _others(answer: str) -> tuple[str, str]:
    """Return two numbers that are not the answer."""
    number = int(answer)
    return str(number + 20), str(number + 30)


def _write_math(
    found: Sources,
    folder: Path,
    stories: Sequence[task.Problem],
    truths: dict[str, tuple[str, str]],
    benchmark: Sequence[task.Problem],
) -> None:
    planted = found.counts.planted
    rows = [(one.problem, truths.get(one.problem, (one.answer, ""))[0]) for one in stories]
    for reason, spoil in MISFITS.items():
        rows += [(spoil(one.problem), one.answer) for one in found.rng.sample(stories, planted)]
        found.plant("convert_math", reason, planted)
    # Of a problem with a wrong ground truth, the repeated row would bring the correct one.
    correct = [one for one in stories if one.problem not in truths]
    rows += [(one.problem, one.answer) for one in found.rng.sample(correct, planted)]
    found.plant("unique_math", "repeated_problem", planted)
    rows += [(one.problem, one.answer) for one in found.rng.sample(list(benchmark), planted)]
    found.plant("contamination", "contaminated", planted)
    found.rng.shuffle(rows)
    _write_parquet(folder / "math.parquet", [_am_row(*row) for row in rows])


def _am_row(problem: str, answer: str) -> dict[str, Any]:
    return {
        "data_source": "synthetic",
        "prompt": [{"role": "user", "content": problem}],
        "ability": "math",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"split": "train"},
    }


def _write_code(found: Sources, folder: Path, programs: Sequence[Task]) -> None:
    """Write the programs' queries; some have wrong tests, none, or fewer outputs than inputs."""
    planted = _planted_programs(found.counts.planted)
    rows = []
    for place, one in enumerate(programs):
        tests = dict(one.checks)
        if place < planted:
            tests["outputs"] = [value + 1 for value in tests["outputs"]]
        elif place < 2 * planted:
            tests["outputs"] = tests["outputs"][:-1]
        elif place < 3 * planted:
            tests = {}
        rows.append(
            {
                "problem": one.problem,
                "tests": json.dumps(tests),
                "solutions": [f"{FENCE}python\n{one.solution}\n{FENCE}"],
            }
        )
    found.plant("check_tests", "bad_tests", planted)
    found.plant("convert_code", "malformed_tests", planted)
    found.plant("convert_code", "no_tests", planted)
    found.rng.shuffle(rows)
    _write_parquet(folder / "code.parquet", rows)


def _ifeval(number: int, one: Task) -> dict[str, Any]:
    return {"key": number, "prompt": one.problem, **one.checks}


def _chat(one: Task) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": one.problem}]}


def _question(number: int, one: task.Problem) -> dict[str, Any]:
    return {"id": f"math-{number:04d}", "problem": one.problem, "answer": one.answer}


def _code_question(number: int, one: Task) -> dict[str, Any]:
    """Return a question in LiveCodeBench's form; its private tests are not packed."""
    outputs = one.checks["outputs"]
    cases = [
        {"input": str(x), "output": str(value), "testtype": "functional"}
        for x, value in zip(TESTED, outputs, strict=True)
    ]
    return {
        "question_id": f"code-{number:04d}",
        "question_content": one.problem,
        "starter_code": "",
        "platform": "synthetic",
        "contest_date": "2025-01-04T00:00:00",
        "difficulty": "easy",
        "public_test_cases": json.dumps(cases[:2]),
        "private_test_cases": json.dumps(cases[2:]),
        "metadata": json.dumps({"func_name": "f"}),
    }


def _write_truths(
    found: Sources,
    output: Path,
    stories: Sequence[task.Problem],
    truths: dict[str, tuple[str, str]],
) -> None:
    """Write the teacher's answers: correct, but for one hasty one in five; and the opinions."""
    rows = []
    for one in stories:
        hasty = found.rng.randrange(TRUTHS)
        for index in range(TRUTHS):
            rows.append(_response(one.problem, index, one.response(index == hasty)))
    _write_responses(output / "truths", rows)
    lines = (
        {"problem_id": problem_id(problem), "answer": opinion}
        for problem, (_, opinion) in truths.items()
    )
    _write_lines(output / "opinions.jsonl", lines)


def _write_teacher(
    found: Sources, folder: Path, stories: Sequence[task.Problem], tasks: Sequence[Task]
) -> None:
    """Write one response to each query, with the teacher's habits; some must be dropped."""
    rows = []
    rate = found.counts.hasty
    for one in stories:
        hasty = len(one.changes) > task.HASTY_STOP and found.rng.random() < rate
        rows.append((one.problem, one.response(hasty)))
    for each in tasks:
        careless = found.rng.random() < rate
        rows.append((each.problem, each.careless if careless else each.right))
    found.texts += [text for row in rows for text in row]
    spoiled = found.rng.sample(range(len(stories)), 3 * found.counts.planted)
    written = []
    for place, (problem, response) in enumerate(rows):
        reason = "stop"
        if place in spoiled:
            response, reason = _spoil(spoiled.index(place) % 3, response, found.rng)
        written.append(_response(problem, 0, response, reason))
    for dropped in ("repeated_phrase", "incomplete_structure", "high_perplexity"):
        found.plant("tidy", dropped, found.counts.planted)
    _write_responses(folder, written)


def _spoil(how: int, response: str, rng: random.Random) -> tuple[str, str]:
    """Return a response that ``tidy`` must drop, and its finish reason."""
    before, close, after = response.partition("</think>")
    if how == 0:
        phrase = " Monday loses three 9-3=6 Tuesday sells two 6-2=4 Wednesday buys four 4+4=8"
        return f"{before}{phrase * 5}{close}{after}", "stop"
    if how == 1:
        return before, "length"
    words = before.removeprefix("<think>").split()
    rng.shuffle(words)
    letters = [word[::-1] for word in words]
    return f"<think> {' '.join(letters)}{close}{after}", "stop"


def _response(problem: str, index: int, text: str, reason: str = "stop") -> dict[str, Any]:
    return {
        "problem_id": problem_id(problem),
        "sample_index": index,
        "response": text,
        "token_ids": [],
        "finish_reason": reason,
        "n_tokens": 0,
        "seed": 0,
        "seconds": 0.0,
        "server": "recorded",
    }


def _write_models(found: Sources, output: Path) -> None:
    from pcl_reasoner.synthetic import base_model

    counts = found.counts
    size = (counts.vocab_size, counts.hidden_size, counts.layers)
    base_model.write_model_folder(
        output / "base_model", found.texts, *size, counts.seed, copies=counts.layers > 1
    )
    write_scorer(output / "scorer", output / "base_model", found.texts)
    reward_model.write_reward_model(output / "reward_model", found.texts)


def _write_lines(file: Path, records: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as handle:
        for record in records:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")


def _write_parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd")


def _write_responses(folder: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import RESPONSES

    (folder / "responses").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=RESPONSES)
    pq.write_table(table, folder / "responses" / "part-00000.parquet", compression="zstd")
