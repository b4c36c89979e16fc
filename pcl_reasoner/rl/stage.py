"""Stage ``rl``: strictly on-policy GRPO, in rounds of sampling, grading and one optimizer update.

rounds.parquet      round 17, loss -0.01, grad_norm 0.8, mean_reward 0.71, overlong 3, …
visits.parquet      problem_id 5c18…, kind math, round 17, n 16, all_correct false, …
responses/part-00000.parquet    the responses, with round, verdict, reward and advantage
probe.jsonl         the held-out problems, answered every few rounds
plateau.json        {"stopped": "plateau", "rounds": 61, "gain": 0.004, "se": 0.002, …}
checkpoint/model.safetensors  metrics.jsonl  mindformers.yaml      as in ``train``
rounds/00017/rows/  the packed rows of each round: all that is needed to train again
seconds.jsonl       seconds per round and phase; it differs between equal runs
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.plateau import PLATEAU


def rl(config: RlConfig, inputs: Mapping[str, Path], output: Path, context: StageContext) -> Counts:
    """Train on the policy's own responses, round after round; resume after a kill.

    Args:
        config: The stage's settings.
        inputs: ``problems`` (clean.parquet), ``policy`` (a Hugging Face folder), optionally
            ``held_out`` (problems that are not trained on) and ``reward_model``.
        output: The stage's folder.
        context: ``placement`` names the servers and the hosts.

    Raises:
        StageError: An input is not as needed, or sampling, grading or training failed.
    """
    from pcl_reasoner.rl.artifact import clean
    from pcl_reasoner.rl.render import ROUNDS
    from pcl_reasoner.rl.session import train_rounds
    from pcl_reasoner.train.stopping import STOPPED
    from pcl_reasoner.verifiers.kept_checks import KeptChecks
    from pcl_reasoner.weights.stream import read_files, weight_files

    if not (output / PLATEAU).exists():
        (output / STOPPED).unlink(missing_ok=True)
        read_files(weight_files(inputs["policy"]))  # raises an error for a truncated file
        (output / ROUNDS).mkdir(exist_ok=True)
        with KeptChecks(output) as kept:
            train_rounds(config, inputs, output, context, kept)
    clean(config, output, context)
    return _counts(output)


def _counts(output: Path) -> Counts:
    found = own_json(output / PLATEAU)
    failed = found["responses"] - found["kept"]
    return Counts(
        unit="responses",
        read=found["responses"],
        kept=found["kept"],
        dropped={"failed": failed} if failed else {},
        info={key: found[key] for key in ("stopped", "rounds", "gain", "se")},
    )
