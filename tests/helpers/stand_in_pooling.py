"""What ``vllm serve --runner pooling`` looks like from outside; see stand_in_vllm.py."""

from __future__ import annotations

import os
import sys
from typing import Any

import stand_in_vllm
from reward_model import classified


class Pooling(stand_in_vllm.StandIn):
    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        self.work()
        return classified(body)


if __name__ == "__main__":
    stand_in_vllm.StandIn = Pooling
    print("PYTHONPATH:", os.environ.get("PYTHONPATH"), flush=True)
    stand_in_vllm.main(sys.argv[1:])
