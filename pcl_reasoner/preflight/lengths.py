"""Rules: do the lengths in tokens fit together, and do they fit the model?"""

from __future__ import annotations

from collections.abc import Iterator

from pcl_reasoner.scene.graph import Node, Scene
from pcl_reasoner.scene.model_facts import model_of
from pcl_reasoner.scene.rule import Found

_LONGER = ("--hf-overrides", "--hf_overrides", "--rope-scaling", "--rope_scaling")
"""Options of vLLM that give a model another context than its config.json."""
_ALLOWED = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""vLLM's variable that allows a longer context than the model's config.json."""


def rows_of_another_length(scene: Scene) -> Iterator[Found]:
    """Rows are packed to another length, or with more segments, than the training reads."""
    for node in scene.of_type("train"):
        pack = node.stage("packs")
        if pack is None or pack.type != "pack":
            continue
        packed, trained = pack.config, node.config
        if packed.seq_length != trained.seq_length:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('seq_length')} is {trained.seq_length:,}, and "
                f"{pack.told('seq_length')} is {packed.seq_length:,}. Set both to the same: the "
                "rows are trained as they are packed.",
            )
        if packed.max_segments > trained.max_segments:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('max_segments')} is {trained.max_segments}, and "
                f"{pack.told('max_segments')} is {packed.max_segments}: a row can have more "
                f"segments than the training reads. Set {node.name}.max_segments to "
                f"{packed.max_segments}.",
            )


def segments_longer_than_rows(scene: Scene) -> Iterator[Found]:
    """A segment can be longer than the row into which it must fit, and that is an error."""
    for node in scene.of_type("pack", "old_log_probs"):
        if node.type == "pack" and node.config.over_length != "error":
            continue
        for made in node.before():
            if made.type != "tokenize":
                continue
            longest, row = made.config.max_segment_tokens, node.config.seq_length
            if longest > row:
                yield Found(
                    (node, made),
                    f"stage {node.title}: {made.told('max_segment_tokens')} is {longest:,}, and "
                    f"{node.told('seq_length')} is {row:,}: the first longer segment is an error. "
                    f"Set {made.name}.max_segment_tokens to at most {row}.",
                )


def responses_longer_than_rows(scene: Scene) -> Iterator[Found]:
    """A response can be longer than the stage ``perplexity`` takes, and that is an error there."""
    for node in scene.of_type("perplexity"):
        drawn = next((one for one in node.before() if one.type == "sample"), None)
        if node.config.over_length != "error" or drawn is None or "recorded" in drawn.inputs:
            continue
        longest = drawn.config.max_model_len
        if longest > node.config.seq_length:
            yield Found(
                (node,),
                f"stage {node.title}: {drawn.told('max_model_len')} is {longest:,}, and "
                f"{node.told('seq_length')} is {node.config.seq_length:,}: the first longer "
                f"response is an error. Set {node.name}.over_length=drop, or make it at least "
                f"{longest}.",
            )


def no_room_for_a_prompt(scene: Scene) -> Iterator[Found]:
    """A response may be as long as the context, so that no prompt fits before it."""
    names = (
        ("max_new_tokens", "max_model_len"),
        ("judge_max_new_tokens", "judge_max_model_len"),
        ("opinion_max_new_tokens", "opinion_max_model_len"),
    )
    for node in scene.nodes.values():
        for new, length in names:
            tokens, context = getattr(node.config, new, None), getattr(node.config, length, None)
            if tokens and context and tokens >= context:
                yield Found(
                    (node,),
                    f"stage {node.title}: {node.told(new)} is {tokens:,}, and "
                    f"{node.told(length)} is {context:,}, which the prompt and the response share. "
                    f"Lower {node.name}.{new}, or raise {node.name}.{length}.",
                )
    yield from _judges(scene)


def _judges(scene: Scene) -> Iterator[Found]:
    """A judge reads the end of a response besides its own reply."""
    for node in scene.of_type("grade"):
        config = node.config
        needed = config.last_tokens + config.judge_max_new_tokens
        if config.asks_judge and config.judge_max_new_tokens < config.judge_max_model_len < needed:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('last_tokens')} and "
                f"{node.told('judge_max_new_tokens')} are {needed:,} tokens together, and "
                f"{node.told('judge_max_model_len')} is {config.judge_max_model_len:,}. Raise "
                f"{node.name}.judge_max_model_len, or lower one of the others.",
            )


def context_over_the_models(scene: Scene) -> Iterator[Found]:
    """More context is asked of a server than its model has; vLLM then refuses to start."""
    for ask in scene.asks():
        node, needs = ask.node, ask.needs
        model = model_of(scene, node, needs.role)
        serving = ask.placement.serving_of(needs.kind)
        if serving and (
            any(word.split("=")[0] in _LONGER for word in serving.arguments)
            or _ALLOWED in serving.environment
            or _ALLOWED in ask.placement.env
        ):
            continue
        if model and model.context and needs.max_model_len > model.context:
            key, wanted = _key_of(node, needs.kind)
            more = needs.max_model_len - wanted
            yield Found(
                (node,),
                f"stage {node.title}: {node.told(key)} is {wanted:,}"
                + (f", and the server needs {more} more" if more else "")
                + f"; the context of its {needs.role} is {model.context:,} tokens "
                f"({model.title}). Set {node.name}.{key} to at most {model.context - more}, or "
                "have the server extend the context (vLLM's --hf-overrides).",
            )


def _key_of(node: Node, kind: str) -> tuple[str, int]:
    """The key that sets the context of a kind of servers, and its value."""
    if kind == "judging" and node.type == "contamination":
        return "judge.max_model_len", node.config.judge.max_model_len
    if kind == "judging":
        return "judge_max_model_len", node.config.judge_max_model_len
    if kind == "opinion":
        return "opinion_max_model_len", node.config.opinion_max_model_len
    if kind == "scoring":
        graded = node.config if node.type == "grade" else node.config.grade
        prefix = "" if node.type == "grade" else "grade."
        return f"{prefix}reward_model.max_model_len", graded.reward_model.max_model_len
    key = "seq_length" if node.type == "perplexity" else "max_model_len"
    return key, getattr(node.config, key)


def segments_over_the_context(scene: Scene) -> Iterator[Found]:
    """A segment is longer than the sequences for which the trained model has positions."""
    for node in scene.of_type("tokenize"):
        model, longest = model_of(scene, node, "policy"), node.config.max_segment_tokens
        if model and model.context and longest > model.context:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('max_segment_tokens')} is {longest:,}, and the "
                f"context of its policy is {model.context:,} tokens ({model.title}). Set it to at "
                f"most {model.context}.",
            )


def dropped_later(scene: Scene) -> Iterator[Found]:
    """Responses are selected that are then dropped because they are longer than a segment."""
    for node in scene.of_type("tokenize"):
        chosen = next((one for one in node.before() if one.type == "select"), None)
        if chosen is None or chosen.config.max_response_tokens is None:
            continue
        kept, longest = chosen.config.max_response_tokens, node.config.max_segment_tokens
        if kept >= longest:
            yield Found(
                (node,),
                f"stage {node.title}: {chosen.told('max_response_tokens')} is {kept:,}, and "
                f"{node.told('max_segment_tokens')} is {longest:,} with the prompt: the longest "
                f"responses are selected and then {_done(node)}. Raise "
                f"{node.name}.max_segment_tokens, or lower {chosen.name}.max_response_tokens.",
            )


def responses_cut_short(scene: Scene) -> Iterator[Found]:
    """Problems with long responses are kept, and a response to them may not be as long."""
    for node in scene.of_type("sample", "rl"):
        kept = [one for one in node.before() if one.type == "lengths"]
        if not kept or "recorded" in node.inputs:
            continue
        limits = {key: getattr(node.config, key) for key in ("max_model_len", "max_new_tokens")}
        longest, key = min((value, key) for key, value in limits.items() if value)
        mean = kept[0].config.min_mean_tokens
        if longest < mean:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told(key)} is {longest:,}, and "
                f"{kept[0].told('min_mean_tokens')} keeps only problems whose responses have "
                f"{mean:,} tokens or more on average: most responses would be cut before their "
                f"answer. Raise {node.name}.{key}, or lower {kept[0].name}.min_mean_tokens.",
            )


def _done(node: Node) -> str:
    return {"drop": "dropped", "truncate": "truncated"}.get(node.config.over_length, "an error")
