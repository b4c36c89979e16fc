"""audit.html says what was counted, and shows responses as they are."""

from __future__ import annotations

from pcl_reasoner.grade.agreement import Agreement
from pcl_reasoner.grade.audit import EXAMPLES_EACH, Audit


def test_counts_examples_and_escaping() -> None:
    audit = Audit()
    for index in range(EXAMPLES_EACH + 1):
        audit.add("correct", (f"a/{index}", "8", "8", "x" * 500 + "<script>", None))
    audit.add("incorrect", ("b/0", "8", "9", "end", "the judge said <b>"))
    page = audit.page(Agreement())
    assert "<td>correct</td><td class=n>6</td><td class=n>85.7 %</td>" in page
    assert "<td>timeout</td><td class=n>0</td>" in page
    assert f"a/{EXAMPLES_EACH - 1}" in page
    assert f"a/{EXAMPLES_EACH}" not in page
    assert "<script>" not in page
    assert "x" * 392 + "&lt;script&gt;" in page
    assert "x" * 393 not in page
    assert "the judge said &lt;b&gt;" in page
