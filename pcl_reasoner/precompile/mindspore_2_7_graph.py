"""Reads two texts of MindSpore 2.7: the dump of a compiled graph, and the log of a failed compile.

    subgraph @1527_forward(%para1) {
      %3(h) = AllGather(%2) {instance name: redistribution_op_17AllGather_} primitive_attrs:
              {group: "2-50", group_rank_ids: (0, 2), …} cnode_attrs: …
          : (<Tensor[BFloat16], (2048, 64)>) -> (<Tensor[BFloat16], (4096, 64)>)
          # Fullname with scope: (Default/network-…/lm_head-Linear/AllGather-op2)

The dump has each subgraph only once, even if it is called for every micro-batch. So the count of an
operation is multiplied by the number of calls of its subgraph.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_OPERATIONS = (
    "AllReduce|AllGather|ReduceScatter|AlltoAllV?|AllToAllv?|NeighborExchange(?:V2)?|Broadcast|"
    "Send|Receive"
)
_NODE = re.compile(rf"  %\d+\(.*?\) = (?:PrimFunc_)?({_OPERATIONS})\(")
_CALL = re.compile(r"  %\d+\(.*?\) = (?:call @(\S+?)\(|%\d+\[(@.*?)\]\()")
_INSTANCE = re.compile(r"\{instance name: (.*?)\}")
_RANKS = re.compile(r"group_rank_ids: \(([\d, ]*)\)")
_TENSOR = re.compile(r"Tensor\[(\w+)\]{1,2}>?, \(([\d, ]*)\)")
_SCOPE = re.compile(r"# Fullname with scope: \((.*)\)")

_PURPOSES = (
    ("grad_parallel_optimizer", "gradients to their optimizer shard"),
    ("parallel_optimizer", "parameters from their optimizer shards"),
    ("grad_redistribution", "redistribution, backward"),
    ("redistribution", "redistribution"),
    ("grad_mirror", "gradients"),
    ("PARALLEL_GLOBALNORM", "gradient norm"),
    ("gradforward", "operator, backward"),
    ("forward", "operator"),
    ("AllReduce", "operator"),
)
"""(start of an instance's name, purpose of the operation)."""
REDISTRIBUTION = "redistribution"

_BACKWARD = ("gradforward", "grad_redistribution")
_MADE_BY_GRADIENT = "forward_unique_id"
"""Attribute of each backward operation: the id of its forward operation.

MindSpore's optimization AdjustAllReduceMulAdd makes a new AllReduce without this attribute. It was
written for AllReduces of weights' gradients ("grad_mirror"), so those are not checked."""

_LOGGED = re.compile(
    r"^\[(?:ERROR|CRITICAL)\] PARALLEL\([^)]*\):\S+ \[[^\]]*\] \w+\] (.*)$", re.MULTILINE
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception): .*)$", re.MULTILINE)


@dataclass(frozen=True)
class Communication:
    """One communication operation of the graph.

    Args:
        operation: AllReduce, AllGather, …
        purpose: Why MindSpore inserted it.
        ranks: The ranks of its group.
        sent: Type and shape of its inputs.
        received: Type and shape of its outputs.
        bytes: Bytes of its inputs or outputs, whichever are larger.
        where: Path of the Cell that contains it; the first part is the network.
        count: Executions per step.
        merged: True if MindSpore's graph optimizer moved another term into this AllReduce of a
            gradient: AllReduce(x)·y + z became AllReduce(x + z)·y. The gradient is then wrong
            (docs/internals/mindspore_all_reduce.md).
    """

    operation: str
    purpose: str
    ranks: tuple[int, ...]
    sent: str
    received: str
    bytes: int
    where: str
    count: int = 1
    merged: bool = False


def communications(lines: Iterable[str]) -> list[Communication]:
    """List every communication operation of a graph, with its count per step.

    Args:
        lines: The lines of the graph's dump.
    """
    found: list[tuple[str, Communication]] = []
    calls: dict[str, Counter[str]] = {}
    entry = ""
    for graph, line, types, scope in _nodes(lines):
        entry = entry or graph
        called = calls.setdefault(graph, Counter())
        if node := _NODE.match(line):
            found.append((graph, _communication(node[1], line, types, scope)))
        elif call := _CALL.match(line):
            called.update(_graphs_called(call))
    times = _times(entry, calls)
    return [replace(one, count=times[graph]) for graph, one in found if times[graph]]


def _nodes(lines: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (graph, node, types, scope) of each node that communicates or calls a graph."""
    graph, node, types = "", "", ""
    for line in lines:
        if line.startswith("subgraph @"):
            graph = line[len("subgraph @") :].split("(")[0].strip()
        elif line.startswith("  %"):
            if node:
                yield graph, node, types, ""
            node = line if _NODE.match(line) or _CALL.match(line) else ""
            types = ""
        elif node and not types and line.lstrip().startswith(": ("):
            types = line.strip()
        elif node and (scope := _SCOPE.search(line)):
            yield graph, node, types, scope[1]
            node = ""
        elif node and line.startswith("}"):
            yield graph, node, types, ""
            node = ""


def _communication(operation: str, line: str, types: str, scope: str) -> Communication:
    instance = _INSTANCE.search(line)
    name = instance[1].strip("_") if instance else ""
    purposes = (purpose for start, purpose in _PURPOSES if name.startswith(start))
    pipeline = "pipeline" if operation in ("Send", "Receive") else "other"
    ranks = _RANKS.search(line)
    no_forward = name.startswith(_BACKWARD) and _MADE_BY_GRADIENT not in line
    before, _, after = types.partition(" -> ")
    return Communication(
        operation=operation,
        purpose=next(purposes, pipeline),
        ranks=tuple(int(rank) for rank in ranks[1].split(",") if rank.strip()) if ranks else (),
        sent=_tensors(before),
        received=_tensors(after),
        bytes=max(_size(before), _size(after)),
        where=_where(scope),
        merged=operation == "AllReduce" and no_forward,
    )


def _tensors(types: str) -> str:
    return ", ".join(f"{kind}[{shape.rstrip(',')}]" for kind, shape in _TENSOR.findall(types))


def _size(types: str) -> int:
    return sum(
        math.prod(map(int, re.findall(r"\d+", shape))) * _bytes(kind)
        for kind, shape in _TENSOR.findall(types)
    )


def _bytes(kind: str) -> int:
    """Return a type's bytes per number, from the bits at the end of its name; 1 for Bool."""
    bits = re.search(r"\d+$", kind)
    return int(bits[0]) // 8 if bits else 1


def _where(scope: str) -> str:
    """Shorten a node's scope to the path of its Cell, starting at the network.

    Default/network-…/PipelineCell/network-PclQwen2ForCausalLM/lm_head-Linear/AllGather-op3
    -> PclQwen2ForCausalLM/lm_head-Linear
    """
    *cells, _ = scope.split("/")
    models = [index for index, cell in enumerate(cells) if cell.endswith("ForCausalLM")]
    if models:
        cells = [cells[models[-1]].partition("-")[2], *cells[models[-1] + 1 :]]
    return "/".join(cells)


def _graphs_called(call: re.Match[str]) -> list[str]:
    """Return the graphs that a call may enter; for a condition, the graphs of all branches."""
    if call[1]:
        return [call[1]]
    names = re.findall(r"@([^@,()\[\]\s]+)", call[2])
    return [name for name in names if name not in ("Partial", "FuncUnion")]


def _times(entry: str, calls: dict[str, Counter[str]]) -> Counter[str]:
    """Return how often each graph is called per step."""
    times = Counter({entry: 1})
    waiting = {name: sum(one[name] > 0 for one in calls.values()) for name in calls}
    ready = [entry]
    while ready:
        graph = ready.pop()
        for called, count in calls.get(graph, Counter()).items():
            times[called] += times[graph] * count
            waiting[called] = waiting.get(called, 1) - 1
            if waiting[called] == 0:
                ready.append(called)
    return times


def reason(log: str) -> str | None:
    """Return the reason of a failed compile, from the process's standard error.

        [ERROR] PARALLEL(77,7f,python):2026-11-21-10:13:42.474.163 [operator_info.cc:248]
            CheckStrategyByVector] LogSoftmaxInfo77: … 512 … cannot be divisible by … 3
        RuntimeError: Failure:operator LogSoftmax init failed

    MindSpore's exception only names the operator that failed. Another line has the reason.

    Args:
        log: The complete standard error.

    Returns:
        The exception and the logged reasons; None if the log has neither.
    """
    logged = dict.fromkeys(_LOGGED.findall(log))
    parts = [line.strip() for line in _RAISED.findall(log)[-1:]]
    parts += [f"  {line.strip()}" for line in logged if not line.rstrip().endswith("failed.")]
    return "\n".join(parts) or None
