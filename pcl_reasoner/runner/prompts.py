"""Checks that a recipe's stages ask each model with the same words."""

from collections.abc import Iterator, Mapping

from pcl_reasoner.runner.stage_spec import StageSpec


def prompt_errors(stages: Mapping[str, StageSpec]) -> Iterator[str]:
    """Yield an error if a model would be sampled, trained or evaluated with different prompts."""
    models: dict[str, dict[str, list[str]]] = {}
    for name, spec in stages.items():
        if hasattr(spec.config, "suffix") and hasattr(spec.config, "system"):
            words = f"system {spec.config.system!r} and suffix {spec.config.suffix!r}"
            models.setdefault(_trained_from(name, stages), {}).setdefault(words, []).append(name)
    for prompts in models.values():
        if len(prompts) > 1:
            used = (f"{' and '.join(names)} use {words}" for words, names in prompts.items())
            yield (
                f"the stages' prompts differ: {'; '.join(used)}. A model is sampled, trained and "
                "evaluated with the same words: give all these stages the same system and suffix."
            )


def _trained_from(name: str, stages: Mapping[str, StageSpec]) -> str:
    """Return the source of the weights that a stage asks, trains or writes."""
    seen: set[str] = set()
    while name in stages and name not in seen:  # a circle is an error of its own
        seen.add(name)
        inputs = stages[name].inputs
        found = inputs.get("model") or inputs.get("policy")
        if not found:
            return name
        name = found[0]
    return name
