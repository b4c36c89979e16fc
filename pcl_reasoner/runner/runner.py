"""Runs the stages: skips finished ones, resumes interrupted ones, commits complete ones."""

import errno
import fcntl
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TextIO

from pcl_reasoner import __version__
from pcl_reasoner.core import artifact
from pcl_reasoner.core.api_keys import missing_keys, without_slash
from pcl_reasoner.core.damage import changed_files
from pcl_reasoner.core.errors import (
    InputError,
    PclError,
    StageError,
    disk_error,
    join_errors,
    not_writable,
)
from pcl_reasoner.core.files import installed_version, nearest
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.stage import Counts, Progress, StageContext
from pcl_reasoner.runner import damaged, sources
from pcl_reasoner.runner.failed_graphs import failed_graphs_in
from pcl_reasoner.runner.finished import few, made_from
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.shrunk import shrunk_sources, source_files
from pcl_reasoner.stages import STAGES

_PACKAGES = (
    "mindspore mindformers numpy pyarrow duckdb tokenizers fastokens sentence-transformers openvino"
)
_FULL_BYTES = 1 << 16
"""A disk with fewer free bytes than this counts as full."""


class View(Progress, Protocol):
    """The interface that shows a run's progress to the user."""

    def started(self, planned: PlannedStage, index: int, total: int) -> None:
        """A stage starts."""

    def skipped(self, planned: PlannedStage, index: int, total: int) -> None:
        """A stage is skipped because it is done."""

    def finished(self, planned: PlannedStage, counts: Counts, seconds: float) -> None:
        """A stage is committed."""

    def warned(self, message: str) -> None:
        """A stage reports a warning, which its manifest has, too."""

    def noted(self, message: str) -> None:
        """The runner says something that no manifest has."""


StageManager = Callable[[PlannedStage, StageContext], AbstractContextManager[None]]
"""Returns a context manager for one stage's run; the manager may change the StageContext."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; it is also released if the process is killed.

    Raises:
        StageError: Another runner holds the lock (the error names it), or the folder cannot be
            written.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise not_writable(folder, error) from error
    with handle:
        _take_lock(handle, folder)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {platform.node()} since {_now()}")
        handle.flush()
        yield


def _take_lock(handle: TextIO, folder: Path) -> None:
    """Lock a run directory's lock file, or raise an error that names its holder."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        raise StageError(
            f"{folder}: in use by {holder}. Wait until it has finished, stop it, or choose "
            "another folder with --runs."
        ) from error


def run(
    plan: Plan,
    view: View,
    repeated: Sequence[PlannedStage] = (),
    start: str | None = None,
    manager: StageManager = lambda planned, context: nullcontext(),
) -> None:
    """Run a plan.

    Args:
        plan: The stages; those that are done are skipped.
        view: Shows what happens.
        repeated: Stages that run again although they are done, as returned by
            `stages_to_repeat`.
        start: How processes on the hosts are started; see StageContext.
        manager: Returns a context manager for one stage's run, e.g. for a Ray cluster on other
            hosts. The context manager may change the stage's StageContext.

    Raises:
        InputError: Sources or servers' API keys are missing, or a source has lost files; the error
            names all of them.
        StageError: A stage could not do its work, or another runner holds the lock of the run
            directory.
    """
    if plan.missing:
        raise join_errors(plan.missing)
    found = damaged.damaged_stages(plan, repeated, view)
    again = stages_to_run(plan, repeated, found)
    if not again:
        return
    for title, damages in found.items():
        view.noted(f"{title} is damaged and is made again: {few(damages)}")
    if problems := [*unset_keys(again), *shrunk_sources(plan, repeated)]:
        raise join_errors(problems)
    with locked(plan.runs / plan.recipe.name):
        damaged.mark_repeated(repeated)
        _fetch(plan, again, view)
        for index, planned in enumerate(plan.stages):
            if planned.done and planned not in again:
                view.skipped(planned, index, len(plan.stages))
                continue
            view.started(planned, index, len(plan.stages))
            # Another recipe's stages are written to that recipe's run directory, with its own lock.
            other = planned.recipe.name != plan.recipe.name
            with locked(planned.folder.parent) if other else nullcontext():
                run_stage(planned, view, start, manager, plan.hashes)
            plan.hashes.save()


def stages_to_run(
    plan: Plan, repeated: Sequence[PlannedStage], titles: Collection[str]
) -> list[PlannedStage]:
    """Return the stages that are not done, are damaged (``titles``), or are repeated."""
    return [
        planned
        for planned in plan.stages
        if not planned.done or planned in repeated or planned.title in titles
    ]


def _fetch(plan: Plan, stages: Sequence[PlannedStage], view: View) -> None:
    """Fetch what these stages read from the hub; fetch damaged files again."""
    read = {item.path for planned in stages for item in planned.inputs.values()}
    for folder, (name, source) in plan.to_fetch.items():
        if folder not in read:
            continue
        damages = changed_files(folder, sources.fetched_files(folder) or {}, plan.hashes)
        if damages:
            view.noted(f"source {name} is damaged and is fetched again: {few(damages)}")
            sources.refetch(folder, damages)
        sources.fetch(name, source, plan.runs, plan.hashes)


def unset_keys(stages: list[PlannedStage]) -> list[str]:
    """One sentence per API key that these stages need and the environment does not have."""
    needed: dict[str, str] = {}
    for planned in stages:
        placement = planned.recipe.launch.placement
        asked = planned.spec.config.request_urls(placement, planned.inputs)
        urls = [without_slash(url) for url in asked]
        needed |= {u: v for u, v in placement.api_keys.items() if without_slash(u) in urls}
    return missing_keys(needed)


def stages_to_repeat(plan: Plan, from_stage: str | None) -> list[PlannedStage]:
    """The stages that ``--from`` runs even if they are done: the named stage and all after it.

    Raises:
        InputError: The stage is not one of the stages to run.
    """
    if from_stage is None:
        return []
    stages = [planned for planned in plan.stages if planned.recipe is plan.recipe]
    names = [planned.spec.name for planned in stages]
    if from_stage not in names:
        raise InputError(
            f"{plan.recipe.path}: --from {from_stage!r}: not one of the stages to run."
            f"{nearest(from_stage, names)} They are: {', '.join(names)}."
        )
    return stages[names.index(from_stage) :]


def run_stage(
    planned: PlannedStage,
    view: View,
    start: str | None,
    manager: StageManager,
    hashes: FileHashes,
) -> None:
    """Check what a stage reads, run it in its partial folder, and commit it.

    Raises:
        PclError: The stage failed; the error has the stage's name.
    """
    stage = STAGES[planned.spec.type]
    started = time.monotonic()
    began_at = _now()
    try:
        damaged.check_inputs(planned, hashes)
        artifact.fresh_partial(planned.partial, keep=stage.resumable)
        quarantined = planned.partial / artifact.QUARANTINED
        quarantined.unlink(missing_ok=True)
        quarantined.touch()
        context = _context(planned, quarantined, view, start)
        inputs = {role: item.path for role, item in planned.inputs.items()}
        logs = planned.folder.parent / "logs" / planned.folder.name
        with manager(planned, context), failed_graphs_in(logs):
            counts = stage.function()(planned.spec.config, inputs, planned.partial, context)
        _check(planned, counts, quarantined)
        seconds = time.monotonic() - started
        manifest = _manifest(planned, counts, context, began_at, seconds)
        _commit(planned, manifest, hashes)
    except PclError as error:
        raise type(error)(f"stage {planned.title}: {error}") from error
    except OSError as error:
        raise _in_stage(planned, error) from error
    except Exception as error:
        # Libraries raise errors of their own for a full disk.
        if shutil.disk_usage(planned.partial).free < _FULL_BYTES:
            raise _in_stage(planned, OSError(errno.ENOSPC, str(error))) from error
        error.add_note(f"This happened in stage {planned.title}; its folder: {planned.partial}")
        raise
    for warning in context.warnings:
        view.warned(f"{planned.title}: {warning}")
    view.finished(planned, counts, seconds)


def _commit(planned: PlannedStage, manifest: dict[str, Any], hashes: FileHashes) -> None:
    """Commit an artifact; its files are just hashed, and need not be hashed again."""
    written = artifact.commit(planned.partial, planned.folder, manifest)
    for name, one in written["files"].items():
        hashes.remember(planned.folder / name, one["sha256"])


def _context(
    planned: PlannedStage, quarantined: Path, view: View, start: str | None
) -> StageContext:
    recipe = planned.recipe
    return StageContext(
        name=planned.spec.name,
        quarantined=quarantined,
        placement=recipe.launch.placement,
        progress=view,
        recipe=recipe.facts(),
        cache=planned.folder.parent.parent / ".cache",
        start=start,
    )


def _in_stage(planned: PlannedStage, error: OSError) -> StageError:
    return StageError(f"stage {planned.title}: {disk_error(error, planned.partial)}")


def _check(planned: PlannedStage, counts: Counts, quarantined: Path) -> None:
    """Check that every record is counted and that malformed records stay under the limit."""
    total = counts.kept + sum(counts.dropped.values())
    if counts.read != total:
        raise StageError(
            f"read {counts.read} {counts.unit} but accounts for {total} "
            f"({counts.kept} kept, {counts.dropped}). This is a bug in the stage; report it."
        )
    limit = getattr(planned.spec.config, "max_malformed", None)
    refused = {k: v for k, v in counts.dropped.items() if k.startswith("malformed")}
    malformed = sum(refused.values())
    if limit is not None and malformed > limit * counts.read:
        raise StageError(
            f"{malformed} of {counts.read} {counts.unit} are malformed "
            f"({malformed / counts.read:.1%}), "
            f"the limit is {limit:.1%}: {refused}. See {quarantined}, fix the source, or raise "
            f"{planned.spec.name}.max_malformed."
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _manifest(
    planned: PlannedStage, counts: Counts, context: StageContext, began_at: str, seconds: float
) -> dict[str, Any]:
    return {
        "stage": planned.spec.type,
        "name": planned.spec.name,
        "recipe": planned.recipe.name,
        "arguments": planned.recipe.arguments(),
        "profile": planned.recipe.profile,
        "launch": planned.recipe.launch.name,
        "choices": planned.recipe.choices,
        "seed": planned.recipe.seed,
        "fingerprint": planned.fingerprint,
        "identity": planned.identity,
        "origins": {role: item.origin for role, item in planned.inputs.items()},
        "made_from": made_from(planned.inputs),
        "sources": source_files(planned),
        "counts": counts.model_dump(),
        "warnings": context.warnings,
        "began_at": began_at,
        "seconds": round(seconds, 3),
        "host": platform.node(),
        "python": platform.python_version(),
        "versions": versions(),
        "git_commit": git_commit(),
    }


def versions() -> dict[str, str]:
    """Installed versions of this package and of packages whose numerics or formats matter."""
    found = {name: installed_version(name) or "not installed" for name in _PACKAGES.split()}
    return {"pclr-ms": __version__, **found}


def git_commit() -> str | None:
    """The checkout's commit, with ``+`` if it has uncommitted changes; None without a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
