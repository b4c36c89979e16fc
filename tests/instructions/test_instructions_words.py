"""Words and sentences, counted by hand."""

from __future__ import annotations

import pytest

from pcl_reasoner.instructions.words import count_sentences, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("-- … !", []),
        ("Don't pay 3.14", ["Don", "t", "pay", "3", "14"]),
        ("a_b C-3", ["a_b", "C", "3"]),
        ("naïve cafe\u0301", ["naïve", "cafe\u0301"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("می\u200cشود", ["می\u200cشود"]),
        ("我有iPhone。", ["我", "有", "iPhone"]),
        ("ネコ 고양이", ["ネ", "コ", "고양이"]),
        ("ＡＢ１", ["ＡＢ１"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" ... !? * ", 0),
        ("Cats", 1),
        ("Cats. ", 1),
        ("Cats. Dogs", 2),
        ("cats sleep. dogs run.", 2),
        ("Cats!! Dogs?! Owls.", 3),
        ("Cats.Dogs are at www.owl.org now.", 1),
        ("It costs 3.50 euros. Really.", 2),
        ("In 1999. Then", 2),
        ("Mr. Lee met Dr. Wu vs. Prof. Xi.", 1),
        ("J. R. Lee left.", 1),
        ("So do I. Then we left.", 2),
        ("Take eggs, milk, etc. and go.", 1),
        ("Take eggs, milk, etc. Then go.", 2),
        ("See No. 5 there. No. Never.", 3),
        ("At 5 p.m. we left. At 6 p.m. They left.", 3),
        ("Wait... what? Wait… Now.", 3),
        ('"Why?" he asked. "So?" She left.', 3),
        ("(One.) *Two.* Three", 3),
        ("List:\n1. Apples\n2. Pears.\n10. Figs.", 2),
        ("One line\nand another\n\nand one more", 1),
        ("我有猫。你有狗！他呢？", 3),
        ("他说……好。", 1),
        ("यह एक है। वह दो है।", 2),
        ("هل هذا؟ نعم.", 2),
        ("Ａ．Ｂ。", 2),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert count_sentences(text) == count
