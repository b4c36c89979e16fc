"""What `make` installs: each version that is listed, and files of known content only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTS = sorted((ROOT / "requirements" / "hashed").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: \\| ;.*)?$", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in PIN.findall(text)}


@pytest.mark.parametrize("hashed", LISTS, ids=lambda path: path.name)
def test_every_version_has_hashes(hashed: Path) -> None:
    """After a change of a version: make hashes."""
    text = hashed.read_text()
    listed = (ROOT / "requirements" / hashed.name).read_text()
    assert pins(text) == pins(listed)
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in block, block


def test_make_installs_nothing_else() -> None:
    """torch apart: TORCH_INDEX may serve another build of it."""
    makefile = (ROOT / "Makefile").read_text()
    assert f"LISTS := {' '.join(path.stem for path in LISTS)}\n" in makefile
    commands = makefile.replace("\\\n", " ").splitlines()
    installs = [one for one in commands if " install " in one and "-r " in one]
    without = [one for one in installs if "$(WITH_HASHES)" not in one]
    assert len(installs) > len(without)
    assert all("requirements/torch.txt" in one and one.count("-r ") == 1 for one in without)
