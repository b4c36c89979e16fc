"""The judge's verdicts on disk, so that it is asked about no pair twice.

    <folder>/3f9c2a51d07be846/verdicts.jsonl, one file per judge, prompt and sampling settings:

    {"problem_id": "9a41…", "sample_index": 0, "same": true, "text": "… VERDICT: YES", "asked": 1}

``problem_id`` is the hash of what the judge read: text, question and prompt. A verdict is written
as it arrives; a line that a kill left half-written is removed when the file is opened. One process
at a time locks the folder. A process that finds it locked, or that is given no folder, uses a
temporary folder.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.inference.answer_log import AnswerLog, Record


@dataclass(frozen=True)
class Opinion:
    """The judge's verdict on one pair.

    Args:
        same: True: the text gives the question away; None: no reply had a readable verdict.
        text: The end of the judge's last reply; if the request failed for good, why.
        asked: How often the judge replied about it.
    """

    same: bool | None
    text: str
    asked: int = 1

    @property
    def verdict(self) -> str:
        """``yes``, ``no`` or ``unreadable``."""
        return {True: "yes", False: "no", None: "unreadable"}[self.same]


class VerdictCache(AnswerLog):
    """The verdicts of one judge.

    Args:
        path: The JSONL file; it has the verdicts of earlier checks.
    """

    def __init__(self, path: Path) -> None:
        self.opinions: dict[str, Opinion] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a verdict in memory."""
        opinion = Opinion(answer["same"], answer["text"], answer["asked"])
        self.opinions[answer["problem_id"]] = opinion


def log_line(pair: str, opinion: Opinion) -> Record:
    """Return the line of the cache for one pair."""
    return {"problem_id": pair, "sample_index": 0, **vars(opinion)}


@contextmanager
def opened(folder: Path | None, judge: str) -> Iterator[VerdictCache]:
    """Yield the cache of one judge.

    Args:
        folder: Folder of all judges' caches, created if absent; None: a temporary folder.
        judge: Hash of the judge, its prompt and settings; its first 16 digits name the subfolder.
    """
    with ExitStack() as resources:
        place = None if folder is None else _locked(folder / judge[:16], resources)
        if place is None:
            temporary = tempfile.TemporaryDirectory(prefix="pclr-ms-verdicts-")
            place = Path(resources.enter_context(temporary))
        yield resources.enter_context(closing(VerdictCache(place / "verdicts.jsonl")))


def _locked(folder: Path, resources: ExitStack) -> Path | None:
    """Lock a folder and return it; None if another process has locked it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = resources.enter_context((folder / "lock").open("a"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return folder
