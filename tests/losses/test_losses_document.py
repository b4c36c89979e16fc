"""docs/walk/losses.md against the code: its table, its settings, and the loss that it adds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from losses_helpers import batch_of, cell, drawn_batch, finite_differences, reference

from pcl_reasoner.losses import LOSSES, Loss
from pcl_reasoner.losses.columns import OPTIONAL_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "walk" / "losses.md").read_text()


def code_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def table_of_losses() -> dict[str, list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in lines]
    return {code_in(row[0])[0]: row for row in rows if len(row) == 6}


def test_the_table_is_what_the_losses_are() -> None:
    rows = table_of_losses()
    assert list(rows) == list(LOSSES)
    for name, loss in LOSSES.items():
        _, _, unit, needs, parameters, _ = rows[name]
        assert unit == loss.unit
        assert set(code_in(needs)) == set(loss.needs({}))
        written = re.findall(r"`(\w+)` (-?[\d.]+)", parameters)
        assert {key: float(value) for key, value in written} == dict(loss.parameters)


def test_what_a_loss_needs_are_columns() -> None:
    assert set().union(*(loss.needs({}) for loss in LOSSES.values())) == set(OPTIONAL_COLUMNS)


def test_the_added_loss_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """m = −2: p^(1/4) = e^(−1/2), its slope a quarter of that for the one token."""
    module, line = re.findall(r"```python\n(.*?)\n\s*```", PAGE, re.DOTALL)
    name = "fourth_root"
    file = tmp_path / f"{name}.py"
    file.write_text(re.sub(r"^   ", "", module, flags=re.MULTILINE))
    import pcl_reasoner.losses as package

    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    added = eval(f"{{{line.strip()}}}", {"Loss": Loss})  # noqa: S307
    monkeypatch.setitem(LOSSES, name, added[name])
    batch = batch_of([[([-2.0], 1.0)]], 1, places=1)
    loss, gradient = cell(name, batch)
    assert loss == pytest.approx(-np.exp(-0.5), rel=1e-5)
    assert gradient[0, 0] == pytest.approx(-np.exp(-0.5) / 4, rel=1e-5)
    whole = drawn_batch()
    assert cell(name, whole)[0] == pytest.approx(reference(name, whole), rel=1e-5)
    expected = finite_differences(name, whole)
    np.testing.assert_allclose(cell(name, whole)[1], expected, rtol=1e-5, atol=1e-7)
    sys.modules.pop(f"pcl_reasoner.losses.{name}")
