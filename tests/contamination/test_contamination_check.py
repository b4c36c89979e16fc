"""The decisions: what is caught, by which rule, and what other thresholds would have caught."""

import json
import os
import re
from pathlib import Path

import pytest

from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.findings import near_misses, sweep
from pcl_reasoner.contamination.fingerprints import Question, halves_of
from pcl_reasoner.core.errors import StageError

REPOSITORY = Path(__file__).parents[2]
WALK = (
    "Every morning Ada walks 9 kilometers at a constant speed and stops at a bakery on her way. "
    "At 4 kilometers per hour the walk takes her 3 hours, the stop included. How many minutes "
    "does she spend in the bakery?"
)
GRID = (
    "A token starts in the lower left corner of a grid with 6 rows and 8 columns and moves only "
    "right or up. In how many ways can it reach the upper right corner with exactly 4 turns?"
)
PRIMES = "Let $p$ be the least prime such that $n^4+1$ is divisible by $p^2$ for an integer $n$."
UNRELATED = "The angles of a triangle are in arithmetic progression. Find the middle angle."
QUESTIONS = [Question("ours", "walk", WALK), Question("ours", "grid", GRID)]


def in_chat(question: str) -> str:
    return (
        "<|im_start|>system\nYou are a helpful assistant. To answer the user's question, you "
        "first think about the reasoning process and then provide the user with the answer. The "
        "reasoning goes into <think> </think> and the answer into <answer> </answer>.<|im_end|>\n"
        f"<|im_start|>user\n{question}\nPlease reason step by step, and put your final answer "
        "within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"
    )


def rules(rows: list[str], **settings: object) -> list[str | None]:
    found = check(rows, QUESTIONS, ContaminationConfig(**settings))
    return [found.matches[text].rule for text in found.text_of_row]


def test_a_copy_in_a_chat_wrapper_is_caught_where_upstream_misses_it() -> None:
    rows = [in_chat(WALK), in_chat(GRID), UNRELATED]
    alone = {"threshold": 0.9, "signature": False}
    assert rules(rows, **alone, ngrams=False) == ["embedding", "embedding", None]
    assert rules(rows, **alone) == ["embedding+ngrams", "embedding+ngrams", None]
    every = "embedding+ngrams+likeness"
    assert rules(rows, threshold=0.9) == [every, every, None]
    assert rules(rows, threshold=0.9, method="upstream") == [None, None, None]


def test_a_question_with_another_number_is_caught_by_ngrams() -> None:
    changed = WALK.replace("9", "11")
    assert rules([changed, PRIMES], embedding=False) == ["ngrams", None]
    found = check([changed], QUESTIONS, ContaminationConfig(embedding=False))
    assert found.matches[0].containment == 1.0
    assert found.matches[0].cosine is None
    assert found.embedder is None


def test_a_question_after_a_long_preamble_is_caught_without_a_cosine() -> None:
    text = "The committee met and talked about the many sponsors of its contest. " * 30 + GRID
    found = check([text], QUESTIONS, ContaminationConfig(threshold=0.95))
    match = found.matches[0]
    assert (match.rule, match.question, match.containment) == ("ngrams+likeness", 1, 1.0)
    assert match.window is not None and match.window > 0


def test_the_threshold_that_is_set_is_the_one_used() -> None:
    # Defect 1. The paraphrase's cosine decides where the two settings have to differ.
    paraphrase = "In the morning Ada goes for a 9 km walk and has a stop in a bakery. " + UNRELATED
    only = {"ngrams": False, "signature": False}
    cosine = check([paraphrase], QUESTIONS, ContaminationConfig(**only)).matches[0].cosine
    assert cosine is not None and 0.3 < cosine < 0.9
    for threshold, expected in ((cosine, "embedding"), (round(cosine + 1e-4, 4), None)):
        assert rules([paraphrase], **only, threshold=threshold) == [expected]


def test_the_sweep_is_monotone_and_has_the_hits_at_the_threshold() -> None:
    rows = [WALK, WALK, in_chat(GRID), WALK.replace("Ada", "a man")[:120], PRIMES, UNRELATED]
    rows.append("The committee met and talked about its sponsors. " * 60 + GRID)
    config = ContaminationConfig(threshold=0.83, containment=0.5, signature=False)
    found = check(rows, QUESTIONS, config)
    table = sweep(found, config)
    steps = [f"{0.5 + 0.05 * step:.2f}" for step in range(10)]
    assert list(table) == [*steps[:7], "0.83", *steps[7:]]
    for kind in ("embedding", "with_ngrams"):
        counts = [table[threshold][kind] for threshold in table]
        assert counts == sorted(counts, reverse=True)
    flagged = [found.matches[text].rule for text in found.text_of_row]
    assert table["0.83"]["with_ngrams"] == sum(rule is not None for rule in flagged)
    assert table["0.83"]["embedding"] == sum(
        rule in ("embedding", "embedding+ngrams") for rule in flagged
    )
    assert table["0.95"] == {"embedding": 3, "with_ngrams": 4, "all_rules": 4}
    cosines = sorted(found.matches[text].cosine or 0 for text in found.text_of_row)
    assert 0.55 <= cosines[3] < 0.95  # a row that some thresholds flag and others do not
    for threshold, row in table.items():
        assert row["embedding"] == sum(cosine >= float(threshold) for cosine in cosines)
    assert [found.clean(row) for row in range(7)] == [rule is None for rule in flagged]


def test_the_containment_that_is_set_is_the_one_used() -> None:
    # Two of the four 4-grams of "ben has # books and loses #": 0.5, which is "at least 0.5".
    question = [Question("ours", "ben", "Ben has 12 books and loses 3")]
    for containment, expected in ((0.5, 1), (0.51, 0)):
        config = ContaminationConfig(embedding=False, ngram_size=4, containment=containment)
        found = check(["Here Ben has 7 books and sells 2"], question, config)
        assert sum(match.rule == "ngrams" for match in found.matches) == expected
        flagged = {"embedding": 0, "with_ngrams": expected, "all_rules": expected}
        assert sweep(found, config)["0.70"] == flagged


def test_near_misses_are_the_closest_that_were_kept() -> None:
    rows = [UNRELATED, WALK, PRIMES, "Ada walks in the morning and stops at a bakery."]
    found = check(rows, QUESTIONS, ContaminationConfig())
    closest = near_misses(found.matches, 2)
    assert closest[0] == 3
    assert 1 not in closest
    first, second = (found.matches[index].log_odds for index in closest)
    assert first is not None and second is not None and second < first < 0


def test_of_near_duplicates_the_first_stays_with_the_pairs_score() -> None:
    # Defect 3: upstream drops both members and prints the score of a text with itself.
    copy = PRIMES.replace("Let", "Now let")
    rows = [PRIMES, UNRELATED, copy, PRIMES, WALK]
    found = check(rows, QUESTIONS, ContaminationConfig(near_duplicates=0.9))
    assert [found.clean(row) for row in range(5)] == [True, True, False, True, False]
    ((text, duplicate),) = found.duplicates.items()
    assert (found.texts[text], found.texts[duplicate.kept]) == (copy, PRIMES)
    assert 0.9 <= duplicate.cosine < 1.0


def test_a_window_beyond_what_the_model_reads_is_refused() -> None:
    with pytest.raises(StageError, match="window_tokens is 512, but .* reads 256"):
        check([WALK], QUESTIONS, ContaminationConfig(window_tokens=512))


ROOTS = [
    Question(
        "ours",
        "roots",
        "Find the smallest prime p for which x² = 41 (mod p) has a "
        "root and p divides 3^2020 − 777.",
    )
]
TRANSLATED = "求最小的素数 p，使得 x² ≡ 41 (mod p) 有解，且 p 整除 3^2020 − 777。"
SAME_TOPIC = "Find the smallest prime p for which x² = 5 (mod p) has a root and p divides 2^64 − 9."


def test_a_translation_is_found_by_its_numbers_and_formulas() -> None:
    (match,) = check([TRANSLATED], ROOTS, ContaminationConfig()).matches
    assert (match.rule, match.by_likeness) == ("likeness", True)
    assert match.cosine is not None and match.cosine < 0.7 and (match.log_odds or 0) > 2
    without = check([TRANSLATED], ROOTS, ContaminationConfig(signature=False))
    assert [match.rule for match in without.matches] == [None]
    # Its log-odds are compared with the limit that is set.
    for limit, rule in ((match.log_odds, "likeness"), ((match.log_odds or 0) + 1e-4, None)):
        (found,) = check([TRANSLATED], ROOTS, ContaminationConfig(log_odds=limit)).matches
        assert found.rule == rule


def test_numbers_alone_are_no_question() -> None:
    story = "The rooms 41 and 777 are closed on Mondays; please use another door."
    (match,) = check([story], ROOTS, ContaminationConfig()).matches
    assert match.rule is None and (match.log_odds or 0) < -1


SOLUTION = (
    "The squares modulo p repeat: 41 is a square modulo p = 5, 23 and 31, but p must divide the "
    "power 3^2020 − 777. Trying these primes from the smallest one, the smallest prime p is 2741."
)


def test_the_answer_speaks_for_a_solution() -> None:
    def log_odds(answer: str | None) -> float:
        question = Question("ours", "roots", ROOTS[0].text, None, answer)
        (match,) = check([SOLUTION], [question], ContaminationConfig()).matches
        assert match.log_odds is not None
        return match.log_odds

    assert log_odds("2741") > log_odds("2749") + 0.5
    assert log_odds("2749") == log_odds(None)


def test_other_numbers_speak_against_a_cosine() -> None:
    settings = {"ngrams": False, "threshold": 0.5}
    (match,) = check([SAME_TOPIC], ROOTS, ContaminationConfig(**settings)).matches
    assert match.rule is None and (match.log_odds or 0) < -1
    for changed in ({"support": -30.0}, {"signature": False}):
        config = ContaminationConfig(**{**settings, **changed})
        (found,) = check([SAME_TOPIC], ROOTS, config).matches
        assert found.rule == "embedding" and (found.cosine or 0) > 0.7


def test_a_question_without_numbers_is_supported_by_its_concepts() -> None:
    asked = "Each vertex of a regular octagon is coloured red or blue. What is the probability?"
    same = "We paint the vertices of a regular octagon red or blue. Find the probability."
    other = "The chance of rain on a day without a cloud. What is the probability?"
    question = [Question("ours", "octagon", asked)]
    limits = {"threshold": 0.2, "support": 9.0, "log_odds": 9.0}
    found = check([same, other], question, ContaminationConfig(ngrams=False, **limits))
    assert [match.rule for match in found.matches] == ["embedding", None]


def test_problems_of_the_questions_generator_are_no_copies() -> None:
    """Numbers and concepts that all questions have say nothing about one of them."""
    texts = [
        f"The bag of Tom has {a} bells. Monday breaks {b}, Tuesday finds {c}. How many in the end?"
        for a in range(2, 8)
        for b in range(2, 8)
        for c in range(2, 8)
    ]
    questions = [Question("ours", str(i), text) for i, text in enumerate(texts[::2])]
    others = [text.replace("Tom", "Ada").replace("bells", "pens") for text in texts[1::2]]
    config = ContaminationConfig(embedding=False, ngrams=False)
    found = check(others, questions, config)
    assert [match.rule for match in found.matches] == [None] * len(others)


def test_half_a_question_needs_no_support() -> None:
    """It has half of the numbers, and the cosine with the half is 1."""
    half, _ = halves_of(ROOTS[0].text)
    (match,) = check([half], ROOTS, ContaminationConfig(support=1.0)).matches
    assert (match.log_odds or 0) < 0 and (match.cosine or 0) > 0.99
    assert match.rule is not None and match.rule.startswith("embedding")


def test_a_text_that_cannot_be_flagged_is_not_embedded() -> None:
    far = "How many years had Ann and Ben lived in 1987?"
    found = check([far, WALK], QUESTIONS, ContaminationConfig())
    assert [match.cosine is None for match in found.matches] == [True, False]
    # Near-duplicates are found by the vectors of all texts.
    for settings in ({"near_duplicates": 0.9}, {"signature": False}):
        found = check([far, WALK], QUESTIONS, ContaminationConfig(**settings))
        assert all(match.cosine is not None for match in found.matches)


@pytest.mark.parametrize(
    "settings",
    [
        {"embedding": False, "ngrams": False, "signature": False},
        {"embedding": False, "method": "upstream"},
    ],
)
def test_comparing_nothing_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="nothing would be compared"):
        ContaminationConfig(**settings)


def shared_questions() -> list[Question]:
    folder = Path(os.environ.get("PCLR_SHARED", REPOSITORY.parent / "shared"))
    path = folder / "data" / "aime_2024_2025.jsonl"
    if not path.is_file():
        pytest.skip(f"the AIME questions are not here: {path.name} (set PCLR_SHARED)")
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Question("aime", record["id"], record["problem"]) for record in records]


def test_real_questions_are_caught_and_other_years_are_not() -> None:
    questions = shared_questions()
    first, second = questions[:30:3], questions[30::3]
    rows = [in_chat(question.text) for question in first]
    rows += [re.sub(r"\d+", lambda n: str(int(n[0]) + 3), question.text) for question in first]
    config = ContaminationConfig(threshold=0.9)
    found = check(rows, first, config)
    assert [found.matches[text].question for text in found.text_of_row] == [*range(10)] * 2
    assert all(match.rule is not None for match in found.matches)
    others = check([question.text for question in second], first, ContaminationConfig())
    assert all(match.rule is None for match in others.matches)
