"""A reward of the user's own: a function in a Python file.

    def reward(problem, response, ground_truth, checks):
        return 1.0 if "therefore" in response else 0.0

``response`` is the complete response, ``checks`` the problem's checks as JSON values or None. The
function returns a number in [0, 1], or a pair of such a number and a text that says why.

The log of a running stage says first which interpreter it was (sandbox_log.py), and then has a line
per response:

    {"problem_id": "9f0c…", "sample_index": 3, "reward": 1.0, "why": null}
"""

from __future__ import annotations

import platform
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.formats.records import encodable
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.opening import choose, opened
from pcl_reasoner.verifiers.logs import REWARD_LOG
from pcl_reasoner.verifiers.python_reward_config import PythonRewardConfig
from pcl_reasoner.verifiers.sandbox_log import SandboxLog, made_by
from pcl_reasoner.verifiers.window import done_in_window

_AHEAD = 4
"""Responses per worker that are read before their turn comes."""
_SHOWN = 80
"""Characters of a wrong reward that are shown."""


@dataclass(frozen=True)
class Rewarded:
    """What the function gave for one response.

    Args:
        reward: A number in [0, 1].
        why: Its text, as a file can have it, or None.
    """

    reward: float
    why: str | None = None

    def __post_init__(self) -> None:
        """Replace halves of surrogate pairs in the text."""
        if self.why is not None:
            object.__setattr__(self, "why", encodable(self.why))


@dataclass(frozen=True)
class Asked:
    """The arguments of one call.

    Args:
        key: The response's key.
        problem: The problem's text.
        response: The complete response.
        ground_truth: The problem's answer, or "".
        checks: The problem's checks, or None.
    """

    key: Key
    problem: str
    response: str
    ground_truth: str
    checks: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """The response's name, for errors."""
        return f"{self.key[0]}/{self.key[1]}"

    @property
    def arguments(self) -> list[Any]:
        """The function's arguments, in order."""
        return [self.problem, self.response, self.ground_truth, self.checks]


class RewardLog(SandboxLog):
    """The rewards of a running stage; its arguments are those of `SandboxLog`."""

    def __init__(self, path: Path, by: dict[str, str], warn: Callable[[str], None]) -> None:
        self.rewards: dict[Key, Rewarded] = {}
        super().__init__(path, by, warn)

    def note(self, answer: Record) -> None:
        """Keep a reward in memory."""
        key = (answer["problem_id"], answer["sample_index"])
        self.rewards[key] = Rewarded(answer["reward"], answer["why"])


def log_line(key: Key, rewarded: Rewarded) -> Record:
    """Return the log's line for a reward."""
    found = {"reward": rewarded.reward, "why": rewarded.why}
    return {"problem_id": key[0], "sample_index": key[1], **found}


@dataclass(frozen=True)
class Rewards:
    """The reward of each response, and the interpreter that gave them."""

    rewards: dict[Key, Rewarded]
    described: dict[str, str]


@dataclass(frozen=True)
class _Function:
    """The user's function: how it is called, how many calls may run at a time, and by what."""

    call: Callable[[Asked], Any]
    workers: int
    by: dict[str, str]


def reward_all(
    config: PythonRewardConfig,
    sandbox: SandboxConfig,
    questions: Iterable[Asked],
    total: int,
    output: Path,
    context: StageContext,
) -> Rewards:
    """Call the function for every response that is not in the log yet; return all rewards.

    Args:
        config: The file and the function.
        sandbox: Limits, if the function runs in the sandbox.
        questions: The responses; a few are in memory at a time.
        total: Their number, for progress.
        output: The stage's folder; it has the log if an earlier run was killed.
        context: ``placement.sandbox`` says where the sandbox runs.

    Raises:
        StageError: The function cannot be loaded, raises an error, or returns no number in [0, 1].
    """
    where = f"{config.file}, function {config.function}"
    with (
        _function(config, sandbox, context) as function,
        ThreadPoolExecutor(function.workers) as pool,
    ):

        def submit(asked: Asked) -> Future[Any]:
            return pool.submit(function.call, asked)

        log = RewardLog(output / REWARD_LOG, function.by, context.warn)
        try:
            new = (asked for asked in questions if asked.key not in log)
            for done in done_in_window(submit, new, _AHEAD * function.workers):
                log.add(
                    log_line(asked.key, _checked(value, f"{where}, response {asked.name}"))
                    for asked, value in done
                )
                context.progress.update(len(log), total, "rewards")
        finally:
            log.close()
    return Rewards(log.rewards, function.by)


@contextmanager
def _function(
    config: PythonRewardConfig, sandbox: SandboxConfig, context: StageContext
) -> Iterator[_Function]:
    """Load the function."""
    file = Path(config.file).expanduser()
    try:
        code = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(
            f"{file}: the reward's file cannot be read ({error}). Correct python.file."
        ) from error
    if not config.sandboxed:
        version = f"{platform.python_version()} on {platform.machine()}"
        by = {"engine": "this process", "python": sys.executable, "python_version": version}
        yield _Function(_in_this_process(file, config.function), 1, by)
        return
    placement = context.placement.sandbox
    choice = choose(sandbox, placement)
    with opened(sandbox, placement, choice) as sandboxes:

        def call(asked: Asked) -> Any:
            value, failure = sandboxes.call(code, config.function, asked.arguments)
            if failure is not None:
                why = f"{failure.reason}: {failure.text}" if failure.text else failure.reason
                raise StageError(
                    f"{file}, function {config.function}, response {asked.name}: {why}. Correct "
                    "the function."
                )
            return value

        yield _Function(call, sandboxes.workers, made_by(choice))


def _in_this_process(file: Path, name: str) -> Callable[[Asked], Any]:
    try:
        names = runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        raise StageError(
            f"{file}: cannot be loaded ({type(error).__name__}: {error}). Correct the file."
        ) from error
    function = names.get(name)
    if function is None:
        raise StageError(f"{file}: has no function {name}. Correct python.function.")

    def call(asked: Asked) -> Any:
        try:
            return function(*asked.arguments)
        except (Exception, SystemExit) as error:
            raise StageError(
                f"{file}, function {name}, response {asked.name}: {type(error).__name__}: {error}. "
                "Correct the function."
            ) from error

    return call


def _checked(value: Any, where: str) -> Rewarded:
    """Return the reward that the function gave.

    Raises:
        StageError: It is no number in [0, 1], or a pair of one and a text.
    """
    why = None
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], str):
        value, why = value
    # NumPy's numbers are Real, too.
    if isinstance(value, Real) and 0 <= value <= 1:  # type: ignore[operator]
        return Rewarded(float(value), why)
    raise StageError(
        f"{where}: got {_shown(value)}, expected a number in [0, 1], or a pair of one and a text. "
        "Correct the function."
    )


def _shown(value: Any) -> str:
    try:
        return repr(value)[:_SHOWN]
    except Exception:  # e.g. an integer of too many digits
        return f"a value of the type {type(value).__name__}"
