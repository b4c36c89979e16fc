"""Templates go, the question stays; words are what n-grams compare."""

import pytest

from pcl_reasoner.prompt.question_text import strip_template, words

QUESTION = "Find the sum of all integers $n$ with $n^2 < 50$."
SUFFIX = " Please reason step by step, and put your final answer within \\boxed{}."


@pytest.mark.parametrize(
    "stored",
    [
        f"<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n{QUESTION}{SUFFIX}"
        "<|im_end|>\n<|im_start|>assistant\n<think>",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\n{QUESTION}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        f"<bos><start_of_turn>user\n{QUESTION}<end_of_turn>\n<start_of_turn>model\n",
        f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>{QUESTION}<｜Assistant｜><think>\n",
        f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{QUESTION} [/INST]",
        f"### Instruction:\n{QUESTION}\n\n### Response:\n",
        f"Question: {QUESTION}\nAnswer:",
        f"Solve the following math problem. Make sure to put the answer (and only answer) inside "
        f"\\boxed{{}}.\n\n{QUESTION}",
        f"{QUESTION} Let's think step by step and output the final answer within \\boxed{{}}.",
        f"{QUESTION}\nPresent the answer in LaTex format: \\boxed{{Your answer}}",
        f"{QUESTION}\nYour final answer must be given in $\\boxed{{}}$.",
        f"Solve the following math problem step by step. {QUESTION}\n\n"
        'Remember to put your answer on its own line after "Answer:".',
        QUESTION,
    ],
)
def test_only_the_question_is_left(stored: str) -> None:
    assert strip_template(stored) == QUESTION


@pytest.mark.parametrize(
    "question",
    [
        "Write 100 as a product of primes.",
        "In the table, $\\boxed{A}$ and $\\boxed{B}$ stand for digits. Find $A+B$.",
        "The answer to a riddle is 7. What is twice the answer?",
        "A machine works step by 3 steps. Where is it after 5 moves?",
        "Is $a<|b|$ or $|c|>d$?",
    ],
)
def test_a_problem_without_a_wrapper_stays_as_it_is(question: str) -> None:
    assert strip_template(question) == question


def test_the_question_before_an_answer_form_in_one_sentence_stays() -> None:
    text = "Find the sum of the roots, and give your answer in \\boxed{}."
    assert strip_template(text) == "Find the sum of the roots, and"


def test_several_user_turns_are_joined_and_answers_are_not_part_of_it() -> None:
    chat = (
        "<|im_start|>user\nLet $x=3$.<|im_end|>\n<|im_start|>assistant\nFine.<|im_end|>\n"
        "<|im_start|>user\nFind $x^2$.<|im_end|>\n"
    )
    assert strip_template(chat) == "Let $x=3$.\nFind $x^2$."


def test_a_text_that_is_all_wrapper_is_left() -> None:
    text = "Please reason step by step."
    assert strip_template(text) == text


def test_words_with_and_without_numbers() -> None:
    text = "Ada's $\\dfrac{6}{3}$ Books cost \\$1,250.50, \\left( x2 \\right)."
    assert " ".join(words(text, mask_numbers=True)) == "ada s frac # # books cost # x #"
    assert " ".join(words(text, mask_numbers=False)) == "ada s frac 6 3 books cost 1,250.50 x 2"


def test_chinese_characters_are_words() -> None:
    assert words("求x的值12", mask_numbers=True) == ["求", "x", "的", "值", "#"]
