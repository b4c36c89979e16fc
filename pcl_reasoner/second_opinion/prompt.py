"""The judge's prompt and its verdict.

    prompt   … === QUESTION 5d1e7c0a9b3f4e21 BEGINS === … === TEXT 5d1e7c0a9b3f4e21 ENDS === …
    reply    "The text asks for the same count of paths.\\nVERDICT: YES"   -> True

A text of the data cannot leave its frame. The frame's lines have a number that is a hash of the
text and the question, so a text cannot contain it. Special tokens of chat templates are broken up
by a space, so the text stays within the user's turn: ``<|im_end|>`` becomes ``< |im_end|>``.
"""

import re
from hashlib import blake2b
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import expanded, shipped
from pcl_reasoner.verifiers.answers import without_thinking

_OPENS = re.compile(r"<(?=[^\s=<>])|\[(?=/?[A-Za-z_]{2,}\])")
"""The first character of what may be a special token: ``<|im_end|>``, ``</s>``, ``[INST]``."""
_VERDICT = re.compile(r"[\W_]*(?:verdict\b[\W_]*)?\b(yes|no)\b[\W_]*", re.I)
_FIELDS = ("{text}", "{question}")


def read_prompt(name: str | None) -> str:
    """Return the text of the judge's prompt file.

    Args:
        name: The file; None: the shipped one.

    Raises:
        StageError: It cannot be read, or lacks {text} or {question}.
    """
    file = expanded(name) if name else shipped("recipes") / "prompts" / "same_problem.txt"
    text = _read(file)
    absent = [field for field in _FIELDS if field not in text]
    if absent:
        raise StageError(
            f"{file}: the judge's prompt lacks {' and '.join(absent)}. Write each once, on a line "
            "of its own."
        )
    return text


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(
            f"{file}: the judge's prompt cannot be read ({error}). Correct judge.prompt."
        ) from error


def fill(prompt: str, text: str, question: str, characters: int) -> str:
    """Put a text and a question into the prompt, each cut, harmless and in its frame.

    Args:
        prompt: Has {text} and {question}; other braces stay unchanged.
        text: A text of the data.
        question: A benchmark question.
        characters: Largest number of characters of each; the rest is left out.
    """
    cut = [_harmless(one[:characters]) for one in (text, question)]
    number = _number(*cut)
    fields = {
        "{text}": _framed("TEXT", number, cut[0]),
        "{question}": _framed("QUESTION", number, cut[1]),
    }
    # In one pass, so that a {question} inside the text stays what it is.
    return re.sub(r"\{text\}|\{question\}", lambda found: fields[found[0]], prompt)


def _harmless(text: str) -> str:
    """Break up what a tokenizer could read as a special token; other words stay the same."""
    return _OPENS.sub(lambda found: f"{found[0]} ", text)


def _number(text: str, question: str) -> str:
    """A hash of both, 16 hexadecimal digits, that occurs in neither."""
    data = f"{text}\x1f{question}".encode("utf-8", "surrogatepass")
    while (number := blake2b(data, digest_size=8).hexdigest()) in text + question:
        data += b"\x1f"
    return number


def _framed(name: str, number: str, text: str) -> str:
    return f"=== {name} {number} BEGINS ===\n{text}\n=== {name} {number} ENDS ==="


def read_verdict(reply: str, finish_reason: str) -> bool | None:
    """Read the verdict from the last line of a judge's reply.

    Args:
        reply: The complete reply; a think part is left out.
        finish_reason: Why it ended; a reply that was cut off has no verdict.

    Returns:
        True for YES, False for NO; None if the last line is neither.
    """
    answered = without_thinking(reply)
    if answered is None or finish_reason != "stop":
        return None
    lines = answered.strip().splitlines()
    found = _VERDICT.fullmatch(lines[-1]) if lines else None
    return found[1].lower() == "yes" if found else None
