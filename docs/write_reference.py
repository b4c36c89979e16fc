"""Writes docs/reference/*.md, docs/troubleshooting.md and the table of rules from the code.

python docs/write_reference.py
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pydantic import BaseModel

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core import schema, schemas
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.preflight.rules import RULES
from pcl_reasoner.stages import STAGES

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_WRITTEN = "Written by `python docs/write_reference.py` from {source}: change that, not this page."
_TABLE_BEGIN, _TABLE_END = "<!-- the rules -->", "<!-- end of the rules -->"
_WHEN = {"always": "always", "plan": "by `run`", "run": "at the start of `run`"}
_ERRORS = ("InputError", "StageError", "ValueError")
_BOUNDS = {
    "exclusiveMinimum": "> {}",
    "minimum": "≥ {}",
    "exclusiveMaximum": "< {}",
    "maximum": "≤ {}",
    "minItems": "at least {} items",
    "minLength": "at least {} characters",
    "pattern": "`{}`",
}


def pages() -> dict[Path, str]:
    """Every generated page: path -> Markdown."""
    return {
        DOCS / "reference" / "commands.md": commands(),
        DOCS / "reference" / "recipe_keys.md": recipe_keys(),
        DOCS / "reference" / "launch_keys.md": launch_keys(),
        DOCS / "reference" / "tables.md": tables(),
        DOCS / "troubleshooting.md": troubleshooting(),
        DOCS / "cluster" / "preflight.md": preflight(),
    }


def commands() -> str:
    """The help of every command, in the order of `pclr-ms --help`."""
    settings = {**cli.context_settings, "terminal_width": 100}
    top = click.Context(cli, info_name="pclr-ms", **settings)
    parts = [
        _head("Commands", "the commands' help"),
        "Exit codes: 0 done; 1 a stage failed or something is missing; 2 the input was wrong and "
        "nothing was run;\n3 `contamination check` found a benchmark question in the data; 130 "
        "interrupted (run the same command again\nto resume).\n\n",
        _block(cli.get_help(top)),
    ]
    return "".join([*parts, *_help_of(cli, top, "##")])


def _help_of(group: click.Group, parent: click.Context, level: str) -> Iterator[str]:
    """The help of a group's commands, and of the commands in its groups."""
    for name, command in group.commands.items():
        context = click.Context(command, parent=parent, info_name=name)
        yield f"\n{level} {context.command_path}\n\n{_block(command.get_help(context))}"
        if isinstance(command, click.Group):
            yield from _help_of(command, context, f"{level}#")


def recipe_keys() -> str:
    """The keys of every stage's configuration, and of a source."""
    parts = [
        _head("Recipe keys", "the stages' configuration classes"),
        "A stage's keys are below `stages: {NAME: …}` of a recipe, and so are its inputs: "
        "`inputs: {ROLE: NAME}`. An input\nwhose role ends in `?` is optional; `*` means all other "
        "stages of the recipe. A stage without `seed` gets the recipe's.\n",
    ]
    for name, stage in STAGES.items():
        model = stage.config_class()
        roles = ", ".join(f"`{role}`" for role in stage.inputs) or "none"
        parts.append(f"\n## {name}\n\n{_first_line(model)}\n\nInputs: {roles}.\n\n{_tables(model)}")
    parts.append(f"\n## A source\n\n{_first_line(schema.Source)}\n\n{_tables(schema.Source)}")
    return "".join(parts)


def launch_keys() -> str:
    """The keys of a launch file."""
    text = _tables(schema.Launch)
    return f"{_head('Launch file keys', '`core/schema.py`')}{_first_line(schema.Launch)}\n\n{text}"


def tables() -> str:
    """The columns of every artifact that is a table."""
    parts = [_head("Artifacts and columns", "`core/schemas.py`")]
    meanings = _docstrings(Path(schemas.__file__))
    for name, meaning in meanings.items():
        value = getattr(schemas, name)
        if isinstance(value, pa.Schema):
            rows = "".join(f"| `{field.name}` | {field.type} |\n" for field in value)
            title = name.lower().replace("_", " ")
            parts.append(
                f"\n## {title}\n\n{_code(meaning)}\n\n| column | type |\n|---|---|\n{rows}"
            )
    return "".join(parts)


def troubleshooting() -> str:
    """Every error message that the code can raise, sorted by folder of pcl_reasoner."""
    parts = [
        _head("Troubleshooting", "the errors in the code"),
        "An error message says where the error is, what was found, what was expected, and what to "
        "do. This page lists all\nmessages, sorted by the part of the code that raises them; `…` "
        "stands for a value. Search this page for a part of\nthe message that you see.\n",
    ]
    for room in sorted(path for path in (ROOT / "pcl_reasoner").iterdir() if path.is_dir()):
        found = [
            f"- `{message}`  \n  {file.relative_to(ROOT).as_posix()}\n"
            for file in sorted(room.glob("*.py"))
            for message in _messages(file)
        ]
        if found:
            parts.append(f"\n## {room.name}\n\n{''.join(found)}")
    return "".join(parts)


def preflight() -> str:
    """The page about the checks before a run, with a new table of the rules."""
    page = DOCS / "cluster" / "preflight.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(_TABLE_BEGIN)
    _, _, after = rest.partition(_TABLE_END)
    rows = [
        f"| `{name}` | {rule.level} | {_WHEN[rule.when]} | "
        f"{_code(inspect.getdoc(rule.check) or '')} |\n"
        for name, rule in RULES.items()
    ]
    head = "| rule | level | checked | what it finds |\n|---|---|---|---|\n"
    return f"{before}{_TABLE_BEGIN}\n\n{head}{''.join(rows)}\n{_TABLE_END}{after}"


def _messages(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[text, *_]) if name in _ERRORS:
                message = re.sub(r"\s+", " ", _text(text)).strip().replace("`", "'")
                if re.search(r"\w{3}", message):
                    yield message


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return "…"


def _tables(model: type[BaseModel]) -> str:
    """The table of a model's keys, and one for each model inside it."""
    value = model.model_json_schema(ref_template="{model}")
    inner = {name: _model(model, name) for name in value.get("$defs", {})}
    parts = [_table(model, value)]
    parts += [
        f"\n**{name}**: {_first_line(inner[name])}\n\n{_table(inner[name], part)}"
        for name, part in value.get("$defs", {}).items()
    ]
    return "".join(parts)


def _model(model: type[BaseModel], name: str) -> type[BaseModel]:
    known: list[type[BaseModel]] = [*_subclasses(BaseModel)]
    return next(found for found in known if found.__name__ == name)


def _subclasses(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for found in base.__subclasses__():
        yield found
        yield from _subclasses(found)


def _table(model: type[BaseModel], value: dict[str, Any]) -> str:
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base not in (BaseModel, StageConfig):
            meanings |= _docstrings(Path(inspect.getfile(base)), base.__name__)
    rows = [
        f"| `{name}` | {_type(field)} | {_default(field, name in value.get('required', []))} | "
        f"{_bounds(field)} | {_code(meanings.get(name, ''))} |\n"
        for name, field in value.get("properties", {}).items()
    ]
    if not rows:
        return "No keys.\n"
    return "| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n" + "".join(rows)


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"])
    if "allOf" in field:
        return _type(field["allOf"][0])
    if "anyOf" in field:
        return " or ".join(_type(part) for part in field["anyOf"])
    if "enum" in field or "const" in field:
        return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"mapping to {_type(field['additionalProperties'])}"
    return str(field.get("type", "any"))


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = field.get("default")
    if value is None or "$ref" in field:
        return "—"
    return "`{}`".format(str(value).replace("\n", "\\n"))


def _bounds(field: dict[str, Any]) -> str:
    parts = [field, *field.get("anyOf", [])]
    found = [
        text.format(part[key]) for part in parts for key, text in _BOUNDS.items() if key in part
    ]
    return ", ".join(found).replace("|", "\\|")


@cache
def _docstrings(file: Path, name: str | None = None) -> dict[str, str]:
    """Name -> the text below its assignment, in a module or in one of its classes."""
    tree: ast.Module | ast.ClassDef = ast.parse(file.read_text(encoding="utf-8"))
    if name is not None:
        tree = next(
            node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name
        )
    found, last = {}, ""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=last)) | ast.Assign(targets=[ast.Name(id=last)]):
                continue
            case ast.Expr(value=ast.Constant(value=str(text))) if last:
                found[last] = re.sub(r"\s+", " ", text).strip()
        last = ""
    return found


def _first_line(model: type[BaseModel]) -> str:
    return _code(inspect.getdoc(model) or "").split("\n\n")[0]


def _code(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _head(title: str, source: str) -> str:
    return f"# {title}\n\n{_WRITTEN.format(source=source)}\n\n"


def _block(text: str) -> str:
    return f"```text\n{inspect.cleandoc(text)}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
