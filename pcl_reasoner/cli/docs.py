"""Writes docs/cli.md from the commands' own help: ``python -m pcl_reasoner.cli.docs``."""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from pcl_reasoner.cli.main import cli

FILE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_HEAD = """# Commands

Written by `python -m pcl_reasoner.cli.docs` from the commands' help: change that, not this page.

Exit codes: 0 done, 1 a stage failed or something is missing, 2 the input was wrong and nothing was
run, 130 interrupted (run the same command again to go on).

"""


def document() -> str:
    """The page as Markdown: the help of every command, in the order of `pclr-ms --help`."""
    settings = {**cli.context_settings, "terminal_width": 100}
    top = click.Context(cli, info_name="pclr-ms", **settings)
    parts = [_HEAD, _block(cli.get_help(top))]
    for name, command in cli.commands.items():
        context = click.Context(command, parent=top, info_name=name)
        parts.append(f"\n## pclr-ms {name}\n\n{_block(command.get_help(context))}")
    return "".join(parts)


def _block(text: str) -> str:
    return f"```text\n{inspect.cleandoc(text)}\n```\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
