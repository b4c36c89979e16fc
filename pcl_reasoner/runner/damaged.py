"""Finds damaged artifacts before they are read, and marks those that are to be made again."""

import shutil
from collections.abc import Iterable, Sequence

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage, added_files, changed_files
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.stage import NoProgress, Progress
from pcl_reasoner.runner.finished import REPEATED, few
from pcl_reasoner.runner.plan import Plan, PlannedStage


def mark_repeated(stages: Iterable[PlannedStage]) -> None:
    """Mark stages that ``--from`` repeats, so that after a kill a plain run repeats the rest.

    What an earlier, interrupted run has left of them is removed.
    """
    for planned in stages:
        if planned.partial.exists():
            shutil.rmtree(planned.partial)
        if planned.folder.is_dir():
            (planned.folder / REPEATED).touch()
            artifact.fsync(planned.folder)


def damaged_stages(
    plan: Plan, repeated: Sequence[PlannedStage], progress: Progress | None = None
) -> dict[str, list[Damage]]:
    """Find the stages that have to run because their artifact is damaged.

    The artifacts that a stage of this run reads are compared with their manifests by content. Of
    the others, files are compared that have changed since their hash was remembered, or all files
    if no remembered hash is trusted.

    Returns:
        Title -> damages, in the order of the plan.
    """
    _hash_inputs(plan, repeated, progress or NoProgress())
    found, read_now = {}, set()
    for planned in reversed(plan.stages):
        damages = _damages(planned, plan.hashes, planned.folder in read_now)
        if damages:
            found[planned.title] = damages
        if damages or planned in repeated or not planned.done:
            read_now |= {item.folder for item in planned.inputs.values()}
    plan.hashes.save()
    return dict(reversed(found.items()))


def _hash_inputs(plan: Plan, repeated: Sequence[PlannedStage], progress: Progress) -> None:
    """Hash on all cores what the stages of this run read, as far as it is there."""
    stages = [one for one in plan.stages if one in repeated or not one.done]
    read_now = {item.folder for planned in stages for item in planned.inputs.values()}
    files = [
        planned.folder / name
        for planned in plan.stages
        if planned.folder in read_now or not plan.hashes.trusted
        for name in (planned.manifest() or {"files": {}})["files"]
    ]

    def report(done: int, total: int) -> None:
        progress.update(done / 1e6, total / 1e6, "MB")

    plan.hashes.sha256_of_all(files, report)


def _damages(planned: PlannedStage, hashes: FileHashes, is_read: bool) -> list[Damage]:
    manifest = planned.manifest()
    if manifest is None:
        return []
    only_known = hashes.trusted and not is_read
    return changed_files(planned.folder, manifest["files"], hashes, only_known)


def check_inputs(planned: PlannedStage, hashes: FileHashes) -> None:
    """Compare the artifacts that a stage reads with their manifests, right before it reads them.

    Raises:
        StageError: A file is damaged or missing, or somebody added one.
    """
    for item in planned.inputs.values():
        manifest = artifact.read_manifest(item.folder) if item.folder else None
        if item.folder is None:
            continue
        if manifest is None:
            raise StageError(
                f"its input {item.folder} is not complete. Run the same command again."
            )
        if damages := changed_files(item.folder, manifest["files"], hashes):
            raise StageError(
                f"its input is damaged: {few(damages)}. Run the same command again: "
                f"{item.origin} is made again."
            )
        if added := added_files(item.folder, manifest["files"]):
            raise StageError(
                f"its input has files that {item.origin} did not make: {few(added)}. Move them "
                "elsewhere."
            )
