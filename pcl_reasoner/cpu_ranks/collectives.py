"""Communication operators in NumPy, among the ranks of a group.

A kernel gets its operator's attributes, its inputs and its outputs, and fills the outputs.

Ranks of one pipeline stage run the same graph, so the name of an operator's node says which of its
calls on the ranks belong together. Across stages names differ; there the order of calls decides.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.cpu_ranks.messages import Mailbox

Array = npt.NDArray[Any]
Arrays = list[Array]
Attributes = dict[str, str]
Kernel = Callable[[Attributes, Arrays, Arrays], None]
"""(attributes, inputs, outputs). An input that has no memory, e.g. None, is an empty array."""

REDUCTIONS: dict[str, Any] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


class Collectives:
    """The communication operators of one rank.

    Args:
        rank: The rank.
        mailbox: The rank's mailbox.
        groups: Name of a group -> its ranks.
        stage_of: Returns the pipeline stage of a rank.
    """

    def __init__(
        self,
        rank: int,
        mailbox: Mailbox,
        groups: dict[str, list[int]],
        stage_of: Callable[[int], int] = lambda rank: 0,
    ) -> None:
        self.rank, self.mailbox, self.groups, self.stage_of = rank, mailbox, groups, stage_of
        self.calls: Counter[str] = Counter()

    def kernels(self) -> dict[str, Kernel]:
        """Return operator -> kernel."""
        return {
            "AllReduce": self.all_reduce,
            "AllGather": self.all_gather,
            "ReduceScatter": self.reduce_scatter,
            "Broadcast": self.broadcast,
            "AlltoAll": self.all_to_all,
            "Send": self.send,
            "Receive": self.receive,
        }

    def barrier(self, group: str) -> None:
        """Wait until every rank of the group has called this function."""
        self._of_all("Barrier", {"group": group}, np.zeros(1, np.uint8))

    def _of_all(self, operator: str, attributes: Attributes, own: Array) -> Arrays:
        """Send an array to all ranks of a group; return the arrays of all, in the group's order."""
        ranks = self.groups[attributes["group"]]
        one_stage = len({self.stage_of(rank) for rank in ranks}) == 1
        node = attributes.get("node", "") if one_stage else ""
        key = f"{operator} {attributes['group']} {node} {own.dtype} {own.shape}"
        self.calls[key] += 1
        key = f"{key} call {self.calls[key]}"
        for rank in ranks:
            self.mailbox.send(rank, key, own.tobytes())
        return [
            np.frombuffer(self.mailbox.take(rank, key), own.dtype).reshape(own.shape)
            for rank in ranks
        ]

    def _reduced(self, operator: str, attributes: Attributes, own: Array) -> Array:
        first, *others = self._of_all(operator, attributes, own)
        reduce = REDUCTIONS[attributes["op"]]
        for other in others:
            first = reduce(first, other)
        return first

    def all_reduce(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Every rank gets the sum, maximum, minimum or product of all arrays."""
        outputs[0][...] = self._reduced("AllReduce", attributes, inputs[0])

    def all_gather(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Every rank gets all arrays, joined along the first axis."""
        found = np.concatenate(self._of_all("AllGather", attributes, inputs[0]))
        outputs[0][...] = found.reshape(outputs[0].shape)

    def reduce_scatter(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Each rank gets its part, along the first axis, of the reduced array."""
        ranks = self.groups[attributes["group"]]
        parts = np.split(self._reduced("ReduceScatter", attributes, inputs[0]), len(ranks))
        outputs[0][...] = parts[ranks.index(self.rank)].reshape(outputs[0].shape)

    def broadcast(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Every rank gets the arrays of one rank; a batch of a data set has several."""
        for own, output in zip(inputs, outputs, strict=True):
            found = self._of_all("Broadcast", attributes, own)
            output[...] = found[int(attributes["root_rank"])].reshape(output.shape)

    def all_to_all(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Each rank gets its part of every array, joined along another axis."""
        count, axis = int(attributes["split_count"]), int(attributes["split_dim"])
        own = self.groups[attributes["group"]].index(self.rank)
        found = self._of_all("AlltoAll", attributes, inputs[0])
        parts = [np.split(array, count, axis)[own] for array in found]
        outputs[0][...] = np.concatenate(parts, int(attributes["concat_dim"]))

    def send(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Send an array to a rank of another pipeline stage."""
        to = self.groups[attributes["group"]][int(attributes["dest_rank"])]
        self.mailbox.send(to, self._between_stages(attributes), inputs[0].tobytes())

    def receive(self, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
        """Wait for the array that a rank of another pipeline stage sends."""
        sender = self.groups[attributes["group"]][int(attributes["src_rank"])]
        data = self.mailbox.take(sender, self._between_stages(attributes))
        outputs[0][...] = np.frombuffer(data, outputs[0].dtype).reshape(outputs[0].shape)

    def _between_stages(self, attributes: Attributes) -> str:
        return f"Send {attributes['group']} tag {attributes['sr_tag']}"
