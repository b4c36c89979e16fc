"""Complete and incomplete responses, by hand."""

from __future__ import annotations

import pytest

from pcl_reasoner.tidy.structure import structure_problem

COMPLETE = "<think>2 + 3 = 5</think><answer>\\boxed{5}</answer>"


@pytest.mark.parametrize(
    "text",
    [
        COMPLETE,
        "<think>\n2 + 3 = 5\n</think>\n\n<answer>\n\\boxed{5}\n</answer>",
        f" \n{COMPLETE}\n",
        "<think>a < b, x|y, <b>bold</b>, f <|> g, a <| b |> c</think><answer>數</answer>",
    ],
)
def test_complete_responses(text: str) -> None:
    assert structure_problem(text, "stop", "think_answer") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "missing_tag"),
        ("5", "missing_tag"),
        ("2 + 3 = 5</think><answer>5</answer>", "missing_tag"),
        ("<think>2 + 3 = 5<answer>5</answer>", "missing_tag"),
        ("<think>2 + 3 = 5</think>\\boxed{5}", "missing_tag"),
        ("<think>2 + 3 = 5</think><answer>5", "missing_tag"),
        ("<think>a</think><think>b</think><answer>5</answer>", "repeated_tag"),
        ("<think>a<think>b</think><answer>5</answer>", "repeated_tag"),
        ("<think>a</think></think><answer>5</answer>", "repeated_tag"),
        (f"{COMPLETE}<answer>6</answer>", "repeated_tag"),
        ("Well. <think>a</think><answer>5</answer>", "out_of_place"),
        ("<think>a</think> So: <answer>5</answer>", "out_of_place"),
        ("<think>a</think><answer>5</answer>.", "out_of_place"),
        ("<answer>5</answer><think>a</think>", "out_of_place"),
        ("</think>a<think><answer>5</answer>", "out_of_place"),
        ("<think>a<answer>5</answer></think>", "out_of_place"),
        ("<think></think><answer>5</answer>", "empty_think"),
        ("<think> \n\u3000</think><answer>5</answer>", "empty_think"),
        ("<think>a</think><answer>\n</answer>", "empty_answer"),
        ("<think>a</think><answer></answer>", "empty_answer"),
        ("<think>a<|im_start|>user</think><answer>5</answer>", "special_token"),
        (f"{COMPLETE}<|im_end|>", "special_token"),
        ("<think>a<｜end▁of▁sentence｜></think><answer>5</answer>", "special_token"),
    ],
)
def test_incomplete_responses(text: str, problem: str) -> None:
    assert structure_problem(text, "stop", "think_answer") == problem


@pytest.mark.parametrize("reason", ["length", "error", "timeout", "abort", None])
def test_only_a_response_that_stopped_is_complete(reason: str | None) -> None:
    assert structure_problem(COMPLETE, reason, "think_answer") == "not_stopped"


def test_models_without_answer_tags() -> None:
    def problem(text: str) -> str | None:
        return structure_problem(text, "stop", "think_only")

    assert problem("<think>a</think>\nThe sum is 5.") is None
    # Answer tags are text here.
    assert problem(COMPLETE) is None
    assert problem("<think>a</think><answer>") is None
    assert problem("<think>a</think> \n") == "empty_answer"
    assert problem("<think> </think>5") == "empty_think"
    assert problem("So <think>a</think>5") == "out_of_place"
    assert problem("5</think><think>a") == "out_of_place"
    assert problem("<think>a</think>b</think>5") == "repeated_tag"
    assert problem("<think>a") == "missing_tag"
    assert structure_problem("<think>a</think>5", "length", "think_only") == "not_stopped"
