"""Rules: is each model asked with the words that it is trained with, and are the files there?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pcl_reasoner.core.files import expanded, shipped
from pcl_reasoner.scene.graph import Node, Scene
from pcl_reasoner.scene.rule import Found

_FILES = {
    "template": "the chat template",
    "prompt": "the judge's prompt",
    "rubric_prompt": "the rubric's prompt",
    "human": "the file of human verdicts",
    "review": "the reviewer's decisions",
    "python.file": "the file of your function",
}
"""Fields that name a file, which nothing else checks before the stage runs."""
_MUST_HAVE = {
    "prompt": ("{ground_truth}", "{candidate}"),
    "rubric_prompt": ("{problem}", "{answer}"),
}
"""Field -> what its file must have, as grade/judging.py and grade/rubric.py say."""


def prompts_differ(scene: Scene) -> Iterator[Found]:
    """A model is sampled, trained and evaluated with different prompts."""
    models: dict[str, dict[str, list[Node]]] = {}
    for node in scene.nodes.values():
        if hasattr(node.config, "suffix") and hasattr(node.config, "system"):
            words = f"system {node.config.system!r} and suffix {node.config.suffix!r}"
            template = getattr(node.config, "template", None)
            words += f" and template {template!r}" if template else ""
            key = f"{node.recipe.name} {_trained_from(node)}"
            models.setdefault(key, {}).setdefault(words, []).append(node)
    for prompts in models.values():
        if len(prompts) > 1:
            used = (
                f"{' and '.join(node.name for node in nodes)} use {words}"
                for words, nodes in prompts.items()
            )
            yield Found(
                tuple(node for nodes in prompts.values() for node in nodes),
                f"the stages' prompts differ: {'; '.join(used)}. A model is sampled, trained and "
                "evaluated with the same words: give all these stages the same system and suffix.",
            )


def _trained_from(node: Node) -> str:
    """The source, or the stage of another recipe, of the weights that a stage asks or trains."""
    seen = [node]
    while True:
        given = node.first("model") or node.first("policy")
        if given is None:
            return node.title
        if given.source is not None or given.node is None or given.node in seen:
            return given.name
        node = given.node
        seen.append(node)


def prompts_of_another_recipe(scene: Scene) -> Iterator[Found]:
    """A model that another recipe trains is asked with other words than it is trained with."""
    for node in scene.nodes.values():
        if not (hasattr(node.config, "suffix") and hasattr(node.config, "system")):
            continue
        made = node.stage("model") or node.stage("policy")
        if made is None or made.type != "export" or made.recipe is node.recipe:
            continue
        trained = next((one for one in made.before() if one.type == "tokenize"), None)
        if trained is None:
            continue
        # Without a system turn of its own, a stage gets that of the exported chat template.
        same = node.config.system in (None, trained.config.system)
        if node.config.suffix != trained.config.suffix or not same:
            yield Found(
                (node,),
                f"stage {node.title}: asks with system {node.config.system!r} and suffix "
                f"{node.config.suffix!r}, and {trained.title} trains its {_role(node)} with system "
                f"{trained.config.system!r} and suffix {trained.config.suffix!r}. Give the stage "
                "the same words; leave system out to take that of the exported chat template.",
            )


def _role(node: Node) -> str:
    return "model" if "model" in node.inputs else "policy"


def missing_files(scene: Scene) -> Iterator[Found]:
    """A prompt, template or other file that a setting names is not there, or lacks a field."""
    for node in scene.nodes.values():
        for key, meaning in _FILES.items():
            value = node.config
            for part in key.split("."):
                value = getattr(value, part, None)
            if isinstance(value, str) and (problem := _problem(key, expanded(value))):
                yield Found(
                    (node,), f"stage {node.title}: {node.told(key)}: {value}: {meaning} {problem}"
                )


def _problem(key: str, file: Path) -> str | None:
    """What is wrong with a file; None if nothing is."""
    if not file.is_file():
        example = shipped("recipes") / "prompts" / "judge.txt"
        shown = f", e.g. {example}" if key == "prompt" else ""
        return f"is not there. Correct the path{shown}, or leave the key out."
    try:
        text = file.read_text(encoding="utf-8") if key in _MUST_HAVE else ""
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be read ({error}). Correct the file."
    absent = [name for name in _MUST_HAVE.get(key, ()) if name not in text]
    return (
        f"lacks {' and '.join(absent)}. Add {'it' if len(absent) == 1 else 'them'}."
        if absent
        else None
    )
