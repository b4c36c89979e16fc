"""Gives a rank's graph its batches where MindSpore would send them to a device in advance.

On Ascend the graph begins with the operator GetNext, which reads a queue on the device. That queue
is filled by the data set. Here the kernel of GetNext asks the data set for its next batch.
"""

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pcl_reasoner.cpu_ranks.collectives import Arrays, Attributes, Kernel


class DataQueue:
    """Replaces TransferDataset, the data set's connection to the device; same methods.

    Args:
        dataset: A mindspore.dataset.Dataset.
        name: Name of the queue; GetNext has it, too.
    """

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.queue_name = dataset, name
        self.batches: Iterator[Arrays] = iter(())
        self.described: Arrays | None = None

    def send(self, epochs: int = -1) -> None:
        """Start to read the data set at the step from which training resumes."""
        self.batches = self.dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)

    def get_data_info(self) -> tuple[list[Any], list[tuple[int, ...]]]:
        """Return types and shapes of the next batch."""
        self.described = self.next_batch()
        columns = self.described
        return [column.dtype for column in columns], [column.shape for column in columns]

    def next_batch(self) -> Arrays:
        """Return the next batch, which may have been described already."""
        batch, self.described = self.described, None
        return next(self.batches) if batch is None else batch

    def get_mbuf_queue_size(self) -> int:
        """Return 1: a batch is always ready."""
        return 1

    def get_send_info(self) -> list[Any]:
        """Return no statistics."""
        return []

    def get_offload_model(self) -> Any:
        """Return a model without operations: nothing of the data set is computed on the device."""
        return SimpleNamespace(transform_list=[])

    def nothing(self, *_: Any) -> None:
        """Do nothing: there is no device whose queue must be filled or emptied."""

    stop_send = continue_send = release = nothing


def replace_device_queues() -> dict[str, Kernel]:
    """Make every data set's ``device_que`` return a DataQueue; return the kernel of GetNext."""
    from mindspore.common.api import _cell_graph_executor
    from mindspore.dataset import Dataset

    queues: dict[str, DataQueue] = {}

    def device_que(
        self: Any,
        send_epoch_end: bool = True,
        create_data_info_queue: bool = False,
        queue_name: str = "",
    ) -> DataQueue:
        queue = DataQueue(self, queue_name or str(uuid.uuid4()))
        queues[queue.queue_name] = queue
        return queue

    def get_next(attributes: Attributes, _: Arrays, outputs: Arrays) -> None:
        batch = queues[attributes["shared_name"]].next_batch()
        for output, column in zip(outputs, batch, strict=True):
            output[...] = column

    Dataset.device_que = device_que
    # This would start a graph on the device that fills the queue.
    _cell_graph_executor.init_dataset = lambda *_, **__: True
    return {"GetNext": get_next}
