"""Extracts the question from a stored training problem, and splits a text into words.

    stored    <|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n<|im_start|>user\\n
              What is $\\dfrac{6}{3}$? Please reason step by step, and put your final answer
              within \\boxed{}.<|im_end|>\\n<|im_start|>assistant\\n
    question  What is $\\dfrac{6}{3}$?
    words     what is frac # #

Text around a question changes the embedding: the cosine of a question and a verbatim copy in a
ChatML wrapper can be below 0.9. So wrappers are removed before embedding.
"""

import re
import unicodedata

NUMBER = "#"
"""The word that replaces every number when numbers are masked."""

_TURNS = (
    re.compile(r"<\|im_start\|>\s*(\w+)\n?(.*?)(?:<\|im_end\|>|(?=<\|im_start\|>)|\Z)", re.S),
    re.compile(
        r"<\|start_header_id\|>\s*(\w+)\s*<\|end_header_id\|>(.*?)"
        r"(?:<\|eot_id\|>|(?=<\|start_header_id\|>)|\Z)",
        re.S,
    ),
    re.compile(r"<start_of_turn>\s*(\w+)\n?(.*?)(?:<end_of_turn>|(?=<start_of_turn>)|\Z)", re.S),
    re.compile(r"<｜(User|Assistant)｜>(.*?)(?=<｜(?:User|Assistant|end)|\Z)", re.S),
    re.compile(r"(\[INST\])(?:\s*<<SYS>>.*?<</SYS>>)?(.*?)(?:\[/INST\]|\Z)", re.S),
    re.compile(
        r"^###\s*(Instruction|Question|Response|Answer):?[ ]*\n(.*?)(?=^###\s|\Z)", re.S | re.M
    ),
)
"""One pattern per family of chat templates: group 1 is the role, group 2 the content."""

_USER_ROLES = {"user", "human", "[inst]", "instruction", "question"}

_SPECIAL = re.compile(r"<[|｜][^<>|｜\n]{1,40}[|｜]>|</?s>|<bos>|<eos>")
"""Special tokens outside of turns, e.g. at the start of the text."""

_SPEAKER = re.compile(
    r"\A\s*(?:human|user|question|problem)\s*:\s*"
    r"|\s*\n\s*(?:assistant|answer|solution|response)\s*:\s*\Z",
    re.I,
)

_INSTRUCTIONS = (
    re.compile(
        r"(?:\b(?:make sure|remember|be sure)\s+(?:to|that you)\s+)?(?:\bplease\s+)?"
        r"(?:\b(?:put|give|write|place|provide|present|return|enclose|box|state|express|output)\b"
        r"[^.!?,\n]{0,40}?|\b(?:your|the)\s+(?:final\s+)?)"
        r"\b(?:answer|solution|result)\b[^.!?\n]{0,60}?"
        r"\\+boxed\s*(?:\{[^{}\n]*\})?[$`\"']*(?:\s+(?:tag|command|format|notation)s?)?[.!]?",
        re.I,
    ),
    re.compile(
        r"(?:\bplease\s+)?\b(?:let's\s+)?(?:reason|think|work|solve)(?:\s+(?:it|this|the problem))?"
        r"\s+step[ -]by[ -]step\b(?:\s*,?\s*and\b(?=\s*(?:[.!]|\Z)))?[.,!]?",
        re.I,
    ),
    re.compile(
        r"\A\s*(?:please\s+)?(?:solve|answer)\s+the\s+following\s+"
        r"(?:math(?:s|ematics|ematical)?\s+)?(?:problem|question)[^.:\n]{0,40}[.:]",
        re.I,
    ),
    re.compile(r"\bthe last line of your response should be of the form[^\n]*", re.I),
    re.compile(r"\bremember to put your answer on its own line[^\n]*", re.I),
)
"""Instructions on the form of the answer, which say nothing about the problem."""

_FORMATTING = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|text(?:bf|it|rm)?|math(?:rm|bf|it|bb|cal)|operatorname"
    r"|[bB]ig+[lr]?|q?quad|limits)(?![a-zA-Z])"
)
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"(\d+(?:[.,]\d+)*)|[{_CJK}]|[^\W\d_{_CJK}]+")


def strip_template(text: str) -> str:
    """Remove chat templates, system prompts and sentences on the form of the answer.

    Args:
        text: A problem as stored.

    Returns:
        The user's question. If no letter or digit is left: the stored text, stripped of whitespace.
    """
    question = _user_turns(text)
    question = _SPEAKER.sub("", _SPECIAL.sub(" ", question))
    for pattern in _INSTRUCTIONS:
        question = pattern.sub(" ", question)
    question = re.sub(r"[ \t]+", " ", question).strip()
    return question if any(character.isalnum() for character in question) else text.strip()


def _user_turns(text: str) -> str:
    """The user's turns of a rendered chat; the text itself if it has no such turn."""
    for pattern in _TURNS:
        turns = [
            content.strip()
            for role, content in pattern.findall(text)
            if role.lower() in _USER_ROLES and content.strip()
        ]
        if turns:
            return "\n".join(turns)
    return text


def words(text: str, mask_numbers: bool) -> list[str]:
    """Lower-case words of a text, without punctuation and formatting.

    Punctuation and LaTeX for formatting only (\\left, \\text) are left out, and \\dfrac becomes
    \\frac. Each Chinese, Japanese or Korean character is a separate word, because Chinese and
    Japanese are written without spaces.

    Args:
        text: Any text.
        mask_numbers: True: every number becomes ``#``, so that a question with other numbers has
            the same words.
    """
    plain = unicodedata.normalize("NFKC", text)
    plain = _FRACTION.sub(r"\\frac", _FORMATTING.sub(" ", plain)).casefold()
    return [
        NUMBER if mask_numbers and match.group(1) else match.group(0)
        for match in _WORD.finditer(plain)
    ]
