"""The 25 checks of IFEval: whether a text follows an instruction that a program can verify.

    id      "length_constraints:number_words"
    kwargs  {"relation": "at least", "num_words": 3}
    text    "Cats, dogs and owls."                         4 words: holds

Every check is a pure function of the text and of the published parameters. Ids, parameter names
and meaning are those of IFEval (arXiv 2311.07911; google-research/instruction_following_eval,
instructions.py); the code is ours. A docstring says where a verdict can differ. Two differences
are the same for all checks. Keywords and markers are literal text here, and regular expressions
in IFEval. Nothing is random here; IFEval replaces some parameters by random ones (e.g. the letter
``#``), and its language detector draws random numbers.

Time is proportional to the length of the text. So that this holds for every text, no pattern can
fail after a run of characters that the next start would read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Literal

from pcl_reasoner.instructions.languages import languages_of
from pcl_reasoner.instructions.words import UNSPACED, count_sentences, words

Relation = Literal["at least", "less than"]

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
"""The answers of ``detectable_format:constrained_response``."""

_COMMA = re.compile("[,\uff0c\u3001\u060c]")
_SPACED_LETTER = re.compile(rf"(?![{UNSPACED}])\w")
_TOKEN = re.compile(r"[\w.-]+")
_DOTS_OR_DASH = re.compile(r"\.{2,}|--")
_BRACKET = re.compile(r"\[[^\]\n]*\]?")
_SINGLE_STARS = re.compile(r"\*([^*\n]*)\*")
_DOUBLE_STARS = re.compile(r"\*\*([^*\n]*)\*\*")
_DIVIDER = re.compile(r"\*\*\*|\* \* \*")
_FIRST_WORD = re.compile(r"[\"'“‘]*([^\s.,?!'\"，。？！’”]*)")
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)


def is_related(number: int, relation: Relation, bound: int) -> bool:
    """Whether a number is ``at least`` or ``less than`` a bound."""
    return number >= bound if relation == "at least" else number < bound


def keyword_existence(text: str, keywords: list[str]) -> bool:
    """Whether every keyword occurs, in upper or lower case, also inside a longer word."""
    lowered = text.lower()
    return all(keyword.strip().lower() in lowered for keyword in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: Relation) -> bool:
    """Compare how often a keyword occurs, in upper or lower case, also inside longer words."""
    return is_related(text.lower().count(keyword.strip().lower()), relation, frequency)


def no_forbidden_words(text: str, forbidden_words: list[str]) -> bool:
    """Whether no forbidden word occurs as a whole word, in upper or lower case.

    Differs from IFEval for a word that begins or ends with a sign (``C++``), a Han character or
    kana: that end may touch other letters here. IFEval does not find such words in a text.
    """
    return not any(_occurs_whole(word.strip(), text) for word in forbidden_words)


def _occurs_whole(word: str, text: str) -> bool:
    before = r"(?<!\w)" if _SPACED_LETTER.match(word[0]) else ""
    after = r"(?!\w)" if _SPACED_LETTER.match(word[-1]) else ""
    return re.search(before + re.escape(word) + after, text, re.IGNORECASE) is not None


def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: Relation) -> bool:
    """Compare how often a letter or sign occurs, in upper or lower case.

    Differs from IFEval for characters outside of a-z, e.g. ``#``: IFEval counts a random letter.
    """
    return is_related(text.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(text: str, language: str) -> bool:
    """Whether a text is in the language of a code; languages.py says how it decides.

    A text in which languages.py finds no language is in none, unless it has no letters: else a
    few names would be an answer in every language. IFEval's detector names some language for it.
    """
    return language in languages_of(text)


def number_sentences(text: str, num_sentences: int, relation: Relation) -> bool:
    """Compare the number of sentences; words.count_sentences says what ends a sentence."""
    return is_related(count_sentences(text), relation, num_sentences)


def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Whether there are exactly this many paragraphs between dividers ``***`` or ``* * *``.

    An empty paragraph at the beginning or end does not count; one in between fails. The paper
    writes the divider as ``* * *``; IFEval's code knows ``***`` only.
    """
    paragraphs = [part.strip() for part in _DIVIDER.split(text)]
    if not all(paragraphs[1:-1]):
        return False
    return sum(map(bool, paragraphs)) == num_paragraphs


def number_words(text: str, num_words: int, relation: Relation) -> bool:
    """Compare the number of words; words.words says what a word is."""
    return is_related(len(words(text)), relation, num_words)


def nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Whether there are exactly this many paragraphs, and the n-th starts with a word.

    Paragraphs are separated by two newlines. Case, quotes before the word and everything from its
    first punctuation mark do not matter. Differs from IFEval: empty paragraphs are not numbered;
    the expected word is cut at its punctuation as well, so that ``don't`` can be found.
    """
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    return _first_word(paragraphs[nth_paragraph - 1]) == _first_word(first_word)


def _first_word(text: str) -> str:
    found = _FIRST_WORD.match(text)
    return found[1].lower() if found else ""


def number_placeholders(text: str, num_placeholders: int) -> bool:
    """Whether there are at least this many placeholders ``[…]``, each within one line."""
    closed = sum(found.endswith("]") for found in _BRACKET.findall(text))
    return closed >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """Whether the marker of a postscript occurs, e.g. ``P.S.``; case does not matter.

    A space may follow each full stop of the marker. As in IFEval, the place does not matter.
    """
    parts = map(re.escape, postscript_marker.strip().split("."))
    return re.search(r"\.\s?".join(parts), text, re.IGNORECASE) is not None


def number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Whether exactly this many lines begin with ``-`` or with one ``*``, after white space."""
    lines = (line.lstrip() for line in text.split("\n"))
    bullets = sum(
        line.startswith("-") or (line.startswith("*") and not line.startswith("**"))
        for line in lines
    )
    return bullets == num_bullets


def constrained_response(text: str) -> bool:
    """Whether the text contains one of OPTIONS."""
    return any(option in text for option in OPTIONS)


def number_highlighted_sections(text: str, num_highlights: int) -> bool:
    """Whether at least this many sections are highlighted: ``*…*`` or ``**…**`` within one line.

    As in IFEval, both forms are counted independently of each other, so that ``***word***`` and a
    highlight in an item of a ``*`` list count twice.
    """
    singles = sum(bool(found.strip()) for found in _SINGLE_STARS.findall(text))
    doubles = sum(bool(found.strip()) for found in _DOUBLE_STARS.findall(text))
    return singles + doubles >= num_highlights


def multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """Whether the word that begins a section, followed by a number, occurs at least this often.

    ``section_spliter`` is the published spelling. Upper and lower case matter.
    """
    begins = re.compile(re.escape(section_spliter.strip()) + r"\s?\d+")
    return len(begins.findall(text)) >= num_sections


def json_format(text: str) -> bool:
    """Whether the whole text is JSON, with or without Markdown's ``` around it."""
    text = text.strip()
    fence = _FENCE.match(text)
    try:
        json.loads(text[fence.end() if fence else 0 :].removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """Whether there is a title ``<<…>>`` within one line that is not blank."""
    for line in text.split("\n"):
        begin, end = line.find("<<"), line.rfind(">>")
        if 0 <= begin < end and line[begin:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def two_responses(text: str) -> bool:
    """Whether there are exactly two different responses, separated by ``******``.

    An empty one at the beginning or end does not count; an empty one in between fails.
    """
    responses = [part.strip() for part in text.split("******")]
    if not all(responses[1:-1]):
        return False
    given = [response for response in responses if response]
    return len(given) == 2 and given[0] != given[1]


def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """Whether the text begins with the prompt; case and white space around do not matter."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(text: str, end_phrase: str) -> bool:
    """Whether the text ends with the phrase, before closing ``"``; case does not matter."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    """Whether the whole text is between two ``"``; no other quotation mark counts."""
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def capital_word_frequency(text: str, capital_frequency: int, capital_relation: Relation) -> bool:
    """Compare the number of words in capital letters; ``I``, ``A`` and ``COVID-19`` are some.

    A word here is a run of letters, digits, hyphens and full stops, and ends at ``..`` or ``--``.
    IFEval uses NLTK's tokens; both split ``I'M`` in two. They differ for ``A/B``: two words here,
    one there.
    """
    parts = _DOTS_OR_DASH.sub(" ", text)
    capitals = sum(word.isupper() for word in _TOKEN.findall(parts))
    return is_related(capitals, capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    """Whether the text may be English and has capital letters and no small ones.

    What it demands is the case of the letters: ``CATS, DOGS``, in which languages.py finds no
    language, may be English.
    """
    return text.isupper() and "en" in languages_of(text, undecided=True)


def english_lowercase(text: str) -> bool:
    """Whether the text may be English and has small letters and no capital ones.

    As in english_capital, a text in which languages.py finds no language may be English.
    """
    return text.islower() and "en" in languages_of(text, undecided=True)


def no_comma(text: str) -> bool:
    """Whether there is no comma, be it ASCII, Chinese, Japanese or Arabic; in IFEval only ASCII."""
    return _COMMA.search(text) is None


CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": keyword_existence,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": no_forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}
"""Each check by its published id. Its parameters after the text are the published ones."""
