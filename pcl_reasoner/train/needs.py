"""Checks that packed rows have the columns that a loss needs."""

from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN, PASS_RATES

_MADE_BY = {
    PASS_RATES: "`select` makes them",
    ADVANTAGES: "`select` makes them, and rows of a data set have none",
    OLD_LOG_PROBS: "`old_log_probs` makes them: run it after tokenize and pack its samples",
    OLD_LOG_PROBS_MEAN: "`old_log_probs` makes them: run it after tokenize and pack its samples",
}


def check_columns(loss: str, parameters: Mapping[str, float], packs: Path) -> None:
    """Raise an error if packed rows lack a column of the loss; training would read zeros instead.

    Args:
        loss: A key of LOSSES.
        parameters: The loss's parameters that differ from their defaults.
        packs: Folder of the pack artifact.

    Raises:
        StageError: A column is missing, or lacks a segment's value.
    """
    import pyarrow.compute as pc

    from pcl_reasoner.pack.arrow_folder import read_arrow_folder

    needs = LOSSES[loss].needs(parameters)
    if not needs:
        return
    table = read_arrow_folder(packs)
    for name in needs:
        if name not in table.column_names:
            problem = f"the packed rows have no {name}"
        elif missing := pc.list_flatten(table[name]).null_count:
            problem = f"{missing} values of {name} are missing in the packed rows"
        else:
            continue
        raise StageError(
            f"{packs}: the loss {loss} needs {name}, and {problem}. The stage {_MADE_BY[name]}. "
            "Or use a loss that does not need it: opg, sft, rft."
        )
