"""Decides which language a text may be in, from its script and from frequent short words.

    text       "Das ist ein kurzer Satz, und er ist auf Deutsch."
    script     latin: 37 of 37 letters
    hits       de 7 (das ist ein und er ist auf), pt 1 (das), en 0, …
    languages  {"de"}

The decision has two steps.

1. The script with the most letters is the script of the text. Han and kana count together: at
   least one kana among ten such characters is Japanese, fewer are Chinese. A script that only one
   language here uses decides: Thai, Hangul, Hebrew, Bengali, Gurmukhi, Gujarati, Tamil, Telugu,
   Kannada, Malayalam.
2. Latin, Cyrillic, Arabic and Devanagari are shared. There, the language whose STOP_WORDS occur
   most often decides; a tie leaves all tied languages. A text without any stop word, e.g. a list
   of names or ``Guten Morgen!``, is undecided: it leaves no language, or all of its script for a
   check that demands something else than a language.

A text without letters, e.g. "42", leaves all languages.

IFEval asks the library langdetect, which compares character trigrams of 55 languages and draws
random numbers. Here, a text in a Latin language without a list (e.g. Dutch) counts as the listed
language with most hits, and quotations in another language do not matter unless they dominate. A
text that langdetect cannot read, e.g. "42", is in every language, as in IFEval.
"""

from __future__ import annotations

import re
from collections import Counter

from pcl_reasoner.instructions.words import words

_LETTERS = {
    "latin": r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff5a",
    "cyrillic": r"\u0400-\u052f",
    "arabic": r"\u0620-\u065f\u066e-\u06d3\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "hebrew": r"\u05d0-\u05ea",
    "devanagari": r"\u0900-\u0963\u0971-\u097f",
    "bengali": r"\u0980-\u09ff",
    "gurmukhi": r"\u0a00-\u0a7f",
    "gujarati": r"\u0a80-\u0aff",
    "tamil": r"\u0b80-\u0bff",
    "telugu": r"\u0c00-\u0c7f",
    "kannada": r"\u0c80-\u0cff",
    "malayalam": r"\u0d00-\u0d7f",
    "thai": r"\u0e01-\u0e3a\u0e40-\u0e4e",
    "hangul": r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3",
    "kana": r"\u3040-\u30ff",
    "han": r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
_RUNS = re.compile("|".join(f"(?P<{script}>[{ranges}]+)" for script, ranges in _LETTERS.items()))

_LANGUAGES_OF = {
    "latin": ("en", "es", "pt", "fr", "de", "it", "pl", "vi", "sw", "fi"),
    "cyrillic": ("ru", "uk", "bg"),
    "arabic": ("ar", "fa", "ur"),
    "devanagari": ("hi", "mr", "ne"),
    "hebrew": ("he",),
    "bengali": ("bn",),
    "gurmukhi": ("pa",),
    "gujarati": ("gu",),
    "tamil": ("ta",),
    "telugu": ("te",),
    "kannada": ("kn",),
    "malayalam": ("ml",),
    "thai": ("th",),
    "hangul": ("ko",),
    "kana": ("ja",),
    "han": ("zh", "zh-cn", "zh-tw"),
}

LANGUAGES = tuple(sorted(code for codes in _LANGUAGES_OF.values() for code in codes))
"""The codes that a check may ask for: those of IFEval, and Chinese (both scripts alike)."""

STOP_WORDS = {
    code: frozenset(listed.split())
    for code, listed in {
        "en": "the of and to in is that it for on with as was are be this by at from or have an "
        "not you which but they can we will your has i my if their there been would do what a",
        "es": "de la que el en y los las un una por con no del se es para su como más al lo pero "
        "sus este esta son o ser muy también fue está si sin entre cuando hay a",
        "pt": "de que e o a os as do da dos das em um uma para com não no na por mais se como mas "
        "ao são seu sua ou foi é você também ser muito à isso pela pelo nos nas",
        "fr": "de la le les et des un une du en est que qui dans pour pas par sur au aux ce cette "
        "il elle ne se avec plus sont nous vous je ou l d à être a son sa leur mais",
        "de": "der die das und ist nicht ein eine einen zu den dem des von mit auf für im sich "
        "auch es als an werden wird sind wie oder bei ich sie wir aus nach kann haben er in hat",
        "it": "di che e il la le i gli un una per non con del della dei delle è sono da al alla "
        "nel nella si come più o anche ma questo questa lo su in ha essere l dell a",
        "pl": "i w na z się nie do to że jest jak o po od za co ale ma są przez dla czy lub oraz "
        "może być tym które także jako ich a jego ze już",
        "vi": "và của là có không được cho một những trong các với người này đã để khi từ như "
        "nhưng cũng bạn tôi về thể sẽ đến rất",
        "sw": "na ya wa kwa ni katika za la cha kuwa hii hiyo yake pia kama lakini au hili wakati "
        "ili vya watu zaidi sana yao huu yako wako",
        "fi": "ja on ei se että hän oli mutta kun niin tai ovat myös sen joka kuin ole jos voi "
        "sinun minun tämä mitä sekä ne jotka voit olla",
        "ru": "и в не на я что он с как это по но они к из у за для так же от был его а то все мы "
        "вы или если быть может также",
        "uk": "і в не на що з як це та до але від за для є я й у він вони або також ми ви якщо "
        "бути може його про а",
        "bg": "и в на не да се е за от с че това като по но са ще или които който при до си може "
        "бъде има също ако а",
        "ar": "في من على أن إلى هذا التي الذي ما لا مع هو كان عن هذه هي أو كل ذلك بين لم قد يمكن",
        "fa": "و در به از که این را است با برای آن یک می تا بر هم شود کند خود ما های بود",
        "ur": "کے میں کی ہے اور سے کا کو نے پر ہیں یہ کہ ایک اس بھی ہو وہ کر لیے آپ جو تھا",
        "hi": "के में की है और से का को ने पर हैं यह एक भी नहीं कि इस लिए तो हो आप या कर था ही "
        "जो तक बहुत रहा रहे होता हूँ मैं हम उस",
        "mr": "आणि आहे च्या या मध्ये हे ते एक आहेत होते नाही की व तर हा ही आपण साठी किंवा म्हणून त्या असे",
        "ne": "छ र को मा हो लाई पनि यो छन् गर्न गर्ने भएको तपाईं लागि हुन्छ वा एक हुन् थियो छैन "
        "तपाईंको गर्नुहोस् के",
    }.items()
}
"""Frequent words of the languages that share a script."""


def languages_of(text: str, undecided: bool = False) -> frozenset[str]:
    """Return the codes of the languages that a text may be in; the module says how.

    Args:
        text: Any text. Upper and lower case are the same.
        undecided: What a text without any stop word leaves: True for all languages of its script,
            False for none.
    """
    script = _script(text)
    if script is None:
        return frozenset(LANGUAGES)
    languages = _LANGUAGES_OF[script]
    if not any(language in STOP_WORDS for language in languages):
        return frozenset(languages)
    counts = Counter(words(text.lower()))
    hits = {language: sum(counts[word] for word in STOP_WORDS[language]) for language in languages}
    most = max(hits.values())
    if not most and not undecided:
        return frozenset()
    return frozenset(language for language in languages if hits[language] == most)


def _script(text: str) -> str | None:
    """The script with the most letters; None for a text without letters."""
    letters: Counter[str] = Counter()
    for run in _RUNS.finditer(text):
        letters[str(run.lastgroup)] += run.end() - run.start()
    # Japanese mixes kana with Han characters; Chinese quotes kana at most.
    both = letters["han"] + letters["kana"]
    letters["kana"], letters["han"] = (both, 0) if letters["kana"] * 10 >= both else (0, both)
    script, count = letters.most_common(1)[0]
    return script if count else None
