"""The classes that MindFormers loads by name. Importing this package registers them.

MindFormers looks handlers up as attributes of ``mindformers.dataset.handler`` and everything else
in its register, so a handler is put into both. Nothing heavy is imported where MindFormers is not
loaded. A script that imports this package before MindFormers must call ``register()`` afterwards.
"""

import sys

from pcl_reasoner.handlers.decontamination import DecontaminationHandler
from pcl_reasoner.handlers.instruction import InstructionHandler
from pcl_reasoner.handlers.packing import SegmentPackingHandler
from pcl_reasoner.handlers.reward import RewardHandler

HANDLERS = (DecontaminationHandler, InstructionHandler, RewardHandler, SegmentPackingHandler)


def register() -> None:
    """Register the handlers, the loader, the model, the step and the callbacks by name."""
    import mindformers.dataset.handler as mindformers_handlers
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    # They register on import.
    from pcl_reasoner.trainer import curves, loader, model, probe_callback, step  # noqa: F401
    from pcl_reasoner.trainer.mindformers_1_8 import sort_before_checkpoints
    from pcl_reasoner.trainer.rank_times import PclRankTimes

    sort_before_checkpoints([PclRankTimes, step.PclMetrics, curves.PclCurves])

    for handler in HANDLERS:
        MindFormerRegister.register(MindFormerModuleType.DATA_HANDLER)(handler)
        setattr(mindformers_handlers, handler.__name__, handler)


if "mindformers" in sys.modules:
    register()
