"""What a stage is made of: its configuration, its counts and the context that it is run in.

A stage is a function

    run(config, inputs, output, context) -> Counts

that reads the folders in ``inputs``, writes its files into ``output`` and says what became of
every record. It never prints, never exits, and never touches another stage's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from pcl_reasoner.core.schema import Placement

RAW_LIMIT_BYTES = 4096
"""At most this much of a refused record is kept in quarantined.jsonl."""


CONTENT = "content"
FileName = Annotated[str, CONTENT]
"""A field that may name a file or folder: its content is part of the stage's fingerprint."""
NOT_HASHED = "not hashed"
"""Marks a field that changes no artifact, only whether there is one: no part of the fingerprint."""


@dataclass(frozen=True)
class ServerNeeds:
    """A server that a stage asks.

    Args:
        role: The stage's input that has the weights.
        name: Under which it offers them.
        max_model_len: Longest prompt and response together, in tokens.
    """

    role: str
    name: str
    max_model_len: int


class StageConfig(BaseModel):
    """Base of every stage's configuration: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    renamed: ClassVar[Mapping[str, str]] = {}
    """A key's old name -> its name; the old one is refused with the new one."""
    renamed_values: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """The same for values, by key."""
    uses_data_engine: ClassVar[bool] = False
    """Whether its parts go to the launch file's data engine."""
    runs_on_hosts: ClassVar[bool] = False
    """Whether msrun starts its processes on every host of the launch file."""
    page: ClassVar[str | None] = None
    """The file of its artifact that a person opens."""

    def asked_urls(self, placement: Placement) -> list[str]:
        """Those of the launch file's servers that it asks."""
        return []

    def server(self) -> ServerNeeds | None:
        """What a server must offer that it asks about the policy; None where it asks none."""
        return None

    def hashed(self) -> dict[str, Any]:
        """What of it is part of the stage's fingerprint."""
        fields = type(self).model_fields.items()
        left_out = {name for name, info in fields if NOT_HASHED in _marks(info)}
        return self.model_dump(mode="json", exclude=left_out)

    def named_files(self) -> dict[str, Path]:
        """Field -> the file or folder that it names; other values (hub ids) are left out."""
        found = {}
        for name, field_info in type(self).model_fields.items():
            value = getattr(self, name)
            if CONTENT in _marks(field_info) and value and Path(value).expanduser().exists():
                found[name] = Path(value).expanduser()
        return found


def _marks(field_info: FieldInfo) -> list[Any]:
    # Of ``FileName | None`` the mark is in the union's member.
    inner = [getattr(kind, "__metadata__", ()) for kind in get_args(field_info.annotation)]
    return [*field_info.metadata, *(mark for marks in inner for mark in marks)]


class Counts(BaseModel):
    """What became of a stage's records; the funnel is the counts of all stages in order.

    ``read == kept + sum(dropped)`` always holds, and the runner checks it.
    """

    model_config = ConfigDict(extra="forbid")

    unit: str
    """What is counted: rows, problems, responses, segments, tensors …"""
    read: int = Field(ge=0)
    kept: int = Field(ge=0)
    dropped: dict[str, int] = Field(default_factory=dict)
    """Records by the reason for which they were not kept; reasons with 0 are left out."""
    info: dict[str, Any] = Field(default_factory=dict)
    """Further figures for the report (fill, positives, seconds a step …). JSON values only."""


class Progress(Protocol):
    """How a stage reports progress; the command line draws it, a test ignores it."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Say how far the running stage is."""


class NoProgress:
    """Progress that goes nowhere, for tests and for library use."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Ignore it."""


@dataclass
class StageContext:
    """What a stage may use beside its inputs.

    Args:
        name: The stage's name in the recipe, e.g. ``evaluate_before``.
        quarantined: File to which refused records go.
        placement: The launch file's ``placement`` half: hosts, ports, memory limits, environment.
        progress: Where progress goes.
        cache: Folder for what only saves work (embeddings by content); None: there is none.
        recipe: Read-only facts of the recipe that only the report needs (expect, choices, title).
        start: How training starts the processes of its hosts: ``ssh`` or ``local``; None: one
            host's on this machine, and several hosts' not at all.
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
        """Write one refused record aside, with where it came from and why.

        Args:
            file: The source file's name.
            row: 0-based row (Parquet, Arrow) or line (JSONL) in that file.
            reason: The same word as in ``Counts.dropped``.
            raw: The record; cut to 4 KiB.
        """
        data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
        text = data[:RAW_LIMIT_BYTES].decode("utf-8", "replace")
        record = {"file": file, "row": row, "reason": reason, "raw": text}
        with self.quarantined.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")

    def warn(self, message: str) -> None:
        """Record a warning: shown at the end of the run, in the manifest and in the report."""
        if message not in self.warnings:
            self.warnings.append(message)
