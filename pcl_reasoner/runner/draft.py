"""Merges a recipe's files, choices, overlay and overrides into one draft.

Lowest precedence first: the recipe's top level (the full-size run), the chosen options of
``choices``, the profile's overlay, the launch file's ``sources`` and ``hashed`` half,
``stage.key=value`` on the command line. The origin of every value is kept, so that an error can
name the file or override. Errors are collected in ``errors``. This module does not know which
settings a stage accepts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core import files, yaml_file
from pcl_reasoner.core.errors import InputError, shortened
from pcl_reasoner.core.schema import Launch
from pcl_reasoner.stages import SERVED, stage_hint

PAPER = "paper"
"""Reserved profile name: the recipe's top level without an overlay, i.e. the full-size run."""

_OVERLAY_KEYS = ["seed", "sources", "choices", "stages", "expect", "max_malformed"]
_RECIPE_KEYS = [*_OVERLAY_KEYS, "name", "title", "published", "profiles"]
_MAPPINGS = ["sources", "choices", "stages", "expect", "published", "profiles"]


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
        self.overruled: list[str] = []
        """One sentence per value of a choice on the command line that did not count."""
        self._declared = frozenset(self.value["stages"])
        self._origins: dict[tuple[str, str], str] = {}
        self._overlay: dict[str, Any] = {}
        self._overlay_path = path

    def where(self, group: str, key: str = "") -> str:
        """The file or override that gave a value: (stage, key), ("sources", name) or (key, "")."""
        if (group, key) in self._origins:
            return self._origins[group, key]
        in_recipe = group in self._declared or group not in self.value["stages"]
        return str(self.path if in_recipe else self._overlay_path)

    @property
    def origins(self) -> dict[tuple[str, str], str]:
        """(stage, key) -> the overlay, choice, launch file or override that set the value."""
        return {key: str(origin) for key, origin in self._origins.items()}

    def merge(
        self,
        profile: str,
        launched: Launch,
        launch: str,
        overrides: tuple[str, ...],
        seed: int | None,
    ) -> None:
        """Merge everything that overrides the top level, lowest precedence first.

        Args:
            profile: Name of the overlay, or ``paper`` for none.
            launched: The launch file: its sources, and the keys of stages that change results.
            launch: The launch file's name, for messages.
            overrides: ``stage.key=value``, ``choices.name=option``, ``sources.name.key=value``.
            seed: Replaces the recipe's seed.
        """
        self._read_overlay(profile)
        self._apply_overrides_of_choices(overrides)
        self._apply_choices()
        self._apply_overlay()
        for name, source in launched.sources.items():
            self.value["sources"][name] = source.model_dump(exclude_unset=True)
            self._origins["sources", name] = launch
        self._apply_launch(launched.hashed, launch)
        self._tell_overruled(overrides)
        self._apply_overrides(overrides)
        self.value["seed"] = self.value.get("seed", 0) if seed is None else seed

    def _read(self, path: Path, allowed: list[str]) -> dict[str, Any]:
        """Read a recipe or an overlay. Values of the wrong type are reported and left out."""
        value = yaml_file.read_yaml(path)
        for key in value:
            if key not in allowed:
                hint = files.nearest(str(key), allowed)
                self.errors.append(f"{path}: {key}: unknown key.{hint}")
        read = {key: value[key] for key in value if key in allowed}
        for key in _MAPPINGS:
            # An overlay with an empty ``expect`` removes the published results; without the key,
            # they are kept.
            if key in allowed and (key != "expect" or key in value or path == self.path):
                read[key] = self.mapping(value.get(key), f"{path}: {key}")
        for name, entry in read["stages"].items():
            read["stages"][name] = self.mapping(entry, f"{path}: stages.{name}")
        return read

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        """The value if it is a mapping, else an empty one; a wrong value or key is reported."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.errors.append(
                f"{where}: must be a mapping of keys to values, got {_shown(value)}."
            )
            return {}
        for key in value:
            if not isinstance(key, str):
                self.errors.append(f"{where}: key {key!r} must be a string; put it in quotes.")
        return {key: entry for key, entry in value.items() if isinstance(key, str)}

    def _read_overlay(self, profile: str) -> None:
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
                f"{self.path}: profile {shortened(profile, 100)!r} is not in the recipe."
                f"{files.nearest(profile, known)} Known: {', '.join(known)}."
            )
            return
        if not isinstance(profiles[profile], str):
            self.errors.append(
                f"{self.path}: profiles.{profile}: must be the path of a file, "
                f"got {_shown(profiles[profile])}."
            )
            return
        path = self.path.parent / profiles[profile]
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

    def _apply_overrides_of_choices(self, overrides: tuple[str, ...]) -> None:
        """Apply overrides such as ``choices.schedule=readme``: they select the options to apply."""
        for override in overrides:
            key, equals, _ = override.partition("=")
            if equals and key.startswith("choices."):
                option = self._override_value(override)
                self._choose(key.removeprefix("choices."), option, _label(override))

    def _apply_choices(self) -> None:
        """Apply the selected option of every choice: set the ``stage.key`` values that it lists."""
        for name, choice in self.value["choices"].items():
            where = f"{self.path}: choices.{name}"
            choice = self.mapping(choice, where)
            options = [key for key in choice if key != "use"]
            option = str(choice.get("use"))
            if option not in options:
                self.errors.append(
                    f"{where}: use {option!r} is not one of {', '.join(options)}."
                    f"{files.nearest(option, options)}"
                )
                continue
            self.choices[name] = option
            for key, value in self.mapping(choice[option], f"{where}.{option}").items():
                self._set(key, value, f"{where}.{option}")

    def _apply_overlay(self) -> None:
        """Merge the overlay's stages deeply; its sources and ``expect`` overwrite existing ones."""
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

    def _apply_launch(self, hashed: Mapping[str, Mapping[str, Any]], name: str) -> None:
        """Set the keys of each stage that the launch file's ``hashed`` has for the stage's type."""
        for stage, entry in self.value["stages"].items():
            kind = entry.get("stage", stage)
            if isinstance(kind, str):
                for key, value in hashed.get(kind, {}).items():
                    self._set(f"{stage}.{key}", value, f"{name}: hashed.{kind}")

    def _tell_overruled(self, overrides: tuple[str, ...]) -> None:
        """Tell which values of choices on the command line the profile or launch file replaced."""
        for override in overrides:
            name = override.partition("=")[0].removeprefix("choices.")
            if not override.startswith("choices.") or name not in self.choices:
                continue
            wanted = self.value["choices"][name][self.choices[name]]
            for dotted, value in wanted.items() if isinstance(wanted, dict) else ():
                stage, _, key = str(dotted).partition(".")
                found: Any = self.value["stages"].get(stage, {})
                for part in key.split("."):
                    found = found.get(part) if isinstance(found, dict) else None
                if stage in self.value["stages"] and found != value:
                    where = self.where(stage, key.partition(".")[0])
                    self.overruled.append(
                        f"{_label(override)} sets {dotted} to {_shown(value)}, and {where} sets it "
                        f"to {_shown(found)}, which counts. Give {dotted}={value} to have it."
                    )

    def _apply_overrides(self, overrides: tuple[str, ...]) -> None:
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
                self._set(key, self._override_value(override), _label(override))

    def _override_value(self, override: str) -> Any:
        try:
            return yaml_file.parse(override.partition("=")[2])
        except ValueError as error:
            self.errors.append(f"{_label(override)}: the value is {error}.")
            return None

    def _override_source(self, override: str, key: str) -> None:
        _, name, *rest = key.split(".")
        known = self.value["sources"]
        if len(rest) != 1:
            self.errors.append(f"{_label(override)}: write sources.name.path=VALUE.")
            return
        if name not in known and name in SERVED:
            known[name] = {"kind": "model"}
        if name not in known:
            hint = files.nearest(name, known)
            self.errors.append(f"{_label(override)}: no such source {name!r}.{hint}")
            return
        kept = dict(known[name]) if isinstance(known[name], dict) else {}
        if rest[0] in ("path", "hub", "stage"):
            # A new origin replaces the old one, but ``files`` and ``kind`` may still apply.
            kept = {part: kept[part] for part in ("files", "kind") if part in kept}
        known[name] = {**kept, rest[0]: self._override_value(override)}
        self._origins["sources", name] = _label(override)

    def _set(self, dotted: str, value: Any, where: str) -> None:
        """Set ``stage.key``, or ``stage.key.subkey`` in a mapping; mappings are merged.

        ``expect.stage.…`` sets an expected result. So a choice can select one of several published
        results that contradict each other.
        """
        stage, _, key = dotted.partition(".")
        if key.count(".") >= yaml_file.MAX_DEPTH:
            self.errors.append(
                f"{where}: {shortened(dotted, 60)}: names more than {yaml_file.MAX_DEPTH} levels."
            )
            return
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


def _label(override: str) -> str:
    """How errors name an override."""
    return f"override {shortened(override, 100)}"


def _shown(value: Any) -> str:
    return shortened(repr(value), 200)


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
