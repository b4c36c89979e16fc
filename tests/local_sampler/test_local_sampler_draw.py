from __future__ import annotations

import numpy as np
import pytest

from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.draw import LIKELY, Streams, draw, penalise, stream_seed

# Token 2 has probability 0.5, token 0 0.3, token 1 0.2.
LOGITS = np.log(np.array([[0.3, 0.2, 0.5]], np.float32))


def drawn(uniform: float, **fields: float) -> int:
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    settings = SamplingConfig(**{**plain, **fields})  # type: ignore[arg-type]
    return int(draw(LOGITS, np.array([uniform]), settings)[0])


@pytest.mark.parametrize(
    ("fields", "uniform", "token"),
    [
        ({}, 0.49, 2),  # the likeliest comes first: [0, 0.5)
        ({}, 0.51, 0),  # [0.5, 0.8)
        ({}, 0.79, 0),
        ({}, 0.81, 1),  # [0.8, 1)
        ({"temperature": 0}, 0.99, 2),
        ({"top_k": 1}, 0.99, 2),
        ({"top_k": 2}, 0.62, 2),  # 0.5 / 0.8 = 0.625
        ({"top_k": 2}, 0.63, 0),
        ({"top_k": 2}, 0.999, 0),
        ({"top_p": 0.6}, 0.63, 0),  # 0.5 does not reach 0.6, 0.8 does
        ({"top_p": 0.6}, 0.999, 0),
        ({"top_p": 0.49}, 0.999, 2),  # the first is always kept
        ({"min_p": 0.5}, 0.999, 0),  # 0.2 < 0.5 · 0.5 <= 0.3
        ({"min_p": 0.7}, 0.999, 2),
        # Temperature 0.5 squares: 0.25, 0.09, 0.04, sum 0.38; 0.25 / 0.38 = 0.6579
        ({"temperature": 0.5}, 0.65, 2),
        ({"temperature": 0.5}, 0.66, 0),
        # top_p counts what top_k left: 0.625 of it reaches 0.6, where 0.5 of all would not
        ({"top_k": 2, "top_p": 0.6}, 0.999, 2),
        ({"top_p": 1.0}, 1 - 2**-53, 1),
    ],
)
def test_the_token_that_the_inverse_cdf_gives(
    fields: dict[str, float], uniform: float, token: int
) -> None:
    assert drawn(uniform, **fields) == token


def test_a_draw_beyond_the_tokens_that_are_sorted_first() -> None:
    # 100 tokens, token i a little likelier than i + 1: the order is that of the ids.
    probabilities = np.linspace(1.1, 0.9, 100) / 100
    logits = np.log(probabilities).astype(np.float32)[None].repeat(100, axis=0)
    middles = np.cumsum(probabilities) - probabilities / 2
    settings = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0)
    assert LIKELY < 100
    assert draw(logits, middles, settings).tolist() == list(range(100))


@pytest.mark.parametrize("min_p", [0.0, 0.002])
def test_sorting_the_likeliest_first_changes_no_token(min_p: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(500, 300)).astype(np.float32) * rng.uniform(0, 4, (500, 1))
    uniforms = rng.random(500)
    plain = SamplingConfig(temperature=0.8, top_k=0, top_p=1.0, min_p=min_p)
    # top_k 300 keeps every token, and sorts all of them.
    everything = plain.model_copy(update={"top_k": 300})
    assert draw(logits, uniforms, plain).tolist() == draw(logits, uniforms, everything).tolist()


def test_rows_do_not_see_each_other() -> None:
    rng = np.random.default_rng(0)
    logits, uniforms = rng.normal(size=(7, 50)), rng.random(7)
    settings = SamplingConfig(temperature=0.6, top_k=10, top_p=0.95, min_p=0.01)
    together = draw(logits, uniforms, settings)
    alone = [int(draw(logits[i : i + 1], uniforms[i : i + 1], settings)[0]) for i in range(7)]
    assert together.tolist() == alone


def test_frequencies_are_the_probabilities() -> None:
    uniforms = (np.arange(1000) + 0.5) / 1000
    settings = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0)
    tokens = draw(np.repeat(LOGITS, 1000, axis=0), uniforms, settings)
    assert np.bincount(tokens).tolist() == [300, 200, 500]


def test_a_stream_is_its_seed_alone_and_goes_on_over_blocks() -> None:
    streams = Streams([11, 12])
    steps = np.array([streams.next().copy() for _ in range(130)])
    for row, seed in enumerate((11, 12)):
        expected = np.random.Generator(np.random.Philox(key=seed)).random(130)
        assert steps[:, row].tolist() == expected.tolist()


def test_every_sample_has_a_seed_of_its_own() -> None:
    seeds = {stream_seed(s, p, i) for s in (0, 1) for p in ("a", "b") for i in range(8)}
    assert len(seeds) == 32
    assert all(0 <= seed < 2**63 for seed in seeds)
    # "1/1" and "11/…" must not be one stream.
    assert stream_seed(1, "1x", 1) != stream_seed(11, "x", 1)


def test_penalty_halves_positive_and_doubles_negative_logits_of_seen_tokens() -> None:
    logits = np.array([[4.0, -4.0, 3.0]])
    seen = np.array([[True, True, False]])
    assert penalise(logits, seen, 2.0).tolist() == [[2.0, -8.0, 3.0]]
