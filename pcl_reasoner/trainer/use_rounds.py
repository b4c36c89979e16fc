"""Makes MindFormers build this package's classes where it chooses classes by fixed names."""

from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

from pcl_reasoner.trainer.round_callbacks import PclRoundCheckpoint
from pcl_reasoner.trainer.round_step import PclRoundPipelineCell, PclRoundStepCell


def use_rounds(config: dict[str, Any]) -> None:
    """Register the classes of on-policy training under MindFormers' names.

    In a pipeline MindFormers replaces the wrapper that the YAML names by its own. And it gives the
    state of a resumed run only to a callback that is called CheckpointMonitor.

    Args:
        config: A MindFormers configuration; nothing changes unless its wrapper is PclRoundStepCell.
    """
    if config["runner_wrapper"].get("type") != PclRoundStepCell.__name__:
        return
    registry = MindFormerRegister.registry
    registry[MindFormerModuleType.WRAPPER]["MFPipelineWithLossScaleCell"] = PclRoundPipelineCell
    registry[MindFormerModuleType.CALLBACK]["CheckpointMonitor"] = PclRoundCheckpoint
