"""What the rules look at: the stages of a recipe and of the recipes that it reads, as a graph.

v15_opg/sample   problems -> v15_opg/contamination
                 policy   -> source policy -> v1_sft/export

Nothing is hashed or fetched, and no artifact is read. So a scene takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.schema import Placement, Source
from pcl_reasoner.core.stage import ServerNeeds
from pcl_reasoner.curate.convert import ConvertConfig
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.problem_kinds import FORMAT_KINDS
from pcl_reasoner.runner.plan import check_others
from pcl_reasoner.runner.recipe import Recipe, load_other
from pcl_reasoner.runner.stage_spec import StageSpec
from pcl_reasoner.stages import ALL_STAGES


@dataclass(frozen=True)
class Given:
    """What a stage reads in one role: a stage's artifact, a part of it, or a source.

    Args:
        name: The name in the recipe's ``inputs``.
        node: The stage; None for data or weights from outside.
        source: The source of this name; None for a stage.
        whole: True if the input is a stage's complete artifact and not one of its folders.
    """

    name: str
    node: Node | None = None
    source: Source | None = None
    whole: bool = True


@dataclass(frozen=True, eq=False)
class Node:
    """One stage.

    Args:
        recipe: The recipe that it is part of.
        spec: Its settings.
        inputs: Role -> what it reads there. A role whose input is wrong is left out.
    """

    recipe: Recipe
    spec: StageSpec
    inputs: dict[str, list[Given]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """``recipe/stage``, as messages name it."""
        return f"{self.recipe.name}/{self.spec.name}"

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.spec.name

    @property
    def type(self) -> str:
        """The stage's type, e.g. ``sample``."""
        return self.spec.type

    @property
    def config(self) -> Any:
        """The stage's settings; the rules know which fields a type has."""
        return self.spec.config

    @property
    def placement(self) -> Placement:
        """The machines of the recipe's launch file."""
        return self.recipe.launch.placement

    def first(self, role: str) -> Given | None:
        """What the stage reads in a role that has one input."""
        found = self.inputs.get(role)
        return found[0] if found else None

    def stage(self, role: str) -> Node | None:
        """The stage that it reads in a role that has one input."""
        given = self.first(role)
        return given.node if given else None

    def before(self) -> Iterator[Node]:
        """The stages that it reads, and those that they read; each once, the nearest first."""
        found = [self]
        # The list grows while it is walked.
        for node in found:
            for given in (one for some in node.inputs.values() for one in some):
                if given.node and given.node not in found:
                    found.append(given.node)
                    yield given.node

    def told(self, key: str) -> str:
        """``stage.key``, with the override or file that set it, unless that is the recipe's own."""
        origin = self.recipe.origins.get((self.name, key.partition(".")[0]))
        return f"{self.name}.{key}" + (f" ({origin})" if origin else "")


@dataclass(frozen=True)
class Ask:
    """What one stage asks of one kind of servers."""

    node: Node
    needs: ServerNeeds

    @property
    def placement(self) -> Placement:
        """The machines on which these servers are."""
        found: Placement = self.node.config.serves_on(self.node.placement)
        return found


@dataclass
class Scene:
    """All stages, and what is known of how they will run.

    Args:
        recipe: The recipe that a person checks or runs.
        nodes: Title -> stage, each after those that it reads.
        to_run: Titles of the stages that will run; None: all.
        until: Whether only a part of the recipe is there.
        here: Whether the run begins on this machine now; False: it is only checked.
        start: The option ``--start`` of the run.
        later: The recipe's unfinished stages after ``until``, if the run begins here.
        broken: Errors that keep stages of other recipes out of the graph.
    """

    recipe: Recipe
    nodes: dict[str, Node] = field(default_factory=dict)
    to_run: Collection[str] | None = None
    until: bool = False
    here: bool = False
    start: str | None = None
    later: list[Node] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def of_type(self, *types: str) -> Iterator[Node]:
        """The stages of some types, in order."""
        yield from (node for node in self.nodes.values() if node.type in types)

    def runs(self, node: Node) -> bool:
        """Whether a stage will run."""
        return self.to_run is None or node.title in self.to_run

    def asks(self) -> Iterator[Ask]:
        """What the stages that will run ask of servers, in order."""
        for node in self.nodes.values():
            if self.runs(node):
                config = node.config
                if isinstance(config, GradeConfig):
                    config = config.model_copy(update={"kinds": kinds_graded(node)})
                yield from (Ask(node, needs) for needs in config.servers(node.inputs))

    def on_cpu(self) -> bool:
        """Whether the launch file trains or computes on a CPU, where devices do not count."""
        return any(getattr(one.config, "device", None) == "CPU" for one in self.nodes.values())


def kinds_graded(node: Node) -> dict[Any, Any]:
    """How a stage ``grade`` grades each kind of problems that can reach it.

    A source that no stage ``convert`` read may have any kind; only mathematics is demanded. What
    was sampled has the kinds that the stage ``sample`` was given.
    """
    found: set[str] = set()
    for one in node.before():
        if isinstance(one.config, ConvertConfig):
            config = one.config
            found.update((config.kind,) if config.kind else FORMAT_KINDS[config.format])
    found = found or {"math"}
    sampled = node.stage("responses")
    if sampled is not None:
        found &= set(getattr(sampled.config, "kinds", None) or found)
    return {kind: how for kind, how in node.config.kinds.items() if kind in found}


def scene_of(
    recipe: Recipe,
    until: str | None = None,
    to_run: Collection[str] | None = None,
    here: bool = False,
    start: str | None = None,
) -> Scene:
    """Make the scene of a recipe.

    Args:
        recipe: The recipe; it may lack stages whose settings are wrong.
        until: The last stage to run; None for all.
        to_run: Titles of the stages that will run; None: all.
        here: Whether the run begins on this machine now.
        start: The option ``--start`` of the run.
    """
    scene = Scene(recipe, {}, to_run, until is not None, here, start)
    scene.broken += check_others(recipe)
    builder = _Builder(scene)
    for name in recipe.stages:
        builder.node(recipe, name)
    return scene


class _Builder:
    """Adds each stage once, after all stages that it reads."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.others: dict[tuple[Any, str], Recipe | None] = {}
        self.walking: list[str] = []

    def node(self, recipe: Recipe, name: str) -> Node | None:
        """Add a stage and what it reads; None if its settings are wrong or it reads itself."""
        title = f"{recipe.name}/{name}"
        if title in self.scene.nodes:
            return self.scene.nodes[title]
        if title in self.walking:
            circle = " -> ".join([*self.walking[self.walking.index(title) :], title])
            self.scene.broken.append(
                f"stages read one another in a circle: {circle}. Let one of them read another "
                "stage or a source."
            )
            return None
        spec = recipe.stages.get(name)
        if spec is None:
            return None
        self.walking.append(title)
        inputs = {
            role: [given for one in names if (given := self._given(recipe, one))]
            for role, names in spec.inputs.items()
            if role != ALL_STAGES
        }
        self.walking.pop()
        self.scene.nodes[title] = Node(recipe, spec, inputs)
        return self.scene.nodes[title]

    def _given(self, recipe: Recipe, name: str) -> Given | None:
        if name in recipe.stages:
            node = self.node(recipe, name)
            return Given(name, node) if node else None
        source = recipe.sources.get(name)
        if source is None:  # an error of its own
            return None
        if not source.stage:
            return Given(name, None, source)
        owner = self._other(recipe, name, source) if source.recipe else recipe
        node = self.node(owner, source.stage) if owner else None
        return Given(name, node, source, not source.path) if node else None

    def _other(self, recipe: Recipe, name: str, source: Source) -> Recipe | None:
        key = (recipe.path, name)
        if key not in self.others and len(self.others) < 100:
            try:
                self.others[key] = load_other(recipe, name)
            except InputError:  # check_others has told it
                self.others[key] = None
        return self.others.get(key)
