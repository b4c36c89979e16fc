"""What ``vllm serve`` looks like from outside: a front process, an engine process, an HTTP server.

Its environment says how it fails:

    STAND_IN_PIDS   file that gets a line "front engine" for every start
    STAND_IN        ends_at_once | never_ready | dies_when_asked | stubborn | hangs | slow, or
                    nothing; the last two have /metrics. hangs: from the 21st request on, in its
                    first process, nothing is answered but /health and /metrics
    STAND_IN_SLOW   seconds that every answer takes
    STAND_IN_TEXT   what it answers, in place of a response
    STAND_IN_ROOT   the folder that it says to serve, in place of the one that it was started with
    STAND_IN_NAMES  names of its model, in place of those that it was given
    STAND_IN_HOST   the address that it listens on, where several hosts are one machine
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from completion_server import CompletionServer

ENGINE = [sys.executable, "-c", "import time; time.sleep(600)"]


HANGS_AT = 21


class StandIn(CompletionServer):
    hangs = False
    requests = in_flight = 0
    began = time.monotonic()

    def completion(self, body: dict) -> dict:
        with self.lock:
            self.requests += 1
            self.in_flight += 1
        if self.hangs and self.requests >= HANGS_AT:
            time.sleep(600)
        self.work()
        self.in_flight -= 1
        return super().completion(body)

    def metrics(self) -> str:
        """As vLLM prints it: a token per request that has come, or many per second if it works."""
        seconds = 0 if self.hangs else time.monotonic() - self.began
        labels = 'engine="0",model_name="policy"'
        return (
            f"vllm:num_requests_running{{{labels}}} {self.in_flight:.1f}\n"
            f"vllm:num_requests_waiting{{{labels}}} 0.0\n"
            f"vllm:prompt_tokens_total{{{labels}}} {min(self.requests, HANGS_AT):.1f}\n"
            f"vllm:generation_tokens_total{{{labels}}} {1e6 + int(seconds * 20):.6e}\n"
        )

    def work(self) -> None:
        """What happens before an answer."""
        if os.environ.get("STAND_IN") == "dies_when_asked":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("STAND_IN_SLOW", "0")))


def main(words: list[str]) -> None:
    print("stand-in starts:", json.dumps(words), flush=True)
    print("devices:", os.environ.get("ASCEND_RT_VISIBLE_DEVICES"), flush=True)
    how = os.environ.get("STAND_IN", "")
    if how == "ends_at_once":
        print("RuntimeError: no device", flush=True)
        raise SystemExit(3)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # vLLM's engines are in the server's group; one that left it must not be left either.
    engine = subprocess.Popen(ENGINE, start_new_session=how == "stubborn")
    with Path(os.environ["STAND_IN_PIDS"]).open("a") as handle:
        handle.write(f"{os.getpid()} {engine.pid}\n")
    if how != "never_ready":
        names = words[3 : words.index("--host")]
        options = dict(zip(words[3 + len(names) :: 2], words[4 + len(names) :: 2], strict=False))
        host = os.environ.get("STAND_IN_HOST", options["--host"])
        server = StandIn(port=int(options["--port"]), host=host)
        server.key = os.environ.get("VLLM_API_KEY")
        server.text = os.environ.get("STAND_IN_TEXT", server.text)
        names = os.environ.get("STAND_IN_NAMES", " ".join(names)).split()
        length, root = int(options["--max-model-len"]), os.environ.get("STAND_IN_ROOT", words[1])
        server.models = [{"id": name, "max_model_len": length, "root": root} for name in names]
        server.pages = {"/health": dict, "/version": lambda: {"version": "stand-in"}}
        pids = Path(os.environ["STAND_IN_PIDS"]).read_text()
        server.hangs = how == "hangs" and len(pids.splitlines()) == 1
        if how in ("hangs", "slow"):
            server.pages["/metrics"] = server.metrics
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
