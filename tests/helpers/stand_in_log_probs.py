"""What a vLLM server looks like that is asked for a prompt's log-probs; see stand_in_vllm.py."""

from __future__ import annotations

import sys
from typing import Any

import stand_in_vllm
from log_prob_server import answer_with, entries_of


class LogProbs(stand_in_vllm.StandIn):
    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        self.work()
        return answer_with(entries_of(body["prompt"]))


if __name__ == "__main__":
    stand_in_vllm.StandIn = LogProbs
    stand_in_vllm.main(sys.argv[1:])
