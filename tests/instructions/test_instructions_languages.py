"""Languages: each of them in a sentence, shared scripts, and undecided texts."""

from __future__ import annotations

import pytest

from pcl_reasoner.instructions.languages import LANGUAGES, STOP_WORDS, languages_of

CHINESE = frozenset({"zh", "zh-cn", "zh-tw"})
SENTENCES = {
    "en": "The cat is on the table and it is asleep.",
    "es": "El gato está en la mesa y no es muy grande.",
    "pt": "O gato está na mesa e não é muito grande, mas dorme.",
    "fr": "Le chat est sur la table et il dort dans le salon.",
    "de": "Die Katze ist auf dem Tisch und sie schläft nicht.",
    "it": "Il gatto è nella casa e non è sul tavolo della cucina.",
    "pl": "Kot jest na stole i nie śpi, ale to nie jest pies.",
    "vi": "Con mèo này là của tôi và nó không được lớn.",
    "sw": "Paka huyu ni wa rafiki yangu na yuko katika nyumba ya mama.",
    "fi": "Kissa on pöydällä ja se ei ole suuri, mutta hän on iloinen.",
    "ru": "Кошка спит на столе, и я не знаю, что это за кошка.",
    "uk": "Кішка спить на столі, і я не знаю, що це за кішка та як вона є.",
    "bg": "Котката е на масата и не се знае от кого е, но ще спи.",
    "ar": "هذا هو القط الذي كان في البيت مع الكلب.",
    "fa": "این گربه در خانه است و آن سگ را می بیند.",
    "ur": "یہ بلی گھر میں ہے اور وہ کتے کے ساتھ نہیں ہے۔",
    "hi": "यह बिल्ली घर में है और वह कुत्ते के साथ नहीं है।",
    "mr": "ही मांजर घरात आहे आणि ते कुत्रे पण आहेत.",
    "ne": "यो बिरालो घर मा छ र त्यो कुकुर पनि हो।",
    "he": "החתול על השולחן.",
    "bn": "বিড়ালটি টেবিলের উপর আছে।",
    "pa": "ਬਿੱਲੀ ਮੇਜ਼ ਉੱਤੇ ਹੈ।",
    "gu": "બિલાડી ટેબલ પર છે.",
    "ta": "பூனை மேசையில் உள்ளது.",
    "te": "పిల్లి బల్ల మీద ఉంది.",
    "kn": "ಬೆಕ್ಕು ಮೇಜಿನ ಮೇಲಿದೆ.",
    "ml": "പൂച്ച മേശപ്പുറത്താണ്.",
    "th": "แมวอยู่บนโต๊ะ",
    "ko": "고양이가 책상 위에 있다.",
    "ja": "猫は机の上にいる。",
}


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_a_sentence_is_in_its_language_alone(language: str, text: str) -> None:
    assert languages_of(text) == {language}
    assert languages_of(text.upper()) == {language}


def test_every_language_has_a_sentence() -> None:
    assert set(SENTENCES) | CHINESE == set(LANGUAGES)


def test_chinese_has_no_kana_but_may_quote_some() -> None:
    assert languages_of("这只猫在桌子上睡觉。") == CHINESE
    assert languages_of("這隻貓在桌子上睡覺。") == CHINESE
    # One kana among 10 characters is Japanese, one among 11 is not.
    assert languages_of("の" + "猫" * 9) == {"ja"}
    assert languages_of("の" + "猫" * 10) == CHINESE


def test_the_script_with_most_letters_decides() -> None:
    assert languages_of("кошка and a cat") == languages_of("cat and a cat")
    assert "ru" in languages_of("кошка и кошка and a cat")


def test_a_text_without_frequent_words_is_undecided() -> None:
    latin = {"en", "es", "pt", "fr", "de", "it", "pl", "vi", "sw", "fi"}
    assert languages_of("42 + 1 = 43!") == set(LANGUAGES)
    for text in ("Alma Bruno Clara", "ＡＬＭＡ", "Guten Morgen!"):
        assert languages_of(text) == set()
        assert languages_of(text, undecided=True) == latin
    # "in" is a stop word of English, German and Italian, and of no other language.
    assert languages_of("Bruno in Alma") == {"en", "de", "it"}
    assert languages_of("Bruno in Alma", undecided=True) == {"en", "de", "it"}


def test_stop_words_are_lower_case_words() -> None:
    for listed in STOP_WORDS.values():
        assert all(word == word.lower() for word in listed) and len(listed) >= 20
