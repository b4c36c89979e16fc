"""Reading what MindSpore writes of a graph: operations, calls, sizes, and why it failed."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.cpu_ranks import mindspore_2_7 as version
from pcl_reasoner.precompile.compile_report import in_our_code
from pcl_reasoner.precompile.mindspore_2_7_graph import Communication, communications, reason

MODEL = "Default/network-_VirtualDatasetCell/_backbone-PipelineCell/network-PclQwen2ForCausalLM"


def node(number: int, operation: str, instance: str, ranks: str, types: str, scope: str) -> str:
    return f"""\
  %{number}(h) = {operation}(%para1) {{instance name: {instance}}} primitive_attrs: \
{{group: "2-50", rank_list: ({ranks}), group_rank_ids: ({ranks})}} cnode_attrs: {{micro: I64(0)}}
      : {types}
      # Fullname with scope: ({scope}/{operation}-op2)
      # In file model.py:97~112, 4~54
"""


GATHER = node(
    1,
    "AllGather",
    "redistribution_op_44AllGather_",
    "0, 1",
    "(<Tensor[BFloat16], (1, 2048, 256)>) -> (<Tensor[BFloat16], (2, 2048, 256)>)",
    MODEL,
)
SCATTER = node(
    2,
    "ReduceScatter",
    "grad_redistribution_op_44AllGather_",
    "0, 1",
    "(<Tensor[Float32], (64)>) -> (<Tensor[Float32], (32)>)",
    f"Gradients/{MODEL}/token_log_probs-TokenLogProbs/Grad_AllGather",
)
MIRROR = node(
    3,
    "AllReduce",
    "grad_mirror_MirrorMicroStepOperator",
    "0, 2",
    "(<Ref[Tensor[Float32]], (16, 4), ref_key=accu_grads.w, is_parameter>) -> "
    "(<Tensor[Float32], (8, 4)>)",
    "Gradients/Default/Grad__MirrorMicroStepOperator",
)
GRAPH = f"""\
# IR entry: @9_main
subgraph attr:
subgraph @9_main() {{
  %7(a) = call @8_forward(%para1)
      : (<Tensor[Float32], (1)>) -> (<Func>)
  %8(b) = call @8_forward(%7)
      : (<Tensor[Float32], (1)>) -> (<Func>)
  %9(c) = %7[@Partial(@7_backward)](%8, UMonad[U]) cnode_attrs: {{is_bp: Bool(1)}}
  %10(d) = %8[@Partial(@7_backward)](%9, UMonad[U]) cnode_attrs: {{is_bp: Bool(1)}}
{MIRROR}  %11(e) = %5[@FuncUnion(Partial(@6_update), Partial(@5_skip))]()
}}

subgraph @8_forward(%para1) {{
{GATHER}  Return(%1)
}}

subgraph @7_backward(%para1) {{
{SCATTER}}}

subgraph @6_update() {{
  %12(f) = PrimFunc_AllReduce(%para2) {{instance name: PARALLEL_GLOBALNORM_IN_STAGES}} \
primitive_attrs: {{group_rank_ids: (0, 1, 2, 3)}}
      : (<Tensor[Float32], (1)>) -> (<Tensor[Float32], (1)>)
}}

subgraph @5_skip() {{
  Return(%para1)
}}

subgraph @4_never_called() {{
{GATHER}}}
"""


@pytest.fixture(scope="module")
def found() -> list[Communication]:
    return communications(GRAPH.splitlines(keepends=True))


def test_what_is_in_a_graph_counts_as_often_as_it_is_called(found: list[Communication]) -> None:
    counts = {(one.operation, one.purpose): one.count for one in found}
    assert counts == {
        ("AllGather", "redistribution"): 2,
        ("ReduceScatter", "redistribution, backward"): 2,
        ("AllReduce", "gradients"): 1,
        ("AllReduce", "gradient norm"): 1,
    }


def test_bytes_are_of_the_larger_side(found: list[Communication]) -> None:
    sizes = {one.purpose: one.bytes for one in found}
    assert sizes["redistribution"] == 2 * 2048 * 256 * 2
    assert sizes["redistribution, backward"] == 64 * 4
    assert sizes["gradients"] == 16 * 4 * 4


def test_groups_shapes_and_places_are_read(found: list[Communication]) -> None:
    by_purpose = {one.purpose: one for one in found}
    gather = by_purpose["redistribution"]
    assert gather.ranks == (0, 1)
    assert (gather.sent, gather.received) == ("BFloat16[1, 2048, 256]", "BFloat16[2, 2048, 256]")
    assert gather.where == "PclQwen2ForCausalLM"
    scatter = by_purpose["redistribution, backward"]
    assert scatter.where == "PclQwen2ForCausalLM/token_log_probs-TokenLogProbs/Grad_AllGather"
    assert by_purpose["gradient norm"].ranks == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("where", "purpose", "ours"),
    [
        ("PclQwen2ForCausalLM", "redistribution", True),
        ("PclQwen2ForCausalLM/token_log_probs-TokenLogProbs", "redistribution", True),
        ("PclQwen2ForCausalLM/policy_loss-OpgLoss", "redistribution", True),
        # Its backward half comes of the forward one.
        ("PclQwen2ForCausalLM/policy_loss-OpgLoss", "redistribution, backward", False),
        # A sharded sum has a reduction of its own: that is no redistribution.
        ("PclQwen2ForCausalLM/policy_loss-OpgLoss", "operator", False),
        ("PclQwen2ForCausalLM/model-LlamaModel/norm_out-LlamaRMSNorm", "redistribution", False),
        ("PclQwen2ForCausalLM/lm_head-Linear", "redistribution", False),
        # The parts' scores are gathered on purpose.
        (
            "PclQwen2ForCausalLM/chunked_log_probs-ChunkedLogProbs/combined_scores-CombinedScores",
            "redistribution",
            False,
        ),
        ("PclQwen2ForCausalLM/chunked_log_probs-ChunkedLogProbs", "redistribution", True),
        ("Default/network-_VirtualDatasetCell/_backbone-PipelineCell", "redistribution", False),
    ],
)
def test_redistribution_in_our_code(where: str, purpose: str, ours: bool) -> None:
    one = Communication("AllGather", purpose, (0, 1), "", "", 0, where)
    assert in_our_code(one) is ours


def test_only_a_gather_of_scores_is_on_purpose() -> None:
    where = "PclQwen2ForCausalLM/chunked_log_probs-ChunkedLogProbs/combined_scores-CombinedScores"
    one = Communication("AlltoAll", "redistribution", (0, 1), "", "", 0, where)
    assert in_our_code(one)


# The end of the line of an AllReduce, as MindSpore 2.7.2 writes it of a gradient.
OF_FORWARD = ' cnode_primal_attrs: {forward_node_name: "AllReduce_12", forward_unique_id: "12"}'


@pytest.mark.parametrize(
    ("instance", "end", "merged"),
    [
        ("gradforward_op_9198431398030145703", OF_FORWARD, False),
        ("gradforward_op_9198431398030145703", "", True),
        ("grad_redistribution_op_44AllGather_", "", True),
        ("forward_op_13220816111362047878", "", False),
        # A weight's gradient, with weight decay added to it: the same number on every rank.
        ("grad_mirror_MirrorOperator", "", False),
    ],
)
def test_an_all_reduce_of_a_gradient_with_no_forward_one_was_merged(
    instance: str, end: str, merged: bool
) -> None:
    text = node(1, "AllReduce", instance, "0, 1", "(<Tensor[Float32], (4, 8, 1)>)", MODEL)
    text = text.replace(" cnode_attrs: {micro: I64(0)}", f" cnode_attrs: {{micro: I64(0)}}{end}")
    assert end in text
    lines = f"subgraph @1_main() {{\n{text}}}\n".splitlines(keepends=True)
    assert [one.merged for one in communications(lines)] == [merged]


# As MindSpore 2.7.2 wrote it.
LOG = """\
[ERROR] PARALLEL(77,7f72,python):2026-11-21-10:13:42.474.163 [mindspore/ccsrc/frontend/parallel/\
ops_info/operator_info.cc:248] CheckStrategyByVector] LogSoftmaxInfo77: Input index 0, the \
strategy is ((1, 3),), shape is [4096, 512], shape value 512 at dim index 1 cannot be divisible by \
strategy value 3
[ERROR] PARALLEL(77,7f72,python):2026-11-21-10:13:42.474.198 [mindspore/ccsrc/frontend/parallel/\
ops_info/operator_info.cc:1457] InferByStrategy] LogSoftmaxInfo77: CheckStrategy failed.
Traceback (most recent call last):
  File "api.py", line 2324, in compile
RuntimeError: Failure:operator LogSoftmax init failed
"""


def test_the_reason_of_a_failed_strategy_is_in_the_log() -> None:
    assert reason(LOG) == (
        "RuntimeError: Failure:operator LogSoftmax init failed\n"
        "  LogSoftmaxInfo77: Input index 0, the strategy is ((1, 3),), shape is [4096, 512], shape "
        "value 512 at dim index 1 cannot be divisible by strategy value 3"
    )
    assert reason("killed\n") is None


def test_only_the_wheel_that_is_known_is_stepped_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(machine: str, found: str) -> str | None:
        monkeypatch.setattr(version.platform, "machine", lambda: machine)
        monkeypatch.setattr(version.metadata, "version", lambda name: found)
        return version.machine_problem()

    assert problem("x86_64", "2.7.2") is None
    assert "for x86-64 only, this machine is aarch64" in str(problem("aarch64", "2.7.2"))
    said = problem("x86_64", "2.9.0")
    assert "needs MindSpore 2.7.1 or 2.7.2, whose internals it uses, got 2.9.0" in str(said)


def test_a_wheel_with_another_layout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol that is not there stands for any difference: nothing was changed by then."""

    class Missing:
        def __init__(self, name: str) -> None:
            raise AttributeError(f"undefined symbol in {name.rpartition('/')[2]}")

    monkeypatch.setattr(version.ctypes, "CDLL", Missing)
    with pytest.raises(
        RuntimeError, match=r"unexpected binary layout .*undefined symbol in libmindspore_core"
    ):
        pretend_without_a_trace(monkeypatch)


def pretend_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID"):
        monkeypatch.setenv(name, "0")
    return version.pretend(1, 2)
