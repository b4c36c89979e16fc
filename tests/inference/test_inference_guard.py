"""The guard in front of a server, called as an ASGI server calls it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import GUARD_FOLDER, Serving
from pcl_reasoner.inference.guard.pclr_guard import Guard
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.serving.serve_command import command, local_command, remote_line

SETTINGS = SamplingConfig(served_model="reward", max_model_len=512)


def answers(path: str, authorization: str | None = None, kind: str = "http") -> list[Any]:
    """What a request gets: the guard's messages, or ``passed``."""
    sent: list[Any] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        sent.append("passed")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {}

    headers = [(b"host", b"a")]
    if authorization is not None:
        headers.append((b"authorization", authorization.encode()))
    scope: dict[str, Any] = {"type": kind, "path": path, "headers": headers}
    if kind == "lifespan":
        scope = {"type": kind}
    asyncio.run(Guard(app)(scope, receive, send))
    return sent


def test_every_page_but_health_needs_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "s3cret")
    for path in ("/classify", "/pooling", "/v1/models", "/metrics", "//health", "/health/", "/"):
        assert answers(path, "Bearer s3cret") == ["passed"]
        for shown in (None, "", "s3cret", "Bearer s3cre", "Bearer s3crets", "Basic s3cret"):
            start, body = answers(path, shown)
            assert start["status"] == 401
            assert json.loads(body["body"]) == {"error": "Unauthorized"}
    assert answers("/health") == ["passed"]
    assert answers("", kind="lifespan") == ["passed"]
    assert answers("/v1/realtime", kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert answers("/v1/realtime", "Bearer s3cret", kind="websocket") == ["passed"]


@pytest.mark.parametrize("key", [None, ""])
def test_a_server_without_a_key_is_open(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("VLLM_API_KEY", key)
    assert answers("/classify") == ["passed"]


def test_the_guard_can_be_imported_where_this_package_is_not() -> None:
    code = "import pclr_guard, sys; print(sorted(n for n in sys.modules if 'pcl_reasoner' in n))"
    environment = {"PYTHONPATH": str(GUARD_FOLDER)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_only_a_server_of_a_reward_model_pools_and_keeps_the_pythonpath_of_set_env(
    tmp_path: Path,
) -> None:
    printing = tmp_path / "vllm"
    printing.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    printing.chmod(0o755)
    cann = tmp_path / "set_env.sh"
    cann.write_text("export PYTHONPATH=/cann${PYTHONPATH:+:$PYTHONPATH}\n")
    serving = Serving(executable=str(printing), arguments=["--dtype", "float32"])
    placement = Placement(hosts=["a"], set_env=str(cann), scoring=serving)
    common = (serving, placement, tmp_path, SETTINGS, 8000)
    here = local_command(serving, placement, command(*common, pooling=True), 0, 8000)
    there = remote_line(serving, placement, command(*common, "0.0.0.0", pooling=True), "a", 0, 8000)
    told = "--runner pooling --middleware pclr_guard.Guard --dtype float32"
    for line in (here, ["bash", "-c", there]):
        done = subprocess.run(
            line, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert done.stdout.startswith(f"{GUARD_FOLDER}:/cann serve {tmp_path} ")
        assert done.stdout.rstrip().endswith(told)
    assert "pooling" not in " ".join(command(*common))


def test_a_server_whose_weights_can_be_replaced_is_guarded_here_and_there(tmp_path: Path) -> None:
    printing = tmp_path / "vllm"
    printing.write_text('#!/bin/sh\necho "$VLLM_SERVER_DEV_MODE" "$PYTHONPATH" "$@"\n')
    printing.chmod(0o755)
    serving = Serving(executable=str(printing), environment={"VLLM_SERVER_DEV_MODE": "0"})
    placement = Placement(hosts=["a"], sampling=serving)
    common = (serving, placement, tmp_path, SETTINGS, 8000)
    here = command(*common, replaceable=True)
    words = command(*common, "0.0.0.0", replaceable=True)
    there = remote_line(serving, placement, words, "a", 0, 8000)
    for line in (here, ["bash", "-c", there]):
        done = subprocess.run(
            line, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert done.stdout.startswith(f"1 {GUARD_FOLDER} serve {tmp_path} ")
        assert done.stdout.rstrip().endswith("--middleware pclr_guard.Guard")
        assert "pooling" not in done.stdout
    assert "DEV_MODE" not in " ".join(command(*common))
