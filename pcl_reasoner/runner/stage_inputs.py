"""Which stages or sources a stage reads: the recipe's ``inputs``, checked against its roles.

``evaluate: {inputs: {model: policy, benchmark: [aime24, aime25]}}``
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pcl_reasoner.core import files
from pcl_reasoner.core.errors import shortened
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.runner.draft import Draft
from pcl_reasoner.stages import ALL_STAGES, PROOF_ROLE, SERVED, STAGES


def stage_inputs(
    draft: Draft, name: str, kind: str, entry: Any
) -> tuple[dict[str, list[str]], frozenset[str]]:
    """Return (role -> names of its inputs, the roles for which the recipe has a list of names).

    What is wrong is added to the draft's errors.

    Args:
        draft: The recipe.
        name: The stage's name.
        kind: The stage's type.
        entry: The value of the stage's key ``inputs``; None if it has none.

    Returns:
        The inputs, with those of the roles `SERVED` that the recipe does not give; a stage that
        asks no such server must drop them (`without_unasked`).
    """
    where = f"{draft.where(name, 'inputs')}: stages.{name}.inputs"
    given = draft.mapping(entry, where)
    defaults = {role.rstrip("?"): value for role, value in STAGES[kind].inputs.items()}
    optional = {role.rstrip("?") for role in STAGES[kind].inputs if role.endswith("?")}
    for role in given:
        if role not in defaults:
            hint = files.nearest(str(role), defaults)
            draft.errors.append(
                f"{where}.{role}: unknown role.{hint} Roles: {', '.join(defaults)}."
            )
    found: dict[str, list[str]] = {}
    for role, default in defaults.items():
        of_the_name = role if role in SERVED and role in draft.value["sources"] else None
        value: Any = given.get(role, of_the_name if role in optional else default)
        if value is None and role in optional:
            continue
        if problem := next(_problems(kind, role, value), None):
            draft.errors.append(f"{where}.{role}: {problem}.")
        else:
            found[role] = value if isinstance(value, list) else [value]
    return found, frozenset(role for role in found if isinstance(given.get(role), list))


def without_unasked(
    inputs: dict[str, list[str]], given: Any, config: StageConfig
) -> dict[str, list[str]]:
    """Return a stage's inputs without models that it asks no server for.

    Args:
        inputs: The inputs, from `stage_inputs`.
        given: The value of the stage's key ``inputs``; what it names is kept.
        config: The stage's settings.
    """
    asked = {needs.role for needs in config.servers(inputs)}
    named = given if isinstance(given, dict) else {}
    dropped = {role for role in SERVED if role not in asked and role not in named}
    return {role: names for role, names in inputs.items() if role not in dropped}


def proof_of(
    draft: Draft,
    name: str,
    inputs: Mapping[str, list[str]],
    config: StageConfig,
    stage_of: Mapping[str, str],
) -> str | None:
    """Return the stage `prove` of the model whose servers a stage asks; None: there is none.

    Of those that the recipe lists before the stage and that ask servers, the last one counts.

    Args:
        draft: The recipe.
        name: The stage's name.
        inputs: Its inputs.
        config: Its settings.
        stage_of: Name of a source that is a stage of this recipe -> the stage.
    """
    entries = draft.value["stages"]
    kind = entries[name].get("stage", name)
    role = asked_role(kind, inputs, config)
    if role is None or PROOF_ROLE in inputs:
        return None
    (model,) = inputs[role]
    found = None
    for other in list(entries)[: list(entries).index(name)]:
        entry = entries[other]
        given = entry.get("inputs")
        proved = given.get("model", "export") if isinstance(given, dict) else "export"
        same = stage_of.get(str(proved), proved) == stage_of.get(model, model)
        if entry.get("stage", other) == "prove" and entry.get("engine", "server") == "server":
            found = other if same else found
    return found


def asked_role(kind: str, inputs: Mapping[str, list[str]], config: StageConfig) -> str | None:
    """Return the role of the model whose servers are compared with a proof; None: none are."""
    if f"{PROOF_ROLE}?" not in STAGES[kind].inputs:
        return None
    roles = [needs.role for needs in config.servers(inputs) if needs.kind == "sampling"]
    return next((role for role in roles if len(inputs.get(role, [])) == 1), None)


def _problems(kind: str, role: str, value: Any) -> Iterator[str]:
    """What is wrong with the value of one role, the most basic problem first."""
    names = value if isinstance(value, list) else [value]
    shown = shortened(repr(value), 200)
    takes_list = role in STAGES[kind].lists
    if not names or not all(isinstance(item, str) for item in names):
        or_list = ", or a list of names" if takes_list else ""
        yield f"must be the name of a stage or a source{or_list}, got {shown}"
    elif isinstance(value, list) and not takes_list:
        yield f"must be one name and not a list, got {shown}"
    elif len(set(names)) < len(names):
        yield f"names an input twice, got {shown}"
    elif (ALL_STAGES in names) != (role == ALL_STAGES):
        yield f"must be the name of a stage or a source, got {shown}"
