"""Servers whose weights can be replaced, as vLLM 0.32 with VLLM_SERVER_DEV_MODE=1 shows them.

A folder's weights are known by their first number: a server's log-probs of a prompt, and the text
of its responses, depend on it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import stand_in_vllm
from completion_server import CompletionServer, Failure, send
from safetensors.numpy import load_file, save_file


def write_weights(folder: Path, policy: Path, number: float) -> Path:
    """A folder like ``policy``, whose weights are those of ``policy`` and a number."""
    shutil.copytree(policy, folder)
    weights = load_file(policy / "model.safetensors")
    weights["model.norm.weight"] = np.full_like(weights["model.norm.weight"], number)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def number_of(folder: Path) -> float:
    return float(load_file(folder / "model.safetensors")["model.norm.weight"][0])


class PolicyServer(CompletionServer):
    """A response is the token 10 + NUMBER, eight times, and an end token, each at −NUMBER / 100.

    ``faults`` says how the next requests of a page fail, in order; None answers one well.
    ``calls`` has the pages that were asked for, other than /health and facts about the server.
    """

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.folder, self.number, self.label = folder, number_of(folder), "default"
        self.faults: dict[str, list[Failure | None]] = {}
        self.calls: list[str] = []
        self.paused = False
        self.asked_while_paused = 0
        self.labels = True
        super().__init__(**keys)
        self.guarded = True
        self.pages = {"/health": dict, "/version": lambda: {"version": "0.32.0"}}

    def restart(self, folder: Path) -> None:
        """What is left after its owner has started it again."""
        self.folder, self.number, self.label = folder, number_of(folder), "default"
        self.paused = False

    def get(self, handler: BaseHTTPRequestHandler) -> bool:
        if handler.path != "/weight_info":
            return False
        self.page(handler, {}, {"weight_version": self.label})
        return True

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        page = handler.path.partition("?")[0]
        value: dict[str, Any] | None = None
        if page == "/pause":
            assert handler.path == "/pause?mode=wait"
            self.paused, value = True, {"status": "paused"}
        elif page == "/resume":
            self.paused, value = False, {"status": "resumed"}
        elif page == "/reset_prefix_cache":
            value = {"success": True}
        elif page == "/collective_rpc":
            assert body["method"] == "reload_weights" and self.paused
            value = {"results": [None, None]}
        elif page == "/update_weight_version":
            value = {"success": True}
        elif page == "/v1/completions":
            places = range(1, len(body["prompt"]))
            entries = [None, *({str(body["prompt"][i]): {"logprob": -self.number}} for i in places)]
            value = {"choices": [{"prompt_logprobs": entries}]}
        if value is None:
            return False
        if self.page(handler, body, value):
            if page == "/collective_rpc":
                self.folder = Path(body["kwargs"]["weights_path"])
                self.number = number_of(self.folder)
            if page == "/update_weight_version":
                self.label = body["new_version"]
        return True

    def page(
        self, handler: BaseHTTPRequestHandler, body: dict[str, Any], value: dict[str, Any]
    ) -> bool:
        """Answer a page as ``faults`` says; return whether it was answered well."""
        name = handler.path.partition("?")[0]
        with self.lock:
            self.calls.append(name)
            faults = self.faults.get(name) or []
            fault = faults.pop(0) if faults else None
        if "weight_" in name and not self.labels:
            send(handler, 404, {"detail": "Not Found"})
            return False
        if fault is not None and fault(handler, body):
            return False
        send(handler, 200, value)
        return True

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("/v1/chat/completions")
        self.asked_while_paused += self.paused
        choices = []
        for index in range(body["n"]):
            choice: dict[str, Any] = {
                "index": index,
                "message": {"content": "a response"},
                "finish_reason": "stop",
                "token_ids": [10 + int(self.number)] * 8 + [2],
            }
            if body.get("logprobs"):
                entry = {"token": "", "logprob": -self.number / 100, "top_logprobs": []}
                choice["logprobs"] = {"content": [entry] * 9}
            choices.append({**choice, **self.answers})
        return {"choices": choices}


class Started(PolicyServer):
    """One that a stage starts: its words name the folder."""

    engine_runs = True

    def __init__(self, port: int, host: str) -> None:
        assert os.environ["VLLM_SERVER_DEV_MODE"] == "1"
        super().__init__(Path(sys.argv[2]), port=port, host=host)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(float(os.environ["STAND_IN_SLOW"]))
        return super().completion(body)

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        fails = os.environ.get("POLICY_SERVER_FAILS")
        if fails and fails in str(body.get("kwargs")):
            send(handler, 500, {"error": {"message": "Worker failed"}})
            os.kill(os.getpid(), signal.SIGKILL)
        hangs = os.environ.get("POLICY_SERVER_HANGS")
        if hangs and hangs in str(body.get("kwargs")):
            self.engine_runs = False
            time.sleep(600)
        return super().post(handler, body)

    def get(self, handler: BaseHTTPRequestHandler) -> bool:
        if handler.path != "/health" or self.engine_runs:
            return super().get(handler)
        send(handler, 503, {})
        return True


if __name__ == "__main__":
    stand_in_vllm.StandIn = Started  # type: ignore[assignment,misc]
    stand_in_vllm.main(sys.argv[1:])
