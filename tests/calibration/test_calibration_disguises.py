"""Each rule on a question of three sentences."""

from pcl_reasoner.calibration.disguises import AFTER, BEFORE, DISGUISES

TEXT = r"Let $x>0$. Tom has $\frac{9}{4}$ apples, not more. Find $x$ if $x^2 = 9$."


def test_rules_by_hand() -> None:
    assert {name: rule(TEXT) for name, rule in DISGUISES.items()} == {
        "last sentence first": (
            r"Find $x$ if $x^2 = 9$. Let $x>0$. Tom has $\frac{9}{4}$ apples, not more."
        ),
        "other LaTeX": (
            r"Let \(x>0\). Tom has \(\dfrac{9}{4}\) apples, not more. Find \(x\) if \(x^2 = 9\)."
        ),
        "other line width": (
            "Let $x>0$. Tom has\n$\\frac{9}{4}$ apples, not\nmore. Find $x$ if $x^2 = 9$."
        ),
        "every fifth word left out": (r"Let $x>0$. Tom has apples, not more. Find if $x^2 = 9$."),
        "inside another text": BEFORE + TEXT + AFTER,
        "first half": r"Let $x>0$. Tom has $\frac{9}{4}$ apples, not",
        "second half": r"more. Find $x$ if $x^2 = 9$.",
    }


def test_chinese_sentences_are_reordered_too() -> None:
    rule = DISGUISES["last sentence first"]
    assert rule("设 x > 0。求 x。") == "求 x。 设 x > 0。"
