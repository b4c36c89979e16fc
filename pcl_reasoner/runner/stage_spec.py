"""One stage of a recipe, with its configuration and inputs."""

from dataclasses import dataclass

from pcl_reasoner.core.stage import StageConfig


@dataclass(frozen=True)
class StageSpec:
    """One stage of a resolved recipe."""

    name: str
    type: str
    config: StageConfig
    inputs: dict[str, list[str]]
    """Role -> names of stages or sources; several names only if the recipe lists several."""
    several: frozenset[str] = frozenset()
    """Roles for which the recipe has a list of names."""
