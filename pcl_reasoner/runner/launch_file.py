"""Launch file -> a checked Launch: where a recipe runs."""

from pydantic import ValidationError

from pcl_reasoner.core import files
from pcl_reasoner.core.errors import join_errors
from pcl_reasoner.core.schema import Launch
from pcl_reasoner.core.validation import validation_messages
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.stages import STAGES, stage_hint


def load_launch(name: str) -> Launch:
    """Read and check a launch file.

    Args:
        name: A path, or the name of a shipped launch file.

    Raises:
        InputError: The launch file is missing or wrong; one error lists all problems.
    """
    path = files.find(name, "launch")
    value = read_yaml(path)
    hashed = value.get("hashed")
    errors = [
        f"{path}: hashed.{stage}: no such stage.{stage_hint(str(stage), STAGES)}"
        for stage in (hashed if isinstance(hashed, dict) else ())
        if stage not in STAGES
    ]
    try:
        launch = Launch.model_validate(value)
    except ValidationError as error:
        errors += validation_messages(error, lambda key: str(path), "", Launch)
    if errors:
        raise join_errors(errors)
    return launch
