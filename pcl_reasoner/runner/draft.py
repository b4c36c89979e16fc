"""Merges a recipe's files, choices, overlay and overrides into one draft.

Lowest precedence first: the recipe's top level (the published run), the chosen options of
``choices``, the profile's overlay, the launch file's ``hashed`` half, ``stage.key=value`` on the
command line. The origin of every value is kept, so that an error can name the file or override.
Errors are collected in ``errors``. This module does not know which settings a stage accepts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core import files
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.stages import stage_hint

PAPER = "paper"
"""Reserved profile name for a recipe's top level, which is the published run."""

_RECIPE_KEYS = [
    "name",
    "title",
    "seed",
    "sources",
    "choices",
    "stages",
    "expect",
    "published",
    "profiles",
    "max_malformed",
]
_OVERLAY_KEYS = ["seed", "sources", "choices", "stages", "expect", "max_malformed"]
_MAPPINGS = ["sources", "choices", "stages", "expect", "published", "profiles"]
_ORIGINS_OF_A_SOURCE = {"path", "hub", "stage"}


class Draft:
    """A recipe whose files and overrides are being merged.

    Args:
        path: The recipe's file.

    Raises:
        InputError: The file is not a YAML mapping.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[str] = []
        self.value = self._read(path, _RECIPE_KEYS)
        self.choices: dict[str, str] = {}
        self._declared = frozenset(self.value["stages"])
        self._origins: dict[tuple[str, str], str] = {}
        self._overlay: dict[str, Any] = {}
        self._overlay_path = path

    def where(self, group: str, key: str = "") -> str:
        """The file or override that a stage's key (or the source ``sources``, name) came from."""
        if (group, key) in self._origins:
            return self._origins[group, key]
        in_recipe = group in self._declared or group not in self.value["stages"]
        return str(self.path if in_recipe else self._overlay_path)

    def _read(self, path: Path, allowed: list[str]) -> dict[str, Any]:
        """Read a recipe or an overlay. Values of the wrong shape are reported and left out."""
        value = files.read_yaml(path)
        for key in value:
            if key not in allowed:
                hint = files.nearest(str(key), allowed)
                self.errors.append(f"{path}: {key}: unknown key.{hint}")
        read = {key: value[key] for key in value if key in allowed}
        for key in _MAPPINGS:
            # An overlay with an empty ``expect`` removes the published results; without, they stay.
            if key in allowed and (key != "expect" or key in value or path == self.path):
                read[key] = self._mapping(value.get(key), f"{path}: {key}")
        for name, entry in read["stages"].items():
            read["stages"][name] = self._mapping(entry, f"{path}: stages.{name}")
        return read

    def _mapping(self, value: Any, where: str) -> dict[str, Any]:
        """The value if it is a mapping, else an empty one; a wrong value or key is reported."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.errors.append(f"{where}: must be a mapping of keys to values, got {value!r}.")
            return {}
        for key in value:
            if not isinstance(key, str):
                self.errors.append(f"{where}: key {key!r} must be a string; put it in quotes.")
        return {key: entry for key, entry in value.items() if isinstance(key, str)}

    def read_overlay(self, profile: str) -> None:
        """Read the profile's overlay, if it has one."""
        profiles = self.value["profiles"]
        if PAPER in profiles:
            self.errors.append(
                f"{self.path}: profiles.{PAPER}: this name means the recipe's top level; "
                "give the overlay another name."
            )
        if profile == PAPER:
            return
        if profile not in profiles:
            known = [PAPER, *profiles]
            self.errors.append(
                f"{self.path}: profile {profile!r} is not in the recipe."
                f"{files.nearest(profile, known)} Known: {', '.join(known)}."
            )
            return
        path = self.path.parent / str(profiles[profile])
        try:
            self._overlay = self._read(path, _OVERLAY_KEYS)
        except InputError as error:
            self.errors.append(f"{self.path}: profiles.{profile}: {error}")
            return
        self._overlay_path = path
        for name, option in self._overlay["choices"].items():
            self._choose(name, option, str(path))

    def _choose(self, name: str, option: Any, where: str) -> None:
        known = self.value["choices"]
        if isinstance(known.get(name), dict):
            known[name] = {**known[name], "use": option}
        else:
            hint = files.nearest(name, known)
            self.errors.append(f"{where}: choices.{name}: unknown choice.{hint}")

    def apply_overrides_of_choices(self, overrides: tuple[str, ...]) -> None:
        """Apply ``choices.schedule=readme``, which must act before the choices' patches do."""
        for override in overrides:
            key, equals, _ = override.partition("=")
            if equals and key.startswith("choices."):
                option = self._override_value(override)
                self._choose(key.removeprefix("choices."), option, f"override {override}")

    def apply_choices(self) -> None:
        """Apply the chosen option of every choice: a patch of ``stage.key: value``."""
        for name, choice in self.value["choices"].items():
            where = f"{self.path}: choices.{name}"
            choice = self._mapping(choice, where)
            options = [key for key in choice if key != "use"]
            option = str(choice.get("use"))
            if option not in options:
                self.errors.append(
                    f"{where}: use {option!r} is not one of {', '.join(options)}."
                    f"{files.nearest(option, options)}"
                )
                continue
            self.choices[name] = option
            for key, value in self._mapping(choice[option], f"{where}.{option}").items():
                self._set(key, value, f"{where}.{option}")

    def apply_overlay(self) -> None:
        """Merge the profile's overlay deeply over the top level; sources are replaced entirely."""
        where = str(self._overlay_path)
        for name, entry in self._overlay.get("stages", {}).items():
            self._origins.update({(name, key): where for key in entry})
            self.value["stages"][name] = _merge(self.value["stages"].get(name, {}), entry)
        for name, source in self._overlay.get("sources", {}).items():
            self.value["sources"][name] = source
            self._origins["sources", name] = where
        for key in ("seed", "max_malformed"):
            if key in self._overlay:
                self.value[key] = self._overlay[key]
                self._origins[key, ""] = where
        self.value["expect"] = self._overlay.get("expect", self.value["expect"])

    def apply_launch(self, hashed: Mapping[str, Mapping[str, Any]], name: str) -> None:
        """Set the launch file's hashed keys in every stage of their type."""
        for stage, entry in self.value["stages"].items():
            kind = entry.get("stage", stage)
            if isinstance(kind, str):
                for key, value in hashed.get(kind, {}).items():
                    self._set(f"{stage}.{key}", value, f"{name}: hashed.{kind}")

    def apply_overrides(self, overrides: tuple[str, ...]) -> None:
        """Apply ``stage.key=value`` and ``sources.name.key=value``."""
        for override in overrides:
            key, equals, _ = override.partition("=")
            if not equals or "." not in key:
                self.errors.append(
                    f"{override!r}: an override is stage.key=value, e.g. pack.seq_length=512."
                )
            elif key.startswith("sources."):
                self._override_source(override, key)
            elif not key.startswith("choices."):
                self._set(key, self._override_value(override), f"override {override}")

    def _override_value(self, override: str) -> Any:
        try:
            return files.parse_scalar(override.partition("=")[2])
        except InputError as error:
            self.errors.append(f"override {override}: {error}")
            return None

    def _override_source(self, override: str, key: str) -> None:
        _, name, *rest = key.split(".")
        known = self.value["sources"]
        if len(rest) != 1:
            self.errors.append(f"override {override}: write sources.name.path=VALUE.")
            return
        if name not in known:
            hint = files.nearest(name, known)
            self.errors.append(f"override {override}: no such source {name!r}.{hint}")
            return
        kept = dict(known[name]) if isinstance(known[name], dict) else {}
        if rest[0] in _ORIGINS_OF_A_SOURCE:
            # A new origin replaces the old one, but ``files`` and ``kind`` may still apply.
            kept = {part: kept[part] for part in ("files", "kind") if part in kept}
        known[name] = {**kept, rest[0]: self._override_value(override)}
        self._origins["sources", name] = f"override {override}"

    def _set(self, dotted: str, value: Any, where: str) -> None:
        """Set ``stage.key``. Deeper keys reach into mappings; mappings are merged.

        ``expect.stage.…`` sets an expected result, because published results, too, contradict each
        other.
        """
        stage, _, key = dotted.partition(".")
        if stage == "expect" and key:
            self.value["expect"] = _merge(self.value["expect"], _nested(key, value))
            return
        if stage not in self.value["stages"]:
            known = self.value["stages"]
            self.errors.append(
                f"{where}: {dotted}: no such stage.{stage_hint(stage, known)} "
                f"Stages: {', '.join(known)}."
            )
            return
        if not key:
            self.errors.append(f"{where}: {dotted}: also give a key, e.g. {stage}.key=value.")
            return
        self.value["stages"][stage] = _merge(self.value["stages"][stage], _nested(key, value))
        self._origins[stage, key.partition(".")[0]] = where


def _nested(dotted: str, value: Any) -> dict[str, Any]:
    """``a.b`` and a value -> {"a": {"b": value}}."""
    for part in reversed(dotted.split(".")):
        value = {part: value}
    found: dict[str, Any] = value
    return found


def _merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Merge mappings deeply. Lists and other values are replaced. The base's keys come first."""
    merged = dict(base)
    for key, value in overlay.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if nested else value
    return merged
