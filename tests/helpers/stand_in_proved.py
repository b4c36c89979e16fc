"""A vLLM server that answers log-probs of prompts, too; see stand_in_vllm.py.

STAND_IN_SHIFT  file with a number: its log-probs are lower by it, as with other weights
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import stand_in_vllm
from proved_server import shifted


class Proved(stand_in_vllm.StandIn):
    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt_logprobs" in body:
            return shifted(body["prompt"], SHIFT)
        return super().completion(body)


if __name__ == "__main__":
    SHIFT = float(Path(os.environ["STAND_IN_SHIFT"]).read_text())
    stand_in_vllm.StandIn = Proved
    stand_in_vllm.main(sys.argv[1:])
