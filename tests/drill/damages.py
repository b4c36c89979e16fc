"""Damaged files: a finished file is changed, and a command that needs it runs.

As a person or a program would do it, the file's times change, and a plain run must see it. As a
disk would do it, nothing but the content changes: the hash that is remembered still seems to
belong to the file. Then ``--verify`` or ``pclr-ms verify`` must see it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from end_to_end_helpers import folder_of, manifests
from scene import RECIPES
from trial import FIRM, FOUND, Answer, Bad, Outcome, Work

from pcl_reasoner.core.hashes import FileHashes


def flip_bit(file: Path, rng: Random) -> None:
    """One bit is another."""
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def cut(file: Path, rng: Random) -> None:
    """The end is not there."""
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])


def clear_block(file: Path, rng: Random) -> None:
    """Up to 4 096 bytes are zero."""
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randint(1, 4096))
    if not any(data[start:end]):
        start, end = 0, 1  # a manifest or table does not begin with a zero
    data[start:end] = bytes(end - start)
    file.write_bytes(data)


def append(file: Path, rng: Random) -> None:
    """Something was added at the end."""
    with file.open("ab") as handle:
        handle.write(rng.randbytes(rng.randint(1, 100)))


def exchange_bytes(file: Path, rng: Random) -> None:
    """Two halves have changed places, so the size is the same."""
    data = file.read_bytes()
    middle = rng.randrange(1, len(data)) if len(data) > 1 else 0
    moved = data[middle:] + data[:middle]
    file.write_bytes(moved if moved != data else bytes([data[0] ^ 1]) + data[1:])


def delete(file: Path, rng: Random) -> None:
    """The file is not there."""
    file.unlink()


def link_to_nothing(file: Path, rng: Random) -> None:
    """The file is a link whose target is not there."""
    file.unlink()
    file.symlink_to("nothing")


def other_file(file: Path, rng: Random) -> None:
    """Another file of the run has its name."""
    others = [one for one in file.parents[1].rglob("*") if one.is_file() and not one.is_symlink()]
    data = rng.choice(sorted(others)).read_bytes()
    file.write_bytes(data if data != file.read_bytes() else data + b" ")


Change = Callable[[Path, Random], None]
SAME_SIZE: tuple[Change, ...] = (flip_bit, flip_bit, flip_bit, clear_block, exchange_bytes)
CHANGES: tuple[Change, ...] = (*SAME_SIZE, cut, append, delete, link_to_nothing, other_file)


def damage(work: Work) -> Outcome:
    """Damage one file as a person or a program would do it."""
    title, file = _choose(work)
    change = work.rng.choice(CHANGES)
    _target(work, file, change)
    change(file, work.rng)
    return _seen(work, title, file, work.rng.choice(["run", "reader", "verify"]), ())


def silent_damage(work: Work) -> Outcome:
    """Damage one file as a disk would do it: its size and its times stay."""
    title, file = _choose(work)
    change = work.rng.choice(SAME_SIZE)
    _target(work, file, change)
    change(file, work.rng)
    _remember(work)
    return _seen(work, title, file, work.rng.choice(["run", "reader", "verify"]), ("--verify",))


def _choose(work: Work) -> tuple[str, Path]:
    """Copy the undisturbed run with its hashes; choose a stage and one of its files."""
    work.copy_runs()
    _remember(work)
    title = work.rng.choice(sorted(work.scene.plain))
    folder = folder_of(work.runs, title)
    files = [one for one in sorted(folder.rglob("*")) if one.is_file() and one.stat().st_size]
    return title, work.rng.choice(files)


def _target(work: Work, file: Path, change: Change) -> None:
    work.target = f"{file.relative_to(work.runs)}: {change.__name__}"


def _remember(work: Work) -> None:
    """Remember of every file the hash that its manifest has, whatever its content is now."""
    hashes = FileHashes(work.runs / ".hashes.json", trusted=False)
    for title, manifest in manifests(work.scene.runs).items():
        folder = work.runs / folder_of(work.scene.runs, title).relative_to(work.scene.runs)
        for name, written in manifest["files"].items():
            if (folder / name).is_file():
                hashes.remember(folder / name, written["sha256"])
    hashes.save()


def _seen(work: Work, title: str, file: Path, way: str, words: tuple[str, ...]) -> Outcome:
    """Let a command need the file; then the run must be what the undisturbed one is."""
    is_alike = file.is_file() and _is_alike(work, file)
    if way == "verify":
        answer = work.call("verify", "--runs", work.runs)
        if not is_alike and (answer.code != 1 or title not in answer.text):
            raise Bad(f"verify does not name it:\n{answer.text}")
    elif way == "reader":
        reader = _reader(work, title)
        begin = ("--from", reader.split("/")[1], "--until", reader.split("/")[1])
        answer = work.call("run", work.recipe(reader), "--runs", work.runs, *begin, *words)
    else:
        answer = work.call("run", work.recipe(title), "--runs", work.runs, *words)
    if way != "verify" and answer.code:
        raise Bad(f"it is not made again:\n{answer.text}")
    for recipe in RECIPES:
        _make_again(work, recipe, words)
    work.must_be_whole()
    said = is_alike or file.name in answer.text or title in answer.text
    if not said:
        raise Bad(f"nothing is said about it:\n{answer.text}")
    return Outcome(work.target, FIRM if is_alike else FOUND, way)


def _make_again(work: Work, recipe: str, words: tuple[str, ...]) -> Answer:
    answer = work.call("run", work.scene.recipe(recipe), "--runs", work.runs, *words)
    if answer.code:
        raise Bad(f"it is not made again:\n{answer.text}")
    return answer


def _is_alike(work: Work, file: Path) -> bool:
    """Whether the change left the content as it was."""
    return file.read_bytes() == (work.scene.runs / file.relative_to(work.runs)).read_bytes()


def _reader(work: Work, title: str) -> str:
    """A stage that reads another one; the stage itself if there is none."""
    reads = work.scene.reads
    readers = [one for one in sorted(work.scene.plain) if title in reads[one]]
    cheap = [one for one in readers if work.scene.seconds[one] < 5] or readers
    return work.rng.choice(cheap or [title])


def hash_memory(work: Work) -> Outcome:
    """Damage what remembers hashes: the run is still what it is."""
    work.copy_runs()
    _remember(work)
    file = work.runs / ".hashes.json"
    change = work.rng.choice(CHANGES)
    _target(work, file, change)
    change(file, work.rng)
    for recipe in RECIPES:
        _make_again(work, recipe, ())
    work.must_be_whole()
    return Outcome(work.target, FIRM)
