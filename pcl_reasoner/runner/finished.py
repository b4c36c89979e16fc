"""Whether an artifact is done: complete, undamaged, and made of the present inputs.

An artifact's manifest has in ``made_from`` the content of each input at the time. If an input was
made again with other content, e.g. because a server answered differently, what was made of the
earlier content is not done any more. A proof is no such content: nothing is made of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage, changed_files, lost_files
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.stages import PROOF_ROLE, STAGES

REPEATED = ".repeat"
"""An empty file in an artifact that ``--from`` makes again; it goes with the old artifact."""


@dataclass(frozen=True)
class PlannedInput:
    """One input of a planned stage.

    Args:
        fingerprint: Fingerprint of the artifact or source.
        path: Where the input is or will be.
        origin: ``recipe/stage`` or the source's name, for messages.
        folder: The artifact that ``path`` is, or is in; None for a source outside.
    """

    fingerprint: str
    path: Path
    origin: str
    folder: Path | None = None

    @property
    def is_source(self) -> bool:
        """True for a path or a hub repository, False for what a stage makes."""
        return self.folder is None


def why_not_done(folder: Path, fingerprint: str, inputs: Mapping[str, PlannedInput]) -> str | None:
    """Return why a stage has to run, as far as its folder shows it; None: it is done."""
    manifest = manifest_of(folder, fingerprint)
    if manifest is None:
        return "its folder has no complete manifest of these settings"
    if (folder / REPEATED).exists():
        return "--from repeats it"
    if lost := lost_files(folder, manifest["files"]):
        return f"damaged: {few(lost)}"
    now, then = made_from(inputs), manifest.get("made_from", {})
    if changed := sorted(role for role in now if now[role] != then.get(role, now[role])):
        origin = inputs[changed[0]].origin
        return f"input {changed[0]} was made again with other content ({origin})"
    return None


def manifest_of(folder: Path, fingerprint: str) -> dict[str, Any] | None:
    """The manifest of a finished artifact with this fingerprint; None if there is none."""
    manifest = artifact.read_manifest(folder)
    is_its = manifest is not None and manifest.get("fingerprint") == fingerprint
    return manifest if is_its else None


def made_from(inputs: Mapping[str, PlannedInput]) -> dict[str, str]:
    """Return role -> the content of the input; sources and unfinished stages are left out."""
    found = {}
    for role, item in inputs.items():
        if role == PROOF_ROLE:
            continue
        manifest = artifact.read_manifest(item.folder) if item.folder else None
        if item.folder and manifest:
            below = item.path.relative_to(item.folder).as_posix()
            found[role] = artifact.content(manifest["files"], below)
    return found


def finished_proof(model: PlannedInput, hashes: FileHashes) -> PlannedInput | None:
    """Return the newest finished proof of a model, from the run directory that has the model.

    Args:
        model: A stage's input. A source outside, or a part of an artifact, has no proof.
        hashes: Remembered hashes of files: a damaged proof is passed over.
    """
    if model.folder is None or model.path != model.folder:
        return None
    found = []
    for file in model.folder.parent.glob(f"*/{artifact.MANIFEST}"):
        manifest = artifact.read_manifest(file.parent)
        if not manifest or not _proves(manifest, model):
            continue
        if not changed_files(file.parent, manifest["files"], hashes):
            found.append((file.stat().st_mtime, file.parent, manifest))
    if not found:
        return None
    _, folder, manifest = max(found, key=lambda one: one[0])
    origin = f"{manifest['recipe']}/{manifest['name']}"
    return PlannedInput(manifest["fingerprint"], folder, origin, folder)


def _proves(manifest: Mapping[str, Any], model: PlannedInput) -> bool:
    """Whether an artifact is a proof, by servers, of this model as it is now."""
    identity = manifest.get("identity", {})
    return (
        manifest.get("stage") == "prove"
        and identity.get("version") == STAGES["prove"].version
        and identity.get("config", {}).get("engine") == "server"
        and identity.get("inputs", {}).get("model") == model.fingerprint
        and manifest.get("made_from", {}).get("model") == made_from({"model": model}).get("model")
    )


def few(damages: Sequence[Damage]) -> str:
    """The first damages as one text, with the number of the others."""
    more = f"; and {len(damages) - 2:,} more" if len(damages) > 2 else ""
    return "; ".join(str(one) for one in damages[:2]) + more
