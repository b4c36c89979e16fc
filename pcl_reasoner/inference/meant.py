"""Whether a server has the weights that are meant, by what it says of itself.

    GET {base}/models -> {"data": [{"id": "policy", "root": "/runs/v1_sft/export-1a2b3c4d"},
                                   {"id": "policy@9f86d081884c7d65", "root": "/runs/…"}]}

vLLM's ``root`` is the folder or hub id with which it was started. The second name is that of a
server which a stage starts: a hash of config.json and of the weights. If evaluations before and
after training ask one and the same server, only ``root`` shows that one of them asks the wrong one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pcl_reasoner.answers.pages import ModelCard
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.inference.server import SupervisedServer


@dataclass(frozen=True)
class Meant:
    """The model that servers must have.

    Args:
        folder: Its Hugging Face folder on this machine.
        paths: The launch file's ``server_paths``: folder here -> the servers' name for it.
    """

    folder: Path
    paths: Mapping[str, str]

    @property
    def root(self) -> str:
        """The ``root`` that a running server must report; of several prefixes the longest counts.

        A prefix covers all that is in its folder: {"/a/runs": "/mnt/runs"} turns /a/runs/x into
        /mnt/runs/x.
        """
        here = PurePosixPath(self.folder.resolve())
        for prefix, there in sorted(self.paths.items(), key=lambda pair: -len(pair[0])):
            if here.is_relative_to(known := Path(prefix).resolve()):
                rest = here.relative_to(known)
                return there if rest == PurePosixPath() else str(PurePosixPath(there) / rest)
        return str(here)


def meant(folder: Path | None, placement: Placement) -> Meant | None:
    """Return what servers must have; None if the stage does not know the model's folder."""
    return None if folder is None else Meant(folder, placement.server_paths)


def check_root(url: str, found: str | None, expected: Meant) -> None:
    """Compare a running server's ``root`` with the model that is meant.

    Args:
        url: The server's base URL.
        found: Its ``root``; None if it reports none, like servers other than vLLM.
        expected: The model.

    Raises:
        StageError: It serves another folder.
    """
    wanted = expected.root
    if found is None or found == wanted or Path(found).resolve() == Path(wanted):
        return
    raise StageError(
        f"{url}: serves {found}, expected {wanted}, the model of this stage. Start the server "
        f"with that folder. If {found} has the same files under another name, say so in the launch "
        f"file: placement: {{server_paths: {{{expected.folder.resolve()}: {found}}}}}; the stage "
        "`prove` then compares what the server computes with the trained checkpoint."
    )


def check_started(server: SupervisedServer, found: Mapping[str, ModelCard]) -> None:
    """Check that a server is the one that this process started, with the weights of that time.

    Another process may have taken its port, or another server may answer at its host's address.

    Raises:
        StageError: Among the models that it offers (``found``, by name) one of its names is
            missing, or is of another folder.
    """
    for name in server.names:
        root = found[name].root if name in found else None
        if root != str(server.started_with):
            raise StageError(
                f"{server.root}: offers {', '.join(sorted(found)) or 'no model'}, with {name} from "
                f"{root}; expected {name} from {server.started_with}, with which it was started. "
                "Another server listens at this address: stop it, or choose another port."
            )
