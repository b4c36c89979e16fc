"""What the contamination check catches: each AIME question in fifteen disguises made by rules.

    python benchmarks/contamination_quality.py QUESTIONS.jsonl [--others PROBLEMS.jsonl]

QUESTIONS has {"id", "problem"} a line (the 60 of AIME 2024 and 2025, which are not shipped).
Recall is the share of disguised questions that are caught, by this project's method and by V1's,
at thresholds 0.7 and 0.9. Precision: questions against all others of the benchmark, and, with
--others, contest problems that are none of them: the rate that is flagged, and the closest.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pcl_reasoner.contamination import check as check_module
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question, halves_of
from pcl_reasoner.contamination.reading import question_of
from pcl_reasoner.embedding import embed

# One model and one cache for some hundreds of small checks.
vars(check_module)["load_embedder"] = functools.cache(embed.load_embedder)
CACHE = tempfile.TemporaryDirectory()

METHODS: dict[str, dict[str, object]] = {
    "ours 0.7": {"threshold": 0.7},
    "ours 0.9": {"threshold": 0.9},
    "V1 0.7": {"method": "upstream", "threshold": 0.7},
    "V1 0.9": {"method": "upstream", "threshold": 0.9},
}
SYSTEM = (
    "You are a helpful assistant. To answer the user's question, you first think about the "
    "reasoning process and then provide the user with the answer. The reasoning process and "
    "answer are enclosed within <think> </think> and <answer> </answer> tags."
)
SUFFIX = "\nPlease reason step by step, and put your final answer within \\boxed{}."
WORDS = (
    *("committee", "sponsor", "city", "river", "report", "season", "garden", "history", "teacher"),
    *("window", "market", "letter", "evening", "winter", "journey", "music", "village", "story"),
    *("harbour", "weather", "paper", "doctor", "bridge", "kitchen"),
)
SYNONYMS = {
    "find": "determine",
    "number": "count",
    "positive": "strictly positive",
    "such that": "for which",
    "both": "each",
    "each": "every",
    "let": "suppose that",
    "where": "in which",
    "different": "distinct",
    "distinct": "different",
    "ways": "manners",
    "written": "expressed",
    "relatively prime": "coprime",
    "given": "provided",
    "there are": "we have",
    "there exist": "one can find",
    "denote": "stand for",
    "sum": "total",
    "equal": "identical",
    "probability": "chance",
    "points": "dots",
}
STORY = {
    "walk": "hike",
    "coffee shop": "library",
    "lottery": "raffle",
    "residents": "inhabitants",
    "diamond ring": "silver watch",
    "golf clubs": "tennis rackets",
    "garden spade": "kitchen knife",
    "candy hearts": "chocolate coins",
    "ice cream": "soup",
    "baseball": "volleyball",
    "players": "athletes",
    "tokens": "pebbles",
    "game": "contest",
    "morning": "evening",
    "chairs": "benches",
    "people": "guests",
    "grid": "board",
    "chips": "discs",
    "students": "pupils",
    "circle": "ring",
}
NAMES = ("Maya", "Ken", "Olga", "Piet", "Ravi", "Sofia", "Theo", "Uma")
COMMON = {
    "Find",
    "Let",
    "There",
    "The",
    "A",
    "An",
    "Each",
    "Define",
    "In",
    "Suppose",
    "For",
    "Then",
}


def replaced(text: str, table: dict[str, str]) -> str:
    """Replace whole words and phrases, in any case."""
    for old, new in table.items():
        text = re.sub(rf"\b{re.escape(old)}\b", new, text, flags=re.I)
    return text


def respelt(text: str) -> str:
    """The same formulas in other LaTeX."""
    text = re.sub(r"\$([^$]+)\$", r"\\(\1\\)", text)
    text = text.replace("\\frac", "\\dfrac").replace("\\tfrac", "\\frac").replace("\\le ", "\\leq ")
    text = re.sub(r"\^(\w)", r"^{\1}", re.sub(r"_(\w)", r"_{\1}", text))
    return re.sub(r"\s*([=+<>])\s*", r" \1 ", text)


def reordered(text: str) -> str:
    """The last sentence first."""
    sentences = re.split(r"(?<=[.?!])\s+", text)
    return " ".join(sentences[-1:] + sentences[:-1])


def renamed(text: str) -> str:
    """Other names and another story."""
    names = iter(NAMES * 9)
    seen: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        name = found.group(0)
        return name if name in COMMON else seen.setdefault(name, next(names))

    return replaced(re.sub(r"\b[A-Z][a-z]{2,}\b", other, text), STORY)


def renumbered(text: str, rng: random.Random, count: int | None) -> str:
    """Some numbers changed, or all of them."""
    places = list(re.finditer(r"\d+", text))
    chosen = {
        place.start()
        for place in (rng.sample(places, min(count, len(places))) if count else places)
    }

    def other(found: re.Match[str]) -> str:
        number = int(found.group(0))
        return str(number + rng.randint(1, 9)) if found.start() in chosen else found.group(0)

    return re.sub(r"\d+", other, text)


def filler(rng: random.Random, words: int) -> str:
    """Words about other things."""
    return " ".join(rng.choice(WORDS) for _ in range(words)) + ". "


def shuffled(text: str, rng: random.Random) -> str:
    """The same words in another order."""
    words = text.split()
    rng.shuffle(words)
    return " ".join(words)


def disguises(rng: random.Random) -> dict[str, Callable[[str], str]]:
    """Name -> what it makes of a question."""
    return {
        "verbatim": lambda q: q,
        "LaTeX respelt": respelt,
        "prompt wrapper": lambda q: f"Solve the following math problem.\n\n{q}\n\nAnswer:",
        "ChatML wrapper": lambda q: (
            f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{q}{SUFFIX}<|im_end|>\n"
            "<|im_start|>assistant\n"
        ),
        "boxed suffix": lambda q: q + SUFFIX,
        "synonyms": lambda q: replaced(q, SYNONYMS),
        "clauses reordered": reordered,
        "names and story changed": renamed,
        "one number changed": lambda q: renumbered(q, rng, 1),
        "all numbers changed": lambda q: renumbered(q, rng, None),
        "first half only": lambda q: halves_of(q)[0],
        "second half only": lambda q: halves_of(q)[1],
        "after a 300-word preamble": lambda q: filler(rng, 300) + q,
        "before a long solution": lambda q: q + "\nSolution. " + filler(rng, 600),
        "shuffled words": lambda q: shuffled(q, rng),
    }


def caught(
    rows: Sequence[str], questions: Sequence[Question], settings: dict[str, object]
) -> list[tuple[bool, int, float]]:
    """For each row: flagged, the question's index, cosine."""
    found = check_module.check(
        rows, questions, ContaminationConfig(**settings), cache=Path(CACHE.name)
    )
    matches = [found.matches[text] for text in found.text_of_row]
    return [(match.rule is not None, match.question, match.cosine or 0.0) for match in matches]


def recall(questions: list[Question]) -> None:
    """Print what is caught of each disguise, for its own question."""
    print(f"caught of {len(questions)}" + "".join(f"{name:>10}" for name in METHODS))
    for name, disguise in disguises(random.Random(0)).items():
        rows = [disguise(question.text) for question in questions]
        counts = [
            sum(hit[0] for hit in caught(rows, questions, settings))
            for settings in METHODS.values()
        ]
        print(f"{name:28}" + "".join(f"{count:>10}" for count in counts), flush=True)


def precision(questions: list[Question], others: list[str]) -> None:
    """Print what is flagged that should not be."""
    for name, settings in METHODS.items():
        wrong = 0
        for index, question in enumerate(questions):
            rest = questions[:index] + questions[index + 1 :]
            wrong += caught([question.text], rest, settings)[0][0]
        print(f"{name}: {wrong} of {len(questions)} questions flagged for another one", flush=True)
    for name, settings in METHODS.items() if others else ():
        found = caught(others, questions, settings)
        flagged = sorted(((cosine, row) for row, (hit, _, cosine) in enumerate(found) if hit))
        print(f"{name}: {len(flagged)} of {len(others)} other problems flagged")
        for cosine, row in flagged[-3:]:
            print(f"    {cosine:.4f}  {questions[found[row][1]].id}: {others[row][:90]!r}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument(
        "--others", type=Path, help="JSONL with problem or question: none of the questions"
    )
    given = parser.parse_args()
    lines = given.questions.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    questions = [Question("aime", record["id"], record["problem"]) for record in records]
    recall(questions)
    others = given.others.read_text(encoding="utf-8").splitlines() if given.others else []
    precision(questions, [question_of(json.loads(line), None) or "" for line in others])


if __name__ == "__main__":
    main()
