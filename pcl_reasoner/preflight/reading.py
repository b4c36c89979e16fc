"""Rules: does each stage read what it needs, and does somebody read what it writes?"""

from __future__ import annotations

from collections.abc import Iterator

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import ADVANTAGES, PASS_RATES
from pcl_reasoner.scene.graph import Given, Node, Scene
from pcl_reasoner.scene.rule import Found
from pcl_reasoner.stages import ALL_STAGES, PROOF_ROLE
from pcl_reasoner.train.shape import training_of

_CLEAN = "problems to ask"
_PROBLEMS = "problems"
_WRITES: dict[str, tuple[str, ...]] = {
    "convert": ("rows",),
    "difficulty": ("rows that are sometimes wrong",),
    "lengths": ("rows",),
    "unique": (_PROBLEMS,),
    "mix": (_PROBLEMS, _CLEAN),
    "contamination": (_PROBLEMS, _CLEAN, "contaminated questions"),
    "check_tests": (_PROBLEMS, _CLEAN),
    "revise": (_PROBLEMS, _CLEAN),
    "pass_rate": (_PROBLEMS, _CLEAN),
    "solved": (_PROBLEMS, _CLEAN),
    "sample": ("responses",),
    "perplexity": ("responses",),
    "tidy": ("responses",),
    "select": ("responses", "responses with rewards"),
    "grade": ("verdicts",),
    "tokenize": ("tokens",),
    "old_log_probs": ("tokens",),
    "pack": ("packed rows",),
    "train": ("a checkpoint",),
    "rl": ("a checkpoint", "visits of problems", "responses"),
    "export": ("a model",),
    "evaluate": ("scores",),
    "prove": ("a proof",),
}
"""Type of a stage -> what its artifact has."""
_READS: dict[str, tuple[str, ...]] = {
    "difficulty.rows": ("rows",),
    "lengths.rows": ("rows that are sometimes wrong",),
    "unique.rows": ("rows",),
    "contamination.problems": (_PROBLEMS, "rows"),
    "mix.problems": (_PROBLEMS,),
    "check_tests.problems": (_PROBLEMS,),
    "revise.problems": (_PROBLEMS,),
    "pass_rate.problems": (_PROBLEMS,),
    "solved.problems": (_PROBLEMS,),
    "problems": (_CLEAN,),
    "held_out": (_CLEAN,),
    "train.probe": (_CLEAN,),
    "responses": ("responses",),
    "verdicts": ("verdicts",),
    "samples": ("tokens",),
    "packs": ("packed rows",),
    "checkpoint": ("a checkpoint",),
    "rounds": ("visits of problems",),
    "evaluate.contamination": ("contaminated questions",),
    "policy": ("a model",),
    "model": ("a model",),
    "judge": ("a model",),
    "reward_model": ("a model",),
    "tokenizer": ("a model",),
    "proof": ("a proof",),
}
"""``role`` or ``type.role`` -> what the input must have, one of these."""
_OF_SOURCE = {
    "responses": ("responses with rewards",),
    "samples": ("responses",),
    "rows": ("rows", _CLEAN),
}
"""``tokenize.source`` -> what its input ``responses`` must have."""
_ENDS = ("evaluate", "export", "train", "rl", "prove")
"""Types of stages whose output is for a person, whether or not a stage reads it. A training is
none of them in a recipe that exports: then its checkpoint was meant to be exported."""
_WEIGHTS = ("policy", "model", "judge", "reward_model", "tokenizer")


def broken_recipes(scene: Scene) -> Iterator[Found]:
    """Another recipe that is read is wrong, or recipes read one another in a circle."""
    for text in dict.fromkeys(scene.broken):
        yield Found((), text)


def wrong_input(scene: Scene) -> Iterator[Found]:
    """A stage reads a stage that does not write what it needs, e.g. a checkpoint as a policy."""
    for node in scene.nodes.values():
        for role, inputs in node.inputs.items():
            for given in inputs:
                wanted = _wanted(node, role)
                if given.node is None or not given.whole or not wanted:
                    continue
                writes = _written(given.node)
                if writes and not set(writes) & set(wanted):
                    yield Found((node,), _wrong(scene, node, role, given.node, wanted))


def _wanted(node: Node, role: str) -> tuple[str, ...]:
    if node.type == "tokenize" and role == "responses":
        return _OF_SOURCE[node.config.source]
    return _READS.get(f"{node.type}.{role}") or _READS.get(role, ())


def _written(node: Node) -> tuple[str, ...]:
    """What a stage's artifact has; a filter of responses keeps their rewards."""
    if node.type in ("tidy", "perplexity") and (read := node.stage("responses")):
        return tuple(dict.fromkeys((*_WRITES[node.type], *_written(read))))
    return _WRITES.get(node.type, ())


def _wrong(scene: Scene, node: Node, role: str, read: Node, wanted: tuple[str, ...]) -> str:
    fits = [
        other.name
        for other in scene.nodes.values()
        if other.recipe.name == node.recipe.name
        and set(_written(other)) & set(wanted)
        and node not in other.before()
        and other is not node
    ]
    reader = next(
        (one for one in fits if read in scene.nodes[f"{node.recipe.name}/{one}"].before()), None
    )
    better = [reader] if reader else fits[:3]
    advice = f" Give it {' or '.join(better)}." if better else ""
    return (
        f"stage {node.title}: its input {role} needs {' or '.join(wanted)}, and {read.name} (a "
        f"stage {read.type}) writes {', '.join(_written(read))}.{advice}"
    )


def wrong_source(scene: Scene) -> Iterator[Found]:
    """A hub repository is a data set where weights are needed, or the other way round."""
    for node in scene.nodes.values():
        for role, inputs in node.inputs.items():
            for given in inputs:
                source = given.source
                if source is None or not source.hub:
                    continue
                wanted = "model" if role in _WEIGHTS else "dataset"
                if source.kind != wanted:
                    yield Found(
                        (node,),
                        f"stage {node.title}: its input {role} needs a {wanted}, and source "
                        f"{given.name} ({source.hub}) has the kind {source.kind}. Name another "
                        f"source, or set sources.{given.name}.kind={wanted}.",
                    )


def proof_of_another_model(scene: Scene) -> Iterator[Found]:
    """The servers of one model would be compared with the proof of another, or with no server's."""
    for node in scene.nodes.values():
        proof = node.stage(PROOF_ROLE)
        roles = [needs.role for needs in node.config.servers(node.inputs)]
        asked = node.first(roles[0]) if roles else None
        if proof is None or proof.type != "prove" or asked is None:
            continue
        proved = proof.first("model")
        wrong = None
        if proof.config.engine != "server":
            wrong = f"{proof.name}.engine is {proof.config.engine}: no server was compared there"
        elif proved is not None and _weights(proved) != _weights(asked):
            wrong = f"{proof.name} proves {proved.name}, and this stage asks {asked.name}"
        if wrong:
            yield Found(
                (node,),
                f"stage {node.title}: its input proof does not fit: {wrong}. Name a stage prove "
                f"whose servers serve {asked.name}, or leave the input out.",
            )


def _weights(given: Given) -> object:
    return (given.node, given.whole) if given.node else _origin(given)


def unread_output(scene: Scene) -> Iterator[Found]:
    """No stage reads what a stage writes: it was put between two stages, but not connected."""
    if scene.until:
        return
    read = {
        given.node
        for node in scene.nodes.values()
        for inputs in node.inputs.values()
        for given in inputs
    }
    own = [node for node in scene.nodes.values() if node.recipe is scene.recipe]
    chain = [node for node in own if ALL_STAGES not in node.spec.inputs]
    exports = any(node.type == "export" for node in chain)
    ends = [kind for kind in _ENDS if not (exports and kind in ("train", "rl"))]
    if not any(node.type in ends for node in chain):
        chain.pop()  # a recipe that only makes data: its last stage is what it is for
    for node in chain:
        if node in read or node.type in ends:
            continue
        yield Found(
            (node,),
            f"stage {node.title}: no stage reads its output, so it changes nothing. Name it in the "
            f"inputs of the stage that needs it, e.g. inputs: {{ROLE: {node.name}}}, or remove it.",
        )


def columns_of_the_loss(scene: Scene) -> Iterator[Found]:
    """A loss needs a column that no stage before the training makes, e.g. old log-probs."""
    for node in scene.of_type("train"):
        chain = [node.stage("packs"), *(node.stage("packs") or node).before()]
        made = {one.type for one in chain if one}
        tokenizers = [one for one in chain if one and one.type == "tokenize"]
        if not tokenizers:  # rows from outside
            continue
        rewarded = tokenizers[0].config.source == "responses"
        needs = LOSSES[node.config.loss].needs(node.config.loss_parameters)
        graded = {PASS_RATES, ADVANTAGES}
        missing = [
            name
            for name in needs
            if (name in graded and not rewarded)
            or (name not in graded and "old_log_probs" not in made)
        ]
        if missing:
            yield Found((node,), _columns(node, missing, graded))


def _columns(node: Node, missing: list[str], graded: set[str]) -> str:
    others = "opg, sft or rft"
    if graded & set(missing):
        advice = f"Train on graded responses (tokenize.source: responses), or use {others}."
    else:
        pack = node.stage("packs")
        length = node.config.seq_length
        advice = (
            f"Add the stage old_log_probs: {{seq_length: {length}}} and let "
            f"{pack.name if pack else 'pack'} read it (inputs: {{samples: old_log_probs}}), or use "
            f"{others}."
        )
    return (
        f"stage {node.title}: the loss {node.config.loss} needs "
        f"{' and '.join(missing)}, and no stage before it makes them. {advice}"
    )


def groups_of_one(scene: Scene) -> Iterator[Found]:
    """One response per problem, and groups with a single verdict are dropped: nothing is left."""
    for node in scene.of_type("select"):
        drawn = [one for one in node.before() if one.type == "sample"]
        if node.config.drop_groups == "both" and drawn and drawn[0].config.n == 1:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('drop_groups')} is both and "
                f"{drawn[0].told('n')} is 1: every problem has only correct or only incorrect "
                f"responses, so all would be dropped. Raise {drawn[0].name}.n, or set "
                f"{node.name}.drop_groups to all_incorrect or none.",
            )


def token_ids_of_another_model(scene: Scene) -> Iterator[Found]:
    """Token ids of one model's responses are trained into another model."""
    for node in scene.of_type("tokenize"):
        if node.config.source == "rows" or node.config.encode_text:
            continue
        encoded = any(one.type == "perplexity" and one.config.encode_text for one in node.before())
        samplers = [one for one in node.before() if one.type == "sample"]
        if encoded or not samplers or "recorded" in samplers[0].inputs:
            continue
        ours, theirs = _root(node, "policy"), _root(samplers[0], "policy")
        if ours and theirs and ours != theirs:
            yield Found(
                (node,),
                f"stage {node.title}: takes the token ids of {theirs}, which "
                f"{samplers[0].name} sampled from, for {ours}. If the two have different "
                f"tokenizers, set {node.name}.encode_text=true: the texts are then encoded again.",
            )


def _root(node: Node, role: str) -> str | None:
    """The source of the weights that a stage reads: an exported model has its policy's tokens."""
    given = node.first(role)
    seen = 0
    while given and given.node and seen < 100:
        given, seen = given.node.first("policy"), seen + 1
    if given is None or given.source is None:
        return None
    return given.source.hub or given.source.path


def benchmarks_not_compared(scene: Scene) -> Iterator[Found]:
    """A benchmark is asked that no contamination check of the training data was made against."""
    checks = list(scene.of_type("contamination"))
    if not checks:
        return
    compared = {_origin(one) for node in checks for one in node.inputs.get("benchmark", [])}
    against = {name for node in checks for name in node.config.against}
    for node in scene.of_type("evaluate"):
        if node.recipe is not scene.recipe:
            continue
        missing = [
            one.name
            for one in node.inputs.get("benchmark", [])
            if _origin(one) not in compared and one.name not in against
        ]
        if missing:
            yield Found(
                (node,),
                f"stage {node.title}: asks {', '.join(missing)}, and {checks[-1].name} does not "
                f"compare the training data with it. Add it to {checks[-1].name}.inputs.benchmark, "
                "or read the score as possibly contaminated.",
            )


def _origin(given: object) -> object:
    source = getattr(given, "source", None)
    return (source.hub or source.path, source.files) if source else getattr(given, "name", None)


_COMPARED = (
    "n engine temperature top_k top_p min_p repetition_penalty max_new_tokens max_model_len "
    "template contest_since contest_before"
)


def evaluations_differ(scene: Scene) -> Iterator[Found]:
    """Two evaluations of one benchmark sample differently, so their scores cannot be compared."""
    first: dict[object, Node] = {}
    for node in scene.of_type("evaluate"):
        if node.recipe is not scene.recipe:
            continue
        for given in node.inputs.get("benchmark", []):
            other = first.setdefault(_origin(given), node)
            different = [
                f"{key} {getattr(other.config, key)!r} and {getattr(node.config, key)!r}"
                for key in _COMPARED.split()
                if getattr(other.config, key) != getattr(node.config, key)
            ]
            if different:
                yield Found(
                    (other, node),
                    f"stages {other.title} and {node.title}: ask {given.name} with different "
                    f"{', '.join(different)}: their scores cannot be compared. Give both the same "
                    "values.",
                )
                break


def choices_overruled(scene: Scene) -> Iterator[Found]:
    """A profile or a launch file sets a value that a choice was made for."""
    for text in scene.recipe.overruled:
        yield Found((), text)


def trains_on_device(node: Node) -> str | None:
    """The device on which a stage computes; None if it computes on none."""
    config = training_of(node.config) or node.config
    found: str | None = getattr(config, "device", None)
    if node.type == "perplexity" and node.config.engine == "server":
        return None
    return found
