"""Finds files of a source that an earlier artifact was made from and that are not there any more.

A manifest has the files of each path source that its stage read:

    "sources": {"source": {"path": "/data/math", "files": ["a.parquet", "b.parquet"]}}

Without ``b.parquet`` the source has another fingerprint, and all that reads it would run again with
fewer problems. That can be meant, so ``--from`` accepts it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pcl_reasoner.runner import sources
from pcl_reasoner.runner.plan import Plan, PlannedStage, newest_other


def source_files(planned: PlannedStage) -> dict[str, dict[str, Any]]:
    """Return role -> path and files of each source that is a folder on a disk."""
    found = {}
    for role, item in planned.inputs.items():
        source = planned.recipe.sources.get(item.origin)
        if not item.is_source or source is None or source.hub:
            continue
        root = sources.path_of(source)
        if root.is_dir():
            files = sources.files_of(root, source.files)
            names = [file.relative_to(root).as_posix() for file in files]
            found[role] = {"path": str(root), "files": names}
    return found


def shrunk_sources(plan: Plan, repeated: Sequence[PlannedStage]) -> list[str]:
    """One sentence per source from which files have vanished since a stage read it."""
    stages = [one for one in plan.stages if not one.done and one not in repeated]
    return list(dict.fromkeys(text for planned in stages for text in _vanished(planned)))


def _vanished(planned: PlannedStage) -> Iterator[str]:
    before = newest_other(planned) or {}
    for role, now in source_files(planned).items():
        then = before.get("sources", {}).get(role)
        if then is None or then["path"] != now["path"]:
            continue
        if gone := sorted(set(then["files"]) - set(now["files"])):
            more = f" and {len(gone) - 2:,} more" if len(gone) > 2 else ""
            yield (
                f"source {planned.inputs[role].origin}: {now['path']} no longer has "
                f"{', '.join(gone[:2])}{more}, which {planned.title} read before. Put the files "
                f"back, or accept the smaller source with --from {planned.spec.name}."
            )
