"""Converts pydantic's errors to messages that name the file, the key, the problem and the value."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from pcl_reasoner.core.checks import SECRET
from pcl_reasoner.core.errors import join_errors, shortened
from pcl_reasoner.core.files import nearest

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], values: Mapping[str, Any], where: str) -> Model:
    """Make a pydantic model from its keys and values.

    Args:
        model: The model's class.
        values: Key -> value; ``where`` says in an error where they come from.

    Raises:
        InputError: All problems, in one error.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise join_errors([*validation_messages(error, lambda key: where, "", model)]) from error


def validation_messages(
    error: ValidationError, where: Callable[[str], str], prefix: str, model: type[BaseModel]
) -> Iterator[str]:
    """Convert pydantic's errors to our messages: ``file: path: what is wrong, got VALUE``.

    Args:
        error: Pydantic's errors.
        where: Top-level key, or the message of a rule about several -> the file that it came from.
        prefix: Text before the path, e.g. ``stage pack: ``.
        model: The model that was validated; its keys are suggested for unknown ones.
    """
    for detail in error.errors():
        location = detail["loc"]
        path = shortened(".".join(map(str, location)), 200)
        key = str(location[-1]) if location else ""
        start = f"{where(str(location[0]) if location else detail['msg'])}: {prefix}"
        owner = _model_at(model, location[:-1])
        new_name = getattr(owner, "renamed", {}).get(key)
        new_values = getattr(owner, "renamed_values", {}).get(key, {})
        if detail["type"] == "extra_forbidden" and new_name:
            yield f"{start}{path}: is called {new_name} now."
        elif detail["type"] == "literal_error" and detail["input"] in new_values:
            yield f"{start}{path}: {detail['input']} is called {new_values[detail['input']]} now."
        elif detail["type"] == "extra_forbidden":
            yield f"{start}{path}: unknown key.{nearest(key, owner.model_fields)}"
        elif detail["type"] == "missing":
            yield f"{start}{path}: must be given."
        else:
            message = detail["msg"].removeprefix("Value error, ")
            hidden = detail["type"] == SECRET or "api_keys" in location
            hidden = hidden or isinstance(detail["input"], dict)
            got = "" if hidden else f", got {shortened(repr(detail['input']), 200)}"
            cut = message.rfind(" Did you mean") if message.endswith("?") else len(message)
            begin = f"{start}{path}{': ' if path else ''}{message[:cut].rstrip('.')}"
            yield f"{begin}{got}.{message[cut:]}"


def _model_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model class that a path of field names leads to."""
    for part in path:
        if field := model.model_fields.get(str(part)):
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
