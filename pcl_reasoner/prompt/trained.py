"""The prompt that a model was trained with, beside its weights.

    prompt.json   {"system": null, "suffix": "\\nReason step by step …", "template": null}

``tokenize`` writes it, and it goes with the rows, the checkpoint and the exported weights. The
prompts of ``sample`` and ``evaluate`` are compared with it. The exported chat template also adds
the system turn to conversations that have none, so other programs ask with the same words.
"""

import json
import shutil
from pathlib import Path

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Suffix
from pcl_reasoner.prompt.model_files import read_json

PROMPT = "prompt.json"
TEMPLATE = "chat_template.jinja"


def write_prompt(folder: Path, system: str | None, suffix: Suffix, template: str | None) -> None:
    """Write prompt.json.

    Args:
        folder: The folder of the artifact.
        system: Text of the system turn; None for no system turn.
        suffix: Text after the problem, or a text for each kind of problem.
        template: File that replaced the model's chat template; None: the model's own.
    """
    source = Path(template).read_text(encoding="utf-8") if template else None
    write_json(folder / PROMPT, {"system": system, "suffix": suffix, "template": source})


def copy_prompt(source: Path, output: Path) -> None:
    """Copy prompt.json to the next artifact, if there is one."""
    if (source / PROMPT).is_file():
        shutil.copyfile(source / PROMPT, output / PROMPT)


def write_template(folder: Path) -> None:
    """Write the chat template with the trained system turn into a folder of exported weights.

    Args:
        folder: A Hugging Face folder with prompt.json; without one, nothing is written.
    """
    from pcl_reasoner.prompt.template import load_template

    if not (folder / PROMPT).is_file():
        return
    prompt = read_json(folder / PROMPT)
    source = prompt["template"]
    if prompt["system"] is None and source is None:
        return
    source = source or load_template(folder).source
    (folder / TEMPLATE).write_text(with_system(source, prompt["system"]), encoding="utf-8")


def with_system(source: str, system: str | None) -> str:
    """Return a chat template that adds the system turn to conversations that have none.

    Args:
        source: The template, jinja.
        system: Text of the system turn; None: the template does not change.
    """
    if system is None:
        return source
    text = json.dumps(system, ensure_ascii=False)
    turn = "{'role': 'system', 'content': " + text + "}"
    return (
        "{%- if messages[0]['role'] != 'system' %}"
        "{%- set messages = [" + turn + "] + messages %}{%- endif %}" + source
    )


def check_prompt(
    folder: Path, system: str | None, suffix: Suffix, template: str | None = None
) -> None:
    """Compare a stage's prompt with the one that the model was trained with, if that is known.

    Args:
        folder: Hugging Face folder of the weights.
        system: The stage's system turn; None: the chat template's own.
        suffix: The stage's text after the problem, or a text for each kind of problem.
        template: The stage's template file; None: the model's own template.

    Raises:
        StageError: They differ.
    """
    if not (folder / PROMPT).is_file():
        return
    trained = read_json(folder / PROMPT)
    found = []
    if system is not None and system != trained["system"]:
        found.append(f"system is {system!r} here and {trained['system']!r} in training")
    if suffix != trained["suffix"]:
        found.append(f"suffix is {suffix!r} here and {trained['suffix']!r} in training")
    if template and Path(template).read_text(encoding="utf-8") != trained["template"]:
        found.append(f"template is {template} here and another one in training")
    if found:
        raise StageError(
            f"{folder}: the model was trained with another prompt: {'; '.join(found)}. Set the "
            f"stage's keys to the trained prompt. To ask with other words on purpose, delete "
            f"{PROMPT} there."
        )
