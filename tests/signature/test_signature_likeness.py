"""The features of a pair by hand, the map of cosines, and the fitted weights."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from pcl_reasoner.signature import likeness
from pcl_reasoner.signature.index import FAMILIES, Shared
from pcl_reasoner.signature.kinds import KINDS
from pcl_reasoner.signature.likeness import COSINE, FEATURES, features, scaled, steepest, weights

FITTED = json.loads(files("pcl_reasoner.signature").joinpath("likeness.json").read_text())


def one(value: float) -> np.ndarray:
    return np.array([value])


def test_features_are_shares_and_parts_of_twelve_nats() -> None:
    shared = Shared(
        of_question=dict(zip(FAMILIES, map(one, (0.8, 0.5, 0.6, 0.4)), strict=True)),
        of_text=dict(zip(FAMILIES, map(one, (0.7, 0.5, 0.3, 0.2)), strict=True)),
        nats=one(6.0),
        missing=one(3.0),
        extra=one(24.0),
        concept_nats=one(1.2),
        answered=one(2.5),
    )
    (row,) = features(shared, one(0.55))
    # A question without formulas has the share 0.5 of them, which speaks for nothing.
    assert dict(zip(FEATURES, row, strict=True)) == pytest.approx(
        {
            "cosine": 0.55,
            "numbers": 0.8,
            "numbers_of_text": 0.7,
            "formulas": 0.0,
            "concepts": 0.6,
            "concepts_of_text": 0.3,
            "asked": 0.4,
            "asked_of_text": 0.2,
            "nats": 0.5,
            "concept_nats": 0.1,
            "missing": 0.25,
            "extra": 1.0,
            "answered": 0.5,
        }
    )
    assert features(shared, None)[0, COSINE] == 0


def test_another_models_cosines_are_mapped_to_the_packaged_models() -> None:
    # Linear between 0.8 -> 0.4, 0.9 -> 0.7 and 1 -> 1; below 0.8 it falls to -1 at -1, cut at 0.
    found = scaled(np.array([0.8, 0.85, 0.9, 0.95, 1.0, -0.5]), (0.8, 0.9))
    assert found == pytest.approx([0.4, 0.55, 0.7, 0.85, 1.0, 0.0])
    assert scaled(0.33, likeness.SCALE) == pytest.approx(0.33)
    assert (steepest((0.8, 0.9)), steepest(likeness.SCALE)) == pytest.approx((3.0, 1.0))


@pytest.mark.parametrize("name", sorted(FITTED))
def test_a_feature_speaks_only_for_or_only_against_a_rewrite(name: str) -> None:
    given = FITTED[name]["weights"]
    assert set(given) <= set(FEATURES)
    for feature, weight in given.items():
        assert (weight < 0) == (feature in likeness.AGAINST)
    assert given.get("cosine", 0) <= likeness.COSINE_WEIGHT


def test_every_kind_has_weights_with_and_without_a_cosine() -> None:
    assert set(FITTED) == {name for kind in KINDS for name in (kind, f"{kind}_without_cosine")}
    for kind in KINDS:
        assert weights(kind, embedded=False)[0][COSINE] == 0
    # The packaged model cannot read other scripts.
    assert weights("other_script", embedded=True)[0][COSINE] == 0
    assert weights("question", embedded=True)[0][COSINE] > 0
