"""The documents say what is there: paths, links, commands, recipes, tables, examples."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pcl_reasoner import __version__
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.launch_file import load_launch
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.stages import STAGES, Stage
from pcl_reasoner.version_check.matrix import serving_rows, training_rows

ROOT = files.PACKAGE.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = (
    "recipes",
    "launch",
    "handlers",
    "pcl_reasoner",
    "tests",
    "benchmarks",
    "docs",
    "requirements",
)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page: Path) -> str:
    return re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language; those inside a list lose its indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text_of(page), re.M | re.S)
    return [re.sub(rf"^{indent}", "", block, flags=re.M) for indent, block in found]


def spans(page: Path) -> list[str]:
    """What stands in `code` within a line."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.M | re.S)
    return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose)]


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the table whose head has this first cell, as cells."""
    _, found, rest = text_of(page).partition(f"\n| {heading} |")
    assert found, f"{page.name}: no table {heading}"
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", text_of(page), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in found}


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def commands(page: Path) -> Iterator[list[str]]:
    """The words after ``pclr-ms`` in every command of a page."""
    fenced = re.findall(r"^ *(?:\S*/)?pclr-ms (.+)$", text_of(page), re.M)
    inline = [span[len("pclr-ms ") :] for span in spans(page) if span.startswith("pclr-ms ")]
    for line in fenced + inline:
        yield shlex.split(line, comments=True)


def test_there_is_something_to_check() -> None:
    names = {page.name for page in PAGES}
    assert names >= {
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "recipes_and_launch_files.md",
        "commands.md",
    }
    assert sum(1 for page in PAGES for _ in commands(page)) > 30
    assert blocks(ROOT / "docs" / "your_own.md", "yaml")
    assert blocks(ROOT / "CONTRIBUTING.md", "python")


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text_of(page)):
        if not target.startswith("https://"):
            file, _, heading = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not heading or heading in headings(linked), target


@every_page
def test_every_path_is_there(page: Path) -> None:
    pattern = rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*)"
    for path in re.findall(pattern, text_of(page)):
        if "XXXXXXXX" not in path:
            assert (ROOT / path.rstrip(".")).exists(), path


def test_the_layout_is_the_tree() -> None:
    (layout,) = [block for block in blocks(ROOT / "README.md", "text") if "recipes/ " in block]
    lines = [re.match(r"( *)(\S+)", line) for line in layout.splitlines()]
    paths = [("pcl_reasoner/" if line[1] else "") + line[2] for line in lines if line]
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
    rooms = {path.parent.name for path in files.PACKAGE.glob("*/__init__.py")}
    assert {Path(path).name for path in paths} >= rooms - {"pcl_reasoner"}


@every_page
def test_every_make_target_is_there(page: Path) -> None:
    made = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    wanted = re.findall(r"(?:^|`)make ([a-z][\w-]*)", text_of(page), re.M)
    assert set(wanted) <= set(made)


@every_page
def test_every_command_parses(page: Path) -> None:
    for first, *rest in commands(page):
        assert first in cli.commands, first
        if rest:
            # With its group as parent; alone, click would keep a help option of other settings.
            parent = click.Context(cli, **cli.context_settings)
            cli.commands[first].make_context(first, rest, parent=parent)


def write_examples(folder: Path) -> None:
    """The recipes and launch files of the pages, under the names that they give themselves."""
    for page in PAGES:
        for block in blocks(page, "yaml"):
            name = re.match(r"# (\S+\.yaml)\n", block)
            if name:
                (folder / name[1]).write_text(block)


def recipe_options(words: list[str]) -> dict[str, Any] | None:
    """What a command gives to load_recipe; None where it names no recipe of ours."""
    first, *rest = words
    if not rest:
        return None
    params = cli.commands[first].make_context(first, rest).params
    name = params.get("recipe") or params.get("left")
    shipped = {path.stem for path in files.shipped("recipes").glob("*.yaml")}
    if name is None or not (Path(name).stem in shipped or Path(name).is_file()):
        return None
    keys = ("launch", "profile", "overrides", "seed")
    return {"name": name, **{key: params[key] for key in keys if params.get(key) is not None}}


@every_page
def test_every_recipe_in_a_command_is_valid(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    copies = {
        "my_laptop": "laptop",
        "my_atlas": "atlas_910c_16x8",
        "my_cluster": "atlas_910c_16x16",
        "my_node": "one_node_7b",
    }
    for copied, shipped in copies.items():
        (tmp_path / f"{copied}.yaml").write_text(files.find(shipped, "launch").read_text())
    found = [options for words in commands(page) if (options := recipe_options(words))]
    for options in found:
        load_recipe(**options)
    if page.name in ("README.md", "bring_your_own.md", "mindformers.md", "recipes.md"):
        assert found


@every_page
def test_every_yaml_example_is_valid(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "yaml"):
        example = tmp_path / "example.yaml"
        example.write_text(block)
        value = read_yaml(example)
        if "stages" in value:
            launch = "my_machine.yaml" if block.startswith("# my_") else "laptop.yaml"
            load_recipe(str(example), launch=launch, profile="paper")
        elif "placement" in value:
            load_launch(str(example))
        elif "train_dataset" in value:
            check_mindformers_names(value)
        else:
            for stage, settings in value.items():
                STAGES[stage].config_class().model_validate(settings)


def check_mindformers_names(value: dict[str, Any]) -> None:
    """Our classes exist, the handlers take their keywords, the columns are the loader's."""
    import pcl_reasoner.handlers as handlers
    from pcl_reasoner.losses.columns import column_names

    dataset = value["train_dataset"]
    names = column_names(dataset["data_loader"]["create_compressed_eod_mask"])
    assert dataset["input_columns"] == dataset["construct_args_key"] == names
    for entry in dataset["data_loader"]["handler"]:
        keywords = {key: given for key, given in entry.items() if key != "type"}
        inspect.signature(getattr(handlers, entry["type"])).bind(**keywords)


def test_every_class_that_mindformers_is_told_of_exists() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "pcl_reasoner/trainer").glob("*.py"))
    code += "\n".join(path.read_text() for path in (ROOT / "handlers").glob("*.py"))
    page = ROOT / "docs" / "mindformers.md"
    named = {name for row in table(page, "kind") for name in code_in(row[1])}
    assert len(named) == 11
    assert {name for name in named if f"\nclass {name}" not in code} == set()
    in_yaml = set(re.findall(r"type[:=] ?(Pcl\w+)", text_of(page)))
    assert in_yaml <= named


def test_the_flags_table_is_what_is_rendered(tmp_path: Path) -> None:
    """`key: value` of V1.5's flags against the YAML of its recipe and launch file."""
    from pcl_reasoner.train.compare import flatten
    from pcl_reasoner.train.render import render_for_plan

    recipe = load_recipe("v15_opg", launch="atlas_910c_16x8")
    rendered = flatten(render_for_plan(make_plan(recipe, tmp_path, until="train").stages[-1]))
    checked = 0
    for row in table(ROOT / "docs" / "mindformers.md", "V1.5's flag"):
        for span in code_in(row[1]):
            key, _, value = span.partition(": ")
            assert key in rendered, span
            if value:
                assert rendered[key] == yaml.safe_load(value), span
                checked += 1
    assert checked > 40


def test_tables_of_stages_name_each_in_its_order() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "recipes_and_launch_files.md"):
        named = [code_in(row[0])[0] for row in table(page, "stage")]
        assert named == list(STAGES), page.name


def test_tables_of_columns_name_every_column() -> None:
    from pcl_reasoner.core import schemas

    by_stage = {
        "convert": schemas.ROWS,
        "unique": schemas.PROBLEMS,
        "sample": schemas.RESPONSES,
        "grade": schemas.VERDICTS,
        "tokenize": schemas.SEGMENTS,
        "pack": schemas.PACKED_ROWS,
    }
    named = {
        code_in(row[0])[0]: row
        for row in table(ROOT / "docs" / "recipes_and_launch_files.md", "stage")
    }
    for stage, schema in by_stage.items():
        assert code_in(named[stage][2]) == schema.names, stage


def test_tables_of_settings_name_every_setting() -> None:
    recipes, contamination = (
        ROOT / "docs" / "recipes_and_launch_files.md",
        ROOT / "docs" / "walk" / "contamination.md",
    )
    placement = [name for row in table(recipes, "`placement` key") for name in code_in(row[0])]
    assert sorted(placement) == sorted(Placement.model_fields)
    settings = [name for row in table(contamination, "key") for name in code_in(row[0])]
    known = STAGES["contamination"].config_class().model_fields
    assert sorted(settings) == sorted(known)


def test_readme_names_every_command() -> None:
    rows = table(ROOT / "README.md", "command")
    named = [name.removeprefix("pclr-ms ") for row in rows for name in code_in(row[0])]
    assert sorted(named) == sorted(cli.commands)


def test_options_in_the_prose_are_options() -> None:
    known = {
        option
        for command in cli.commands.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    for name in ("README.md", "docs/recipes_and_launch_files.md", "docs/your_own.md"):
        words = {word for span in spans(ROOT / name) for word in span.split()}
        assert {word for word in words if word.startswith("--")} <= known, name


def test_versions_are_the_packages_own() -> None:
    readme = (ROOT / "README.md").read_text()
    for name, version in zip(
        ("MindSpore", "MindFormers", "CANN"), training_rows()[0][:3], strict=True
    ):
        assert f"{name} {version}" in readme
    assert f": {__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_the_page_of_engines_has_the_table_of_versions() -> None:
    page = ROOT / "docs" / "cluster" / "engines.md"
    rows = [[cell.strip() for cell in row] for row in table(page, "MindSpore")]
    assert rows == [list(row) for row in training_rows()]
    rows = [[cell.strip() for cell in row] for row in table(page, "vllm-ascend")]
    assert rows == [list(row) for row in serving_rows()]


def test_the_contributors_stage_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three problems have at most 3 characters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    module, line = blocks(ROOT / "CONTRIBUTING.md", "python")
    # In a module of its own: pydantic looks the annotations up there.
    (tmp_path / "brief.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = eval(f"{{{line}}}", {"Stage": Stage})["brief"]  # noqa: S307
    stage = Stage("brief", entry.run, entry.inputs)
    pq.write_table(pa.table({"problem": ["abc", "abcd", "ä" * 3]}), tmp_path / "clean.parquet")
    (tmp_path / "out").mkdir()
    context = StageContext(name="brief", quarantined=tmp_path / artifact.QUARANTINED)
    config = stage.config_class().model_validate({"max_characters": 3})
    counts = stage.function()(config, {"problems": tmp_path}, tmp_path / "out", context)
    assert (counts.read, counts.kept, counts.dropped) == (3, 2, {"too_long": 1})
    kept = pq.read_table(tmp_path / "out" / "clean.parquet")
    assert kept["problem"].to_pylist() == ["abc", "ä" * 3]


def test_the_problems_example_gives_what_the_stages_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from pcl_reasoner.sample.stage import read_problems

    (code,) = blocks(ROOT / "docs" / "your_own.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    table_written = pq.read_table("problems.parquet")
    assert table_written.column_names == ["problem_id", "problem", "ground_truth"]
    (problem,), repeated = read_problems(tmp_path / "problems.parquet")
    assert (problem.text, repeated) == ("What is 6 times 7?", 0)


def test_the_reward_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's files are written under their names, its recipe is run, its code is executed."""
    from click.testing import CliRunner
    from sandbox_helpers import need

    need("unshare")
    page = ROOT / "docs" / "your_own.md"
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = blocks(page, "py")
    files_of_page = {block.split("\n")[0]: block for block in code}
    Path("my_reward.py").write_text(files_of_page["# my_reward.py"])
    exec(files_of_page["# make_animals.py"], {})
    done = CliRunner().invoke(cli, ["run", "my_animals.yaml"])
    assert done.exit_code == 0, done.output
    (show,) = [block for block in code if "runs/my_animals" in block]
    capsys.readouterr()
    exec(show, {})
    (shown,) = [block for block in blocks(page, "text") if block.startswith("python scored")]
    assert capsys.readouterr().out == shown
