"""Registers the classes that MindFormers loads by name.

MindFormers finds handlers as attributes of ``mindformers.dataset.handler`` and other classes in its
register; handlers are put into both. If MindFormers is imported already, the import of this package
registers the classes. Otherwise this package imports no part of MindFormers, and a program that
imports MindFormers later must call ``register()`` afterwards.
"""

import sys

from pcl_reasoner.handlers.decontamination import DecontaminationHandler
from pcl_reasoner.handlers.instruction import InstructionHandler
from pcl_reasoner.handlers.packing import SegmentPackingHandler
from pcl_reasoner.handlers.reward import RewardHandler

HANDLERS = (DecontaminationHandler, InstructionHandler, RewardHandler, SegmentPackingHandler)


def register() -> None:
    """Register the handlers, the loader, the model, the training step and the callbacks."""
    import mindformers.dataset.handler as mindformers_handlers
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    # These modules register their classes on import.
    from pcl_reasoner.trainer import (  # noqa: F401
        curves,
        loader,
        model,
        probe_callback,
        round_callbacks,
        round_rows,
        round_step,
        step,
    )
    from pcl_reasoner.trainer.mindformers_1_8 import sort_before_checkpoints
    from pcl_reasoner.trainer.rank_times import PclRankTimes
    from pcl_reasoner.trainer.step_seconds import PclStepSeconds

    times = [PclRankTimes, step.PclMetrics, PclStepSeconds]
    sort_before_checkpoints([*times, curves.PclCurves])

    for handler in HANDLERS:
        MindFormerRegister.register(MindFormerModuleType.DATA_HANDLER)(handler)
        setattr(mindformers_handlers, handler.__name__, handler)


if "mindformers" in sys.modules:
    register()
