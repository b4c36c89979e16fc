"""A server of OpenAI's form with so many places, each of which gives tokens at one pace.

    python benchmarks/slots_server.py PLAN.json --slots 64 --pace 400 [--spread 0.3] [--tells-queue]

    PLAN.json  {"Tom has 3 apples …": {"ids": [1, 414, …], "tokens": 900}, …}

A request of n samples takes n places, first come, first served, and is answered when its last
sample is there, as vLLM does it. A sample has the plan's tokens, times a log-normal factor that its
seed gives. So the time of a run is known, and what a client adds to it can be seen.

    GET /figures  {"requests": 40, "tokens": 288000, "seconds": 9.1, "under_half": 0.4}

``seconds`` run from the first request to the last answer; in ``under_half`` of them fewer than half
of the places were busy. ``POST /figures`` sets them back. The server's own time is small: ids and
texts of all lengths are made once and cut.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import time
from pathlib import Path
from typing import Any

LONGEST = 131_072
FIRST_ID = 300
IDS = 200
"""Ids are drawn from so many, which every tokenizer of these benchmarks has."""
CHARACTERS_A_TOKEN = 4
TEXT = "so that the sum of the first terms is even, and the rest follows by induction; "


class Places:
    """The places of the engine, and how busy they are over time."""

    def __init__(self, slots: int, pace: float) -> None:
        self.slots, self.pace = slots, pace
        self.free = asyncio.Semaphore(slots)
        self.reset()

    def reset(self) -> None:
        self.busy = self.waiting = self.requests = self.tokens = 0
        self.first = self.last = self.seen = 0.0
        self.under_half = 0.0

    def change(self, busy: int) -> None:
        """So many places more are busy from now on."""
        now = time.perf_counter()
        if self.first and self.busy < self.slots / 2:
            self.under_half += now - self.seen
        self.busy += busy
        self.seen = now

    async def sample(self, tokens: int) -> None:
        self.waiting += 1
        async with self.free:
            self.waiting -= 1
            self.change(1)
            await asyncio.sleep(tokens / self.pace)
            self.change(-1)

    async def request(self, lengths: list[int]) -> None:
        if not self.first:
            self.first = self.seen = time.perf_counter()
        await asyncio.gather(*map(self.sample, lengths))
        self.requests += 1
        self.tokens += sum(lengths)
        self.last = time.perf_counter()

    def figures(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "seconds": self.last - self.first,
            "under_half": self.under_half,
        }


class Answers:
    """What is said: ids and a text of any length, cut from one."""

    def __init__(self, plan: dict[str, Any], spread: float) -> None:
        self.plan, self.spread = plan, spread
        drawn = random.Random(0)
        words = [str(FIRST_ID + drawn.randrange(IDS)) for _ in range(LONGEST)]
        self.ids = ",".join(words)
        # Every id has three digits, so that n of them are 4 n - 1 characters.
        self.text = TEXT * (LONGEST * CHARACTERS_A_TOKEN // len(TEXT) + 1)

    def lengths(self, body: dict[str, Any]) -> list[int]:
        mean = self.plan[body["messages"][-1]["content"]]["tokens"]
        found = []
        for index in range(body["n"]):
            factor = math.exp(random.Random(body["seed"] + index).gauss(0, self.spread))
            found.append(max(1, min(round(mean * factor), body["max_tokens"])))
        return found

    def completion(self, body: dict[str, Any], lengths: list[int]) -> bytes:
        prompt = self.plan[body["messages"][-1]["content"]]["ids"]
        choices = ",".join(
            f'{{"index":{index},"finish_reason":"stop","message":{{"role":"assistant",'
            f'"content":"{self.text[: size * CHARACTERS_A_TOKEN]}"}},'
            f'"token_ids":[{self.ids[: 4 * size - 1]}]}}'
            for index, size in enumerate(lengths)
        )
        usage = f'{{"prompt_tokens":{len(prompt)},"completion_tokens":{sum(lengths)}}}'
        said = f'{{"choices":[{choices}],"prompt_token_ids":{prompt},"usage":{usage}}}'
        return said.encode()


class Server:
    """The pages, over plain asyncio streams."""

    def __init__(self, places: Places, answers: Answers, tells_queue: bool) -> None:
        self.places, self.answers, self.tells_queue = places, answers, tells_queue

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a request after the other until the client closes it."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                method, path, *_ = head.split(" ", 2)
                size = head.partition("content-length: ")[2].partition("\r\n")[0]
                sent = await reader.readexactly(int(size)) if size else b""
                status, answer = await self.answer(method, path, sent)
                lines = f"HTTP/1.1 {status} .\r\ncontent-length: {len(answer)}\r\n\r\n"
                writer.write(lines.encode() + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, method: str, path: str, sent: bytes) -> tuple[int, bytes]:
        if path == "/v1/chat/completions":
            body = json.loads(sent)
            lengths = self.answers.lengths(body)
            await self.places.request(lengths)
            return 200, self.answers.completion(body, lengths)
        if path == "/tokenize":
            content = json.loads(sent)["messages"][-1]["content"]
            return 200, json.dumps({"tokens": self.answers.plan[content]["ids"]}).encode()
        if path == "/metrics" and self.tells_queue:
            return 200, (
                f'vllm:num_requests_running{{engine="0"}} {self.places.busy}\n'
                f'vllm:num_requests_waiting{{engine="0"}} {self.places.waiting}\n'
            ).encode()
        if path == "/figures" and method == "post":
            self.places.reset()
        found = {
            "/v1/models": {"data": [{"id": "policy", "max_model_len": LONGEST}]},
            "/version": {"version": "slots"},
            "/figures": self.places.figures(),
        }
        return (200, json.dumps(found[path]).encode()) if path in found else (404, b"{}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--slots", type=int, required=True, help="samples at a time")
    parser.add_argument("--pace", type=float, required=True, help="tokens a second of a place")
    parser.add_argument("--spread", type=float, default=0.0, help="of lengths, as a log-normal's")
    parser.add_argument("--tells-queue", action="store_true", help="has /metrics")
    given = parser.parse_args()
    answers = Answers(json.loads(given.plan.read_text(encoding="utf-8")), given.spread)
    server = Server(Places(given.slots, given.pace), answers, given.tells_queue)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 24)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
