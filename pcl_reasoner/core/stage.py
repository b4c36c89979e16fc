"""The interface of a stage: its configuration, its counts and the context that it runs in.

A stage is a function

    run(config, inputs, output, context) -> Counts

that reads the folders in ``inputs``, writes its files into ``output``, and counts the records that
it keeps and drops. It never prints, never exits, and never writes into another stage's folder.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from pcl_reasoner.core.checks import check_data_path
from pcl_reasoner.core.errors import shortened
from pcl_reasoner.core.files import exists, expanded
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import ServerKind

RAW_LIMIT_BYTES = 4096
"""Maximum bytes of a refused record in quarantined.jsonl; the rest is cut off."""

CONTENT = "content"
FileName = Annotated[str, CONTENT]
"""A field that may name a file or folder; its content is then part of the fingerprint."""
NOT_HASHED = "not hashed"
"""Marks a field that is left out of the fingerprint.

Such a field never changes an artifact's content, only the stage's speed or whether it succeeds.
"""


@dataclass(frozen=True)
class ServerNeeds:
    """What servers must offer to a stage that asks them.

    Args:
        kind: What they serve; it names the launch file's keys.
        role: The stage's input that holds the weights.
        name: Model name under which the servers offer the weights.
        max_model_len: Largest total length of prompt and response, in tokens.
        template: A file that replaces the weights' own chat template; None for their own.
        replaceable: True if the stage replaces their weights while they run.
    """

    kind: ServerKind
    role: str
    name: str
    max_model_len: int
    template: str | None = None
    replaceable: bool = False


class StageConfig(BaseModel):
    """Base class of all stage configurations. Unknown keys are refused; values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    renamed: ClassVar[Mapping[str, str]] = {}
    """Old key -> new key. The old key is refused, and the error gives the new one."""
    renamed_values: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Key -> old value -> new value. The old value is refused, and the error gives the new one."""
    uses_data_engine: ClassVar[bool] = False
    """Whether the stage's parts run on the launch file's data engine."""
    runs_on_hosts: ClassVar[bool] = False
    """Whether msrun starts the stage's processes on every host of the launch file."""
    waits_for_runner: ClassVar[bool] = False
    """Whether these processes wait for work of the runner's process, so that only it starts them.
    """
    page: ClassVar[str | None] = None
    """File of the artifact that is opened in a browser, e.g. the report; None: there is none."""

    @model_validator(mode="after")
    def _files_that_can_be(self) -> Self:
        for name, text in self._texts_that_name_files().items():
            try:
                check_data_path(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}, got {shortened(repr(text), 100)}") from error
        return self

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """What servers must offer that the stage sends requests to.

        Args:
            roles: The stage's roles that have an input.
        """
        return []

    def trains_on(self, placement: Placement) -> Placement:
        """The part of the machines on which the stage trains."""
        return placement

    def serves_on(self, placement: Placement) -> Placement:
        """The part of the machines on which the servers are that the stage asks."""
        return placement

    def request_urls(self, placement: Placement, roles: Collection[str] = ()) -> list[str]:
        """The running servers of the launch file that the stage sends requests to."""
        return [url for needs in self.servers(roles) for url in placement.urls_of(needs.kind)]

    def hashed(self) -> dict[str, Any]:
        """The fields that are part of the stage's fingerprint."""
        fields = type(self).model_fields.items()
        excluded = {name for name, info in fields if NOT_HASHED in _marks(info)}
        found = self.model_dump(mode="json", exclude=excluded)
        return found | {name: part.hashed() for name, part in self._parts() if name in found}

    def named_files(self) -> dict[str, Path]:
        """Field -> existing file or folder that it names; other values (hub ids) are left out.

        A field with a list of files has a key per file: ``against.0``. A field of a part has the
        part's name first: ``python.file``.
        """
        named = {name: expanded(one) for name, one in self._texts_that_name_files().items()}
        found = {name: path for name, path in named.items() if exists(path)}
        for part_name, part in self._parts():
            found |= {f"{part_name}.{name}": path for name, path in part.named_files().items()}
        return found

    def _texts_that_name_files(self) -> dict[str, str]:
        """Return field -> its text, whether or not such a file exists."""
        values: dict[str, str | None] = {}
        for name, info in type(self).model_fields.items():
            value = getattr(self, name) if CONTENT in _marks(info) else None
            several = value if isinstance(value, list) else []
            values |= {f"{name}.{index}": one for index, one in enumerate(several)} or {name: value}
        return {name: value for name, value in values.items() if value}

    def _parts(self) -> list[tuple[str, "StageConfig"]]:
        """Return the fields that are configurations themselves, e.g. ``reward_model``."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        return [(name, value) for name, value in values if isinstance(value, StageConfig)]


def _marks(field_info: FieldInfo) -> list[Any]:
    # In ``FileName | None`` the mark is on the member of the union.
    inner = [getattr(kind, "__metadata__", ()) for kind in get_args(field_info.annotation)]
    return [*field_info.metadata, *(mark for marks in inner for mark in marks)]


class Counts(BaseModel):
    """Records that a stage read, kept and dropped. All stages' counts in order are the funnel.

    ``read == kept + sum(dropped)`` always holds, and the runner checks it.
    """

    model_config = ConfigDict(extra="forbid")

    unit: str
    """What is counted: rows, problems, responses, segments, tensors …"""
    read: int = Field(ge=0)
    kept: int = Field(ge=0)
    dropped: dict[str, int] = Field(default_factory=dict)
    """Reason -> records that were not kept for that reason; reasons with 0 are left out."""
    info: dict[str, Any] = Field(default_factory=dict)
    """Further figures for the report (fill, positives, seconds per step …). JSON values only."""


class Progress(Protocol):
    """The interface with which a stage reports progress. The command line shows the progress."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Report how far the running stage is."""


class NoProgress:
    """Discards progress, for tests and for use as a library."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Discard the report."""


@dataclass
class StageContext:
    """Everything that a stage may use besides its configuration and inputs.

    Args:
        name: The stage's name in the recipe, e.g. ``evaluate_before``.
        quarantined: File to which refused records are written.
        placement: The launch file's ``placement`` half: hosts, ports, memory limits, environment.
        progress: Where progress is reported.
        cache: Folder for data that can be computed again (embeddings); None: there is no cache.
        recipe: Facts of the recipe that only the report needs (expect, choices, title); read-only.
        start: How processes on the launch file's hosts are started: ``ssh`` or ``local``. None: on
            this machine if the file has one host; with several hosts, training is not started.
    """

    name: str
    quarantined: Path
    placement: Placement = field(default_factory=Placement)
    progress: Progress = field(default_factory=NoProgress)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    cache: Path | None = None
    start: str | None = None
    warnings: list[str] = field(default_factory=list)

    def quarantine(self, file: str, row: int, reason: str, raw: str | bytes) -> None:
        """Append one refused record to the quarantine file, with its origin and the reason.

        Args:
            file: The source file's name.
            row: 0-based row (Parquet, Arrow) or line (JSONL) in that file.
            reason: The same key as in ``Counts.dropped``.
            raw: The record; it is cut to 4 KiB.
        """
        data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
        text = data[:RAW_LIMIT_BYTES].decode("utf-8", "replace")
        record = {"file": file, "row": row, "reason": reason, "raw": text}
        with self.quarantined.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")

    def warn(self, message: str) -> None:
        """Record a warning, shown at the end of the run, in the manifest and in the report."""
        if message not in self.warnings:
            self.warnings.append(message)
