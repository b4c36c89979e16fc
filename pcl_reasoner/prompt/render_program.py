"""The program that renders chat templates, in a process of its own that can be ended.

A template is a program that comes with a model. It can loop for ever or ask for all memory, also in
one call of C code, which nothing inside the same process can stop. Each line of standard input is a
request, and each line of standard output its answer:

    {"source": "{{ messages[0].content }}", "variables": {"messages": [{"content": "1 + 1?"}]}}
    {"text": "1 + 1?"}

    {"source": "{{ 1 / 0 }}", "variables": null}                null: only compile
    {"error": "ZeroDivisionError: division by zero"}

It imports nothing of this package, so that it starts in a fraction of a second.
"""

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _TooLong(Exception):
    pass


def main(seconds: float, memory_bytes: int, output_characters: int) -> None:
    """Answer requests until standard input ends.

    Args:
        seconds: Processor time of a request, after which the process is killed by SIGPROF.
        memory_bytes: Limit of the process's address space.
        output_characters: Limit of a rendered text.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C is for the parent, which then closes standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The default action of SIGPROF ends the process even inside a call of C code.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # A template's text goes to the parent, and nothing else does.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(line, output_characters)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(answer + b"\n")
        answers.flush()


def _answer(line: bytes, output_characters: int) -> bytes:
    try:
        request = json.loads(line)
        template, variables = _compile(request["source"]), request["variables"]
        text = "" if variables is None else _render(template, variables, output_characters)
        return json.dumps({"text": text}).encode()
    except TemplateError as error:
        return json.dumps({"error": str(error)}).encode()
    except MemoryError:
        return b'{"error": "it needs too much memory"}'
    except _TooLong:
        return json.dumps({"error": f"it writes over {output_characters} characters"}).encode()
    # A template can raise any error.
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}).encode()


def _render(template: Template, variables: dict[str, Any], limit: int) -> str:
    pieces: list[str] = []
    length = 0
    for piece in template.generate(**variables):
        length += len(piece)
        if length > limit:
            raise _TooLong
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    # transformers sets trim_blocks and lstrip_blocks, and published templates rely on both.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # jinja's own filter escapes HTML characters, which must not reach the model.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
