"""Shows the effect of a loss on single responses, for given weights and without training.

    Inspected(problem_id="9f0c…", sample_index=3, reward=1.0, advantage=1.29, length=41, m=-0.21,
              p=0.81, weight=0.05, entropy=0.3, tokens=[Token(18, "=", -1.2, 0.004), …])

The last number of a Token is |∂loss / ∂z| = |∂loss / ∂ log π| · (1 − π), where z is the token's own
logit. So a token that the model predicts with certainty has no effect, even in a response with a
large weight. The weight of a response is Σ_t |∂loss / ∂ log π(y_t)|; all inspected responses form
one global batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.perplexity.old_log_probs import Evaluation, evaluate
from pcl_reasoner.prompt.model_files import open_tokenizer
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.train.config import TrainConfig

TOKENS_SHOWN = 5


@dataclass(frozen=True)
class Token:
    """One token of a response.

    Args:
        place: 0-based index in prompt and response together.
        text: The decoded token.
        log_prob: log π.
        figure: |∂loss / ∂z|, where z is the token's own logit.
    """

    place: int
    text: str
    log_prob: float
    figure: float


@dataclass(frozen=True)
class Inspected:
    """One response, and the effect of the loss on it: means and sums over its trained tokens.

    ``length`` is their number, ``m`` the mean log π, ``p`` = e^m, ``entropy`` a mean. ``tokens``
    has the tokens with the largest effect. Data without ``advantage`` or ``pass_rate`` give None.
    """

    problem_id: str
    sample_index: int
    reward: float
    pass_rate: float | None
    advantage: float | None
    length: int
    m: float
    p: float
    weight: float
    entropy: float
    tokens: list[Token]


def find_train(plan: Plan) -> PlannedStage:
    """Return the last stage of a plan, which must be a train stage.

    Raises:
        InputError: The stage is of another type.
    """
    planned = plan.stages[-1]
    if not isinstance(planned.spec.config, TrainConfig):
        raise InputError(f"stage {planned.title}: is of type {planned.spec.type}, expected train.")
    return planned


def find_samples(plan: Plan, train: PlannedStage) -> PlannedStage:
    """Return the stage whose samples are packed into the rows for training.

    Raises:
        InputError: The packed rows come from a source, not from a stage.
    """
    by_folder = {stage.folder: stage for stage in plan.stages}
    packs = by_folder.get(train.inputs["packs"].path)
    samples = by_folder.get(packs.inputs["samples"].path) if packs else None
    if samples is None:
        raise InputError(
            f"stage {train.title}: its rows are packed from a source, not by a stage. Give the "
            "recipe a pack stage that reads tokenize or old_log_probs."
        )
    return samples


def spaced_indices(count: int, wanted: int) -> list[int]:
    """Return at most ``wanted`` evenly spaced indices below ``count``."""
    wanted = min(count, wanted)
    return [index * count // wanted for index in range(wanted)]


def inspect(
    evaluation: Evaluation, tokenizer_file: Path, folder: Path, placement: Placement
) -> list[Inspected]:
    """Run the forward pass on samples, and compute the effect of the loss on each.

    Args:
        evaluation: Samples, weights and the loss; ``gradient`` must be True.
        tokenizer_file: The model's tokenizer.json.
        folder: Folder for intermediate files; the caller removes it.
        placement: Has the Python and the environment of the forward pass.

    Returns:
        One Inspected per sample, in their order.

    Raises:
        StageError: There is no tokenizer.json, the loss needs a column that the samples lack, or
            the forward pass failed.
    """
    if not tokenizer_file.is_file():
        raise StageError(f"{tokenizer_file}: not found; it is needed to show tokens.")
    tokenizer = open_tokenizer(tokenizer_file)
    context = StageContext("inspect", folder / "quarantined.jsonl", placement)
    found = evaluate(evaluation, folder, folder / "evaluate.log", context)
    records = evaluation.samples.to_pylist()
    return [
        figures_of(record, values, tokenizer) for record, values in zip(records, found, strict=True)
    ]


def figures_of(
    record: dict[str, Any], values: Sequence[NDArray[np.float32]], tokenizer: Any
) -> Inspected:
    """Build a response's Inspected from the values of its tokens.

    Args:
        record: A row of a tokenized folder.
        values: Arrays of shape [length]: log π of each token, entropy in nats, ∂loss / ∂ log π.
        tokenizer: The tokenizer that decodes the tokens.
    """
    log_probs, entropies, gradient = values
    trained = [i for i, label in enumerate(record["labels"]) if i and label != -100]
    length = max(1, len(trained))
    m = sum(float(log_probs[i]) for i in trained) / length
    weighed = []
    for i in trained:
        text = tokenizer.decode([record["input_ids"][i]], skip_special_tokens=False)
        log_prob, weight = float(log_probs[i]), abs(float(gradient[i]))
        weighed.append(Token(i, text, log_prob, weight * -math.expm1(log_prob)))
    return Inspected(
        problem_id=record["problem_id"],
        sample_index=record["sample_index"],
        reward=record["reward"],
        pass_rate=record.get("pass_rate"),
        advantage=record.get("advantage"),
        length=len(trained),
        m=m,
        p=math.exp(m) if trained else 0.0,
        weight=sum(abs(float(gradient[i])) for i in trained),
        entropy=sum(float(entropies[i]) for i in trained) / length,
        tokens=sorted(weighed, key=lambda token: -token.figure)[:TOKENS_SHOWN],
    )
