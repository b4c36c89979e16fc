"""A hundred kinds of answers that a server should not give, for CompletionServer's ``failures``."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from completion_server import Failure, cut_off


def raw(data: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Failure:
    """Answer with these bytes."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        handler.send_response(status)
        for name, value in (headers or {"Content-Type": "application/json"}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return True

    return answer


def changed(change: Callable[[dict[str, Any]], object]) -> Failure:
    """Answer with a good answer, changed in place."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        value = handler.server.completion(body)  # type: ignore[attr-defined]
        change(value)
        return raw(json.dumps(value).encode())(handler, body)

    return answer


def choice(**fields: Any) -> Failure:
    """Answer with other fields in every choice."""
    return changed(lambda value: [one.update(fields) for one in value["choices"]])


def drip(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """Send a byte now and then, for longer than the request may take."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    end = time.monotonic() + 8
    try:
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            time.sleep(0.2)
    except OSError:
        pass
    return True


HTML = b"<html><body>Sign in to continue</body></html>"
GZIP = {"Content-Encoding": "gzip"}
ODD: dict[str, Failure] = {
    "html": raw(HTML, {"Content-Type": "text/html"}),
    "empty": raw(b""),
    "number": raw(b"7"),
    "list": raw(b"[]"),
    "null": raw(b"null"),
    "text": raw(b'"hello"'),
    "not UTF-8": raw(b"\xff\xfe{"),
    "cut JSON": raw(b'{"choices": ['),
    "NaN": raw(b'{"choices": NaN}'),
    "nested": raw(b"[" * 200_000),
    "nested choice": raw(b'{"choices": [' + b"[" * 200_000),
    "gzip that is none": raw(b"plain", GZIP),
    "gzip cut": raw(gzip.compress(b'{"choices": []}')[:-4], GZIP),
    "choices null": raw(b'{"choices": null}'),
    "choices a number": raw(b'{"choices": 3}'),
    "choices a mapping": raw(b'{"choices": {"0": {}}}'),
    "choices of numbers": raw(b'{"choices": [1, 2]}'),
    "one choice too few": changed(lambda value: value["choices"].pop()),
    "one choice too many": changed(lambda value: value["choices"].append({"index": 2})),
    "index text": choice(index="x"),
    "index NaN": choice(index=float("nan")),
    "index list": choice(index=[1]),
    "index twice": choice(index=0),
    "index too large": choice(index=7),
    "message text": choice(message="8"),
    "message list": choice(message=[]),
    "content list": choice(message={"content": [{"type": "text", "text": "8"}]}),
    "content number": choice(message={"content": 8}),
    "content null": choice(message={"content": None}),
    "no message": choice(message=None),
    "reasoning number": choice(message={"content": "8", "reasoning": 8}),
    "token_ids text": choice(token_ids="abc"),
    "token_ids of text": choice(token_ids=["a"]),
    "token_ids negative": choice(token_ids=[-1]),
    "token_ids huge": choice(token_ids=[1 << 31]),
    "token_ids real": choice(token_ids=[1.5]),
    "token_ids true": choice(token_ids=[True]),
    "token_ids unknown": choice(token_ids=[1 << 30]),
    "token_ids empty": choice(token_ids=[]),
    "token_ids nested": choice(token_ids=[[1]]),
    "finish_reason null": choice(finish_reason=None),
    "finish_reason error": choice(finish_reason="error"),
    "finish_reason abort": choice(finish_reason="abort"),
    "finish_reason number": choice(finish_reason=3),
    "finish_reason mapping": choice(finish_reason={"type": "stop"}),
    "finish_reason long": choice(finish_reason="x" * 5000),
    "usage list": changed(lambda value: value.update(usage=[1])),
    "usage text": changed(lambda value: value.update(usage={"prompt_tokens": "x"})),
    "prompt_token_ids text": changed(lambda value: value.update(prompt_token_ids="abc")),
    "prompt_token_ids of text": changed(lambda value: value.update(prompt_token_ids=["a"])),
    "status 500": raw(b"oh", status=500),
    "status 200 and an error": raw(b'{"error": {"message": "no"}}'),
    "Retry-After of a digit that is none": raw(b"", {"Retry-After": "²"}, 500),
    "drip": drip,
}
"""Each is a failure of its request."""


def body(text: str, **headers: str) -> Failure:
    """Answer with a good answer that is encoded in another way."""

    def answer(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
        good = json.dumps(handler.server.completion(asked))  # type: ignore[attr-defined]
        return raw(ENCODED[text](good), headers)(handler, asked)

    return answer


ENCODED: dict[str, Callable[[str], bytes]] = {
    "BOM": lambda good: good.encode("utf-8-sig"),
    "UTF-16": lambda good: good.encode("utf-16"),
    "twice": lambda good: (good + good).encode(),
    "garbage after": lambda good: good.encode() + b"\0\0}}",
    "garbage before": lambda good: b")]}'," + good.encode(),
    "events": lambda good: f"data: {good}\n\ndata: [DONE]\n\n".encode(),
    "half": lambda good: good.encode()[: len(good) // 2],
    "in a list": lambda good: f"[{good}]".encode(),
    "in a text": lambda good: json.dumps(good).encode(),
    "one quote": lambda good: good.replace('"', "'").encode(),
    "keys twice": lambda good: (good[:-1] + ', "choices": []}').encode(),
    "gzip twice": lambda good: gzip.compress(gzip.compress(good.encode())),
    "deflate": lambda good: zlib.compress(good.encode()),
    "latin": lambda good: good.replace("think", "d\u00e9nk").encode("latin-1"),
}


def dropped(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
    """Close the connection without an answer."""
    handler.connection.close()
    return True


def headers_only(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
    """Promise a body, and close."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.flush()
    handler.connection.close()
    return True


def no_http(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
    """Answer in another protocol."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.connection.close()
    return True


def broken_chunks(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
    """Announce a chunk whose size is no number."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"zz\r\n{}\r\n0\r\n\r\n")
    handler.connection.close()
    return True


def long_header(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> bool:
    """Answer with a header of 200 000 characters."""
    return raw(b"{}", {"X-Long": "x" * 200_000})(handler, asked)


def refusal(status: int, wait: str = "") -> Failure:
    """Answer with a status, and how long to wait."""
    return raw(b"not now", {"Retry-After": wait} if wait else {"X": "y"}, status)


MORE: dict[str, Failure] = {
    **{f"body {name}": body(name) for name in ENCODED if name not in ("gzip twice", "deflate")},
    "gzip twice": body("gzip twice", **GZIP),
    "deflate called gzip": body("deflate", **GZIP),
    "deflate": body("deflate", **{"Content-Encoding": "deflate"}),
    "unknown encoding": body("half", **{"Content-Encoding": "br2"}),
    "encoding of the name zstd": body("half", **{"Content-Encoding": "zstd"}),
    "charset UTF-16": body("BOM", **{"Content-Type": "application/json; charset=utf-16"}),
    "charset unknown": body("BOM", **{"Content-Type": "application/json; charset=klingon"}),
    "dropped": dropped,
    "headers only": headers_only,
    "no HTTP": no_http,
    "broken chunks": broken_chunks,
    "long header": long_header,
    "cut off": cut_off,
    "redirect to itself": raw(b"", {"Location": "/v1/chat/completions"}, 302),
    "redirect elsewhere": raw(b"", {"Location": "http://127.0.0.1:9/"}, 307),
    "redirect to a file": raw(b"", {"Location": "file:///etc/passwd"}, 301),
    **{f"status {code}": refusal(code) for code in (204, 304, 408, 425, 502, 503, 504, 520, 599)},
    "status 429, wait 0": refusal(429, "0"),
    "status 429, wait -1": refusal(429, "-1"),
    "status 429, wait nan": refusal(429, "nan"),
    "status 503, wait a date": refusal(503, "Mon, 01 Jan 2001 00:00:00 GMT"),
    "status 503, wait text": refusal(503, "soon"),
    "choices empty": raw(b'{"choices": []}'),
    "choices of null": raw(b'{"choices": [null, null]}'),
    "index missing": changed(lambda value: [one.pop("index") for one in value["choices"]]),
    "index null": choice(index=None),
    "index real": changed(
        lambda value: [one.update(index=one["index"] + 0.5) for one in value["choices"]]
    ),
    "index true": choice(index=True),
    "index negative": choice(index=-1),
    "content missing": choice(message={"role": "assistant"}),
    "content empty": choice(message={"content": ""}),
    "content mapping": choice(message={"content": {"text": "8"}}),
    "tool calls": choice(
        message={"content": None, "tool_calls": [{"id": "1"}]}, finish_reason="tool_calls"
    ),
    "refusal": choice(message={"content": None, "refusal": "I will not."}),
    "text of the older interface": choice(message=None, text="8"),
    "a chunk of a stream": choice(message=None, delta={"content": "8"}),
    "finish_reason missing": changed(
        lambda value: [one.pop("finish_reason") for one in value["choices"]]
    ),
    "finish_reason empty": choice(finish_reason=""),
    "finish_reason content_filter": choice(finish_reason="content_filter"),
    "token_ids a mapping": choice(token_ids={"0": 1}),
    "token_ids too many": choice(token_ids=[1] * 100_000),
    "usage null": changed(lambda value: value.update(usage=None)),
    "usage infinite": changed(lambda value: value.update(usage={"prompt_tokens": float("inf")})),
    "error beside choices": changed(lambda value: value.update(error={"message": "half"})),
    "object list": changed(lambda value: value.update(object=["chat"])),
    "created a long number": raw(b'{"created": ' + b"9" * 6000 + b', "choices": []}'),
}
"""Those that may also be understood."""
