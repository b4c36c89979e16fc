"""No argument of a server may load a model's code or pickles."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pcl_reasoner.core.serving import Serving


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--trust-remote-code"], "--trust-remote-code"),
        (["--trust_remote_code"], "--trust-remote-code"),
        (["--trust-remote-code=true"], "--trust-remote-code"),
        (["--load-format", "pt"], "--load-format pt"),
        (["--load-format=auto"], "--load-format auto"),
        (["--load_format", "npcache"], "--load-format npcache"),
    ],
)
def test_arguments_that_could_run_a_models_code_are_refused(
    arguments: list[str], word: str
) -> None:
    with pytest.raises(ValidationError, match=f"remove {word}"):
        Serving(executable="vllm", arguments=arguments)


def test_other_arguments_are_kept() -> None:
    assert Serving(executable="vllm").arguments == []
    arguments = ["--load-format", "runai_streamer", "--dtype=auto"]
    assert Serving(executable="vllm", arguments=arguments).arguments == arguments
