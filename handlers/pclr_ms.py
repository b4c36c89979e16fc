"""Registers our classes through MindFormers' ``auto_register``, for MindFormers' own scripts.

    export REGISTER_PATH=$(python -c 'import pcl_reasoner.handlers as here; print(*here.__path__)')

    train_dataset: {data_loader: {auto_register: pclr_ms.PclPackedDataLoader, …}}
    model: {model_config: {auto_register: pclr_ms.PclQwen2Config, …}, …}

MindFormers copies this file into its cache and runs it there, after it has set up its context. One
``auto_register`` is enough, because it registers all classes, including the handlers. It must be in
the section that MindFormers reads first; for training, this is the data loader's.
"""

from pcl_reasoner.handlers import register
from pcl_reasoner.trainer.loader import PclPackedDataLoader  # noqa: F401
from pcl_reasoner.trainer.mindformers_1_8 import install_cpu_operators
from pcl_reasoner.trainer.model import PclQwen2Config, PclQwen2ForCausalLM  # noqa: F401
from pcl_reasoner.trainer.step import PclMetrics, PclTrainOneStepCell  # noqa: F401

register()
install_cpu_operators()
