"""Finds, reads and copies recipes and launch files, and reads the end of logs."""

import difflib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from pcl_reasoner.core.errors import InputError, join_errors

PACKAGE = Path(__file__).resolve().parent.parent


def shipped(folder: str) -> Path:
    """The folder ``recipes`` or ``launch`` that is shipped with the package.

    An installed package contains the folder (setup.cfg maps it there). In a checkout the folder is
    beside the package.
    """
    inside = PACKAGE / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder


def find(name: str, *folders: str) -> Path:
    """Find a recipe or launch file: first as a path, then among the shipped files.

    Args:
        name: ``recipes/v15_opg.yaml``, ``v15_opg.yaml``, ``v15_opg`` or any path.
        folders: ``recipes``, ``launch`` or both.

    Raises:
        InputError: There is no such file; the error suggests the nearest shipped name.
    """
    if Path(name).is_file():
        return Path(name)
    names = []
    for folder in folders:
        inside = name.removeprefix(f"{folder}/")
        for path in (shipped(folder) / inside, shipped(folder) / f"{inside}.yaml"):
            if path.is_file():
                return path
        names += sorted(path.name for path in shipped(folder).glob("*.yaml"))
    kinds = " or ".join(folder.removesuffix("s") for folder in folders)
    raise InputError(
        f"{name}: no such file, and no shipped {kinds} file has that name."
        f"{nearest(Path(name).name, names)} Shipped: {', '.join(names)}."
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The text `` Did you mean …?`` with the most similar known name; empty if none is similar."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe loader that refuses a key that appears twice in one mapping."""


def _mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem=f"a key is not a plain string (line {line})")
        if key_node.tag != "tag:yaml.org,2002:merge" and key_node.value in seen:
            raise yaml.MarkedYAMLError(problem=f"key {key_node.value!r} occurs twice (line {line})")
        seen.add(key_node.value)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node))


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# Dates stay strings, because JSON has no dates.
_UniqueKeyLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 reads 1e-6 as a string, but in a recipe it means the number. An exponent without a sign
# stays a string: 12e4567 may be a commit.
_UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]\d+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose content is one mapping; a key that occurs twice is an error.

    Raises:
        InputError: The file cannot be read, is not such a mapping, or repeats a key.
    """
    try:
        with path.open(encoding="utf-8") as handle:
            value = yaml.load(handle, Loader=_UniqueKeyLoader)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error}).") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise InputError(f"{path}: must be a mapping of keys to values, got {kind}.")
    return value


def parse_scalar(text: str) -> Any:
    """Parse the value of a ``key=value`` override as YAML.

    Raises:
        yaml.YAMLError: The text is not YAML.
    """
    return yaml.load(text, Loader=_UniqueKeyLoader)


def yaml_text(value: Any) -> str:
    """Convert a value to YAML; keys keep their order."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))


def copy(name: str, destination: Path, force: bool) -> list[tuple[Path, Path]]:
    """Copy a recipe with the profile files that it names, or copy a launch file.

    Args:
        name: A path, or the name of a shipped recipe or launch file.
        destination: A file, or an existing folder.
        force: Overwrite existing files.

    Returns:
        Pairs of source and target; the recipe or launch file comes first.

    Raises:
        InputError: There is no such file, or targets exist already or are the source itself. The
            error names all such targets, and nothing is copied.
    """
    source = find(name, "recipes", "launch")
    target = destination / source.name if destination.is_dir() else destination
    profiles = read_yaml(source).get("profiles") or {}
    pairs = [(source, target)]
    pairs += [(source.parent / file, target.parent / file) for file in profiles.values()]
    errors = [
        f"{to}: is the source file itself. Give another destination."
        if to.samefile(origin)
        else f"{to}: already exists. Use --force to overwrite it."
        for origin, to in pairs
        if to.exists() and (not force or to.samefile(origin))
    ]
    if errors:
        raise join_errors(errors)
    for origin, to in pairs:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, to)
    return pairs


def last_lines(log: Path, count: int = 25) -> str:
    """Return the last ``count`` lines of a log that are not empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-count:])
