"""Work on many items at a time, without reading all of them first."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def done_in_window(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], most: int
) -> Iterator[list[tuple[Item, Result]]]:
    """Submit items, and yield those that are done, several at a time.

    Args:
        submit: Starts the work on an item.
        items: The items, which are read as there is room.
        most: Largest number of items that are read and not done.

    Raises:
        Exception: Whatever the work on an item raised.
    """
    running: dict[Future[Result], Item] = {}
    for item in items:
        running[submit(item)] = item
        if len(running) >= most:
            yield _done(running)
    while running:
        yield _done(running)


def _done(running: dict[Future[Result], Item]) -> list[tuple[Item, Result]]:
    """Wait until an item is done; remove and return all that are, in their order."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    return [(running.pop(one), one.result()) for one in list(running) if one in done]
