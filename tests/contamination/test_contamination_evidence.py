"""The page: differences are marked, nothing of the data becomes markup."""

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.evidence import differing, render

HIT = {
    "row": 3,
    "file": "problems.parquet",
    "problem_id": "00ff",
    "problem": "Find the <b>big</b> root of 3x",
    "benchmark": "aime",
    "benchmark_id": "I-7",
    "benchmark_problem": "Find the small root of 3x",
    "cosine": 0.91234,
    "window": 0,
    "ngrams": 0.5,
    "log_odds": 1.25,
    "shared": ["3", ":root"],
    "rule": "embedding+ngrams",
}
SWEEP = {
    "0.70": {"embedding": 2, "with_ngrams": 2, "all_rules": 3},
    "0.95": {"embedding": 0, "with_ngrams": 1, "all_rules": 2},
}


def test_only_differing_words_are_marked() -> None:
    left, right = differing("Ada walks 9 km today", "Ada walks 11 km")
    assert left == [("Ada walks", False), ("9", True), ("km", False), ("today", True)]
    assert right == [("Ada walks", False), ("11", True), ("km", False)]


def test_the_page_has_the_pair_and_escapes_it() -> None:
    page = render([HIT, {**HIT, "row": 5}], [], SWEEP, ContaminationConfig())
    assert "<mark>&lt;b&gt;big&lt;/b&gt;</mark>" in page
    assert "<mark>small</mark>" in page
    assert "<b>" not in page
    assert page.count("<article>") == 1
    assert "row 3 of problems.parquet and 1 more" in page
    assert "2 rows were removed, with 1 different problems" in page
    assert '<tr class="used"><td>0.70</td><td>2</td><td>2</td><td>3</td></tr>' in page
    assert "log-odds 1.2" in page and "shared: 3 · :root" in page
    assert "http" not in page


def test_pairs_stand_in_the_order_of_their_cosine() -> None:
    closer = {**HIT, "problem": "Find the small root of 4x", "cosine": 0.99, "row": 9}
    page = render([HIT, closer], [], SWEEP, ContaminationConfig())
    assert page.index("0.9900") < page.index("0.9123")
