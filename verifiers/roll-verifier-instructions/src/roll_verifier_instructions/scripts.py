"""Languages, the scripts they are written in, and signs that tell close languages apart."""

from __future__ import annotations

from dataclasses import dataclass

SCRIPTS: dict[str, str] = {
    "arabic": "\u0621-\u064a\u066e-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "armenian": "\u0531-\u0587",
    "bengali": "\u0980-\u09ff",
    "cyrillic": "\u0400-\u052f\u1c80-\u1c8f",
    "devanagari": "\u0900-\u0963\u0966-\u097f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "gujarati": "\u0a80-\u0aff",
    "gurmukhi": "\u0a00-\u0a7f",
    "han": "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "kannada": "\u0c80-\u0cff",
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a",
    "malayalam": "\u0d00-\u0d7f",
    "tamil": "\u0b80-\u0bff",
    "telugu": "\u0c00-\u0c7f",
    "thai": "\u0e00-\u0e7f",
}
"""Insides of character classes."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Language:
    """A language that may be asked for."""

    name: str
    scripts: tuple[str, ...]


def _latin(**names: str) -> dict[str, Language]:
    return {code: Language(name, ("latin",)) for code, name in names.items()}


LANGUAGES: dict[str, Language] = {
    **_latin(
        en="English",
        es="Spanish",
        pt="Portuguese",
        fr="French",
        de="German",
        it="Italian",
        pl="Polish",
        vi="Vietnamese",
        sw="Swahili",
        fi="Finnish",
        nl="Dutch",
        sv="Swedish",
        da="Danish",
        no="Norwegian",
        cs="Czech",
        sk="Slovak",
        hu="Hungarian",
        ro="Romanian",
        tr="Turkish",
        id="Indonesian",
        ca="Catalan",
        hr="Croatian",
    ),
    "ru": Language("Russian", ("cyrillic",)),
    "uk": Language("Ukrainian", ("cyrillic",)),
    "bg": Language("Bulgarian", ("cyrillic",)),
    "ar": Language("Arabic", ("arabic",)),
    "fa": Language("Persian", ("arabic",)),
    "ur": Language("Urdu", ("arabic",)),
    "hi": Language("Hindi", ("devanagari",)),
    "mr": Language("Marathi", ("devanagari",)),
    "ne": Language("Nepali", ("devanagari",)),
    "ja": Language("Japanese", ("kana", "han")),
    "zh": Language("Chinese", ("han",)),
    "ko": Language("Korean", ("hangul", "han")),
    "bn": Language("Bengali", ("bengali",)),
    "el": Language("Greek", ("greek",)),
    "gu": Language("Gujarati", ("gujarati",)),
    "he": Language("Hebrew", ("hebrew",)),
    "kn": Language("Kannada", ("kannada",)),
    "ml": Language("Malayalam", ("malayalam",)),
    "pa": Language("Punjabi", ("gurmukhi",)),
    "ta": Language("Tamil", ("tamil",)),
    "te": Language("Telugu", ("telugu",)),
    "th": Language("Thai", ("thai",)),
}
"""The 30 languages of IFEval, and ten more."""

RIVALS: frozenset[str] = _set(
    "en es pt fr de it pl vi sw fi nl sv da no cs sk hu ro tr id hr ca et lt lv sl tl af sq ar fa ur he ru uk "
    "bg sr mk be hi mr ne ja zh ko th el bn ta te kn gu pa ml ka hy am"
)
"""Languages that a text may be taken for: the widely written ones, since rare ones win too often on short texts."""

SIGNS: dict[str, tuple[str, frozenset[str]]] = {
    "en": (
        "",
        _set(
            "the and is are of to it that this with for you my your yes no not hello who what when where why how he "
            "she we they i was were have has be do does will would can from by an"
        ),
    ),
    "es": (
        "ñ¿¡",
        _set("el los las y es son de que con para por una un no sí hola quién qué cuando donde muy más está su"),
    ),
    "fr": (
        "œ",
        _set("le les et est sont de du des que qui avec pour une ne pas oui non il elle nous vous je très dans sur"),
    ),
    "de": (
        "ß",
        _set(
            "der die das und ist sind nicht mit für ein eine ich du wir sie ja nein zu auf im den dem von wie was sehr"
        ),
    ),
    "it": (
        "",
        _set("il lo gli e è sono di che con per una un non sì ciao chi cosa quando dove molto più sua mio della nel"),
    ),
    "pt": (
        "ãõ",
        _set("o os as e é são de que com para por uma um não sim olá quem quando muito mais está seu meu da do em"),
    ),
    "ru": (
        "ыэё",
        _set("что это как был была было они вы мы есть или если только чтобы для при меня мне очень"),
    ),
    "uk": (
        "іїєґ",
        _set("що це як та або бути для вони ми ви був була було якщо дуже мене мені"),
    ),
    "bg": (
        "",
        _set("е са се че това за от да съм ще към със който която като той тя ние вие много ми не"),
    ),
    "ar": (
        "ةىإؤ",
        _set("في من على إلى هذا هذه التي الذي هو هي عن مع كان أن لا ما"),
    ),
    "fa": (
        "",
        _set("است که در این را با از برای می های ها و آن یک بود شد من تو نیست هستند"),
    ),
    "ur": (
        "ٹڈڑےںھ",
        _set("ہے میں کے کی کا اور سے نہیں یہ کو ہیں تھا ہم آپ پر وہ"),
    ),
    "hi": (
        "",
        _set("है हैं का की के में और नहीं यह था थी थे हूँ हूं से पर कि मैं हम आप वह कर एक लिए भी"),
    ),
    "mr": (
        "ळ",
        _set("आहे आहेत आणि नाही मी होते होता होती मध्ये साठी हे ही हा ते तो ती आम्ही तुम्ही पण काय माझे माझा"),
    ),
    "ne": (
        "",
        _set("छ छन् छैन हुन्छ थियो गर्छ पनि छु र म हामी तपाईं तिमी यो त्यो हो गर्न भयो मेरो"),
    ),
}
"""Letters and small words that a language has and its neighbours in the same script lack or have less."""
