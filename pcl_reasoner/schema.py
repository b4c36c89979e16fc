"""The parts of recipe and launch files that are not stages: sources, placement, launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pcl_reasoner.files import nearest


class Source(BaseModel):
    """Where data or weights come from: a path, the hub, or a stage (of this or another recipe)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    """A file or folder, relative to the working directory; with ``stage``: inside its folder."""
    hub: str | None = None
    """Repository id on the Hugging Face hub."""
    revision: str | None = None
    """Commit or tag on the hub; required there."""
    kind: str = Field("dataset", pattern="^(dataset|model)$")
    """What the hub repository is."""
    files: str | None = None
    """Glob of the files to take; all when left out."""
    recipe: str | None = None
    """Another recipe, run with the same profile, launch file and seed."""
    stage: str | None = None
    """The stage whose artifact is the source."""

    @model_validator(mode="after")
    def _one_origin(self) -> Source:
        if self.hub and (self.path or self.stage):
            raise ValueError("a source is one of path, hub or stage, got several")
        if not (self.hub or self.path or self.stage):
            raise ValueError("a source needs one of path, hub or stage")
        if self.hub and not self.revision:
            raise ValueError("a hub source needs a revision, e.g. a commit")
        if self.revision and not self.hub:
            raise ValueError("only a hub source has a revision")
        if self.recipe and not self.stage:
            raise ValueError("a recipe source needs the stage to take")
        return self


class DataEngine(BaseModel):
    """Where the parts of a data stage run: in the stage's own process, or as tasks on Ray."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    """Of a Ray cluster, e.g. auto or ray://head:10001; None: workers of this machine."""
    workers: int = Field(1, gt=0)
    """Tasks at a time."""


class Serving(BaseModel):
    """A vLLM server that a stage starts itself, watches and stops."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    executable: str
    """Path of ``vllm``; of its environment's ``python`` where the package is not named vllm."""
    arguments: list[str] = Field(default_factory=list)
    """Further arguments of ``vllm serve``; they come last."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Over ``env``, for the server alone."""
    start_seconds: float = Field(1800.0, gt=0)
    """Until it answers; large weights take minutes to load."""
    restarts: int = Field(3, ge=0)
    """How often it is started again in one stage after it was lost."""


class Placement(BaseModel):
    """The half of a launch file that never changes results: where, and with how much."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hosts: list[str] = Field(default=["localhost"], min_length=1)
    """Host names or addresses; the first is the master."""
    devices_per_host: int = Field(1, gt=0)
    """Counted in dies: a 910C node shows 16."""
    master_port: int = Field(8118, gt=0, lt=65536)
    cluster_time_out: int = Field(1200, gt=0)
    """Seconds that msrun waits for all workers."""
    log_dir: str = "output/msrun_log"
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the training and server processes."""
    set_env: str | None = None
    """Shell file to source first (CANN's set_env.sh)."""
    server_urls: list[str] = Field(default_factory=list)
    """OpenAI-compatible servers that answer for the policy, e.g. http://host:8000/v1."""
    sampling: Serving | None = None
    """A server that sample and evaluate start themselves, in place of server_urls."""
    server_devices: int = Field(1, gt=0)
    """Devices a server (vLLM's tensor parallel size)."""
    server_port: int = Field(8000, gt=0, lt=65536)
    judge_urls: list[str] = Field(default_factory=list)
    """OpenAI-compatible servers that answer for the judge."""
    duckdb_memory: str = "1GB"
    """DuckDB's memory limit; beyond it, it spills to disk."""
    threads: int = Field(2, gt=0)
    """Threads for curation and embedding; with several workers, of each."""
    data: DataEngine = DataEngine()
    """The data engine of curation and of the contamination check."""

    @model_validator(mode="after")
    def _one_kind_of_server(self) -> Placement:
        if self.sampling and self.server_urls:
            raise ValueError("servers are named by server_urls or started by sampling, got both")
        return self


class Launch(BaseModel):
    """A launch file: where a recipe runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    profile: str
    """The profile that this launch file is for; ``paper`` is a recipe's top level."""
    verified: str
    """One sentence: what of this layout was seen to run, and what was not."""
    hashed: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By stage type: keys that change results (precision, parallel layout, which sampler)."""
    placement: Placement = Placement()


def sentences(
    error: ValidationError, where: Callable[[str], str], prefix: str, model: type[BaseModel]
) -> Iterator[str]:
    """Turn pydantic's findings into our sentences: file: path: what, got against expected.

    Args:
        error: What pydantic found.
        where: Top-level key -> the file that it came from.
        prefix: E.g. ``stage pack: ``.
        model: What was validated, for the nearest known key.
    """
    for detail in error.errors():
        location = detail["loc"]
        path = ".".join(str(part) for part in location)
        start = f"{where(str(location[0]) if location else '')}: {prefix}"
        if detail["type"] == "extra_forbidden":
            known = list(_model_at(model, location[:-1]).model_fields)
            yield f"{start}{path}: unknown key.{nearest(str(location[-1]), known)}"
        elif detail["type"] == "missing":
            yield f"{start}{path}: must be given."
        else:
            message = detail["msg"].removeprefix("Value error, ")
            shown = "" if isinstance(detail["input"], dict) else f", got {detail['input']!r}"
            yield f"{start}{path}{': ' if path else ''}{message}{shown}."


def _model_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that a path into a model's value leads to."""
    for part in path:
        info = model.model_fields.get(str(part))
        inner = list(_models_in(info.annotation)) if info else []
        model = inner[0] if inner else model
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
