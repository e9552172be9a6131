r"""Text to one spelling, without losing anything that carries meaning.

What is not understood stays as it is, for the parser to refuse; only wrappers, spacing and styles go.
"""

from __future__ import annotations

import functools
import re

from roll_verifier_math.reading.decimals import spelled_out
from roll_verifier_math.reading.glyphs import to_latex
from roll_verifier_math.reading.vocabulary import FUNCTIONS
from roll_verifier_math.reading.words import number_in_words
from roll_verifier_math.reading.wrappers import unwrapped

_STYLES = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|[bB]ig{1,2}[lrm]?|strut|"
    r"tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|bf|rm|it|sf|tt)(?![a-zA-Z])"
    r"|\\color\s*\{\w+\}|\\[hv]?phantom\s*\{[^{}]*\}"
)
_FONTS = re.compile(
    r"\\(?:mathrm|mathbf|mathit|mathsf|mathtt|mathcal|mathscr|boldsymbol|bm|textcolor\s*\{\w+\}|ensuremath|underline|emph)"
    r"(?![a-zA-Z])\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|([A-Za-z0-9]))"
)
_TEXTS = re.compile(r"\\(?:textbf|textit|textrm|textsf|texttt|mbox|hbox|textnormal)\s*\{")
_THIN = re.compile(r"(?<!\\)\\[,;:! ]|\\(?:quad|qquad|hspace\s*\{[^{}]*\})(?![a-zA-Z])|(?<!\\)~")
_BLANK_TEXT = re.compile(r"\\text\s*\{\s*\}")
_THIN_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|,?\s?\\!\s*|,?\\,|\\ | |')\d{3})+(?![\d])")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_MIXED = re.compile(r"(?<![\d./^_)}])(\d{1,9})\s+(\d{1,9})\s*/\s*(\d{1,9})(?![\d.])")
_SCIENTIFIC = re.compile(r"(?<![a-zA-Z\d.])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,12})(?![a-zA-Z\d.])")
_LETTER_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_INFIX = (
    (re.compile(r"\{([^{}]*)\\over(?![a-z])([^{}]*)\}|^([^{}]*)\\over(?![a-z])([^{}]*)$"), "frac"),
    (re.compile(r"\{([^{}]*)\\choose(?![a-z])([^{}]*)\}|^([^{}]*)\\choose(?![a-z])([^{}]*)$"), "binom"),
)
_FUNCTION_TEXT = re.compile(r"\\text\s*\{\s*(" + "|".join(sorted(FUNCTIONS, key=len, reverse=True)) + r")\s*\}")
_WORD_BASE = re.compile(
    r"_\s*\{\s*\\text\s*\{\s*base\s*\}\s*(?P<digits>\d+)\s*\}"
    r"|_\s*\{?\s*\\text\s*\{\s*(?:base\s*)?(?P<text>[a-z]+)\s*\}\s*\}?|_\s*\{\s*(?P<word>[a-z]{3,})\s*\}"
)
_BASE_WORD = re.compile(
    r"(?<=[0-9A-Fa-f])\s*(?:\\text\s*\{\s*\(?\s*base\s*-?(\d+)?\s*\)?\s*\}\s*(\d+)?|\(?\s*\bbase\s*-?\s*(\d+)\s*\)?)$"
)
_MOD_TEXT = re.compile(r"\\text\s*\{([^{}]*\bmod\b[^{}]*)\}")
_MOD = re.compile(
    r"\(\s*\\?[pb]?mod(?:ulo)?\s*\{?(\d{1,40}|[a-z])\}?\s*\)|(?:\\[pb]?mod|\bmod(?:ulo)?\b)\s*\{?\s*(\d{1,40}|[a-z])\s*\}?"
)
_REVERSED = (
    (re.compile(r"\](\s*[^\s,;\[\]][^,;\[\]]*[,;][^,;\[\]]*[^\s,;\[\]]\s*)\["), r"(\1)"),
    (re.compile(r"\[(\s*[^\s,;\[\]()][^,;\[\]()]*[,;][^,;\[\]()]*[^\s,;\[\]()]\s*)\["), r"[\1)"),
    (re.compile(r"(?<![\])\d}])\](\s*[^\s,;\[\]()][^,;\[\]]*[,;][^,;\[\]]*[^\s,;\[\]]\s*)\]"), r"(\1]"),
)
_ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "geq": "ge", "geqslant": "ge", "leq": "le", "leqslant": "le",
    "neq": "ne", "varnothing": "emptyset", "degree": "^\\circ ", "lbrace": "{", "rbrace": "}", "lbrack": "[ ",
    "rbrack": "] ", "gt": "> ", "lt": "< ", "wedge": "land ", "vee": "lor ", "dots": "ldots", "cdots": "ldots",
    "dotsc": "ldots", "dbinom": "binom", "tbinom": "binom",
    "implies": "Rightarrow", "rightarrow": "to", "longrightarrow": "to", "Longrightarrow": "Rightarrow",
    "Leftrightarrow": "iff", "backslash": "setminus", "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta",
    "vert": "| ", "lvert": "| ", "rvert": "| ", "Vert": "\\| ", "lVert": "\\| ", "rVert": "\\| ", "colon": ": ",
    "lnot": "neg", "euro": "€", "pounds": "£", "textdegree": "^\\circ ", "tg": "tan", "ctg": "cot", "arctg": "arctan",
    "prime": "prime ", "percent": "%", "smallsetminus": "setminus", "ne": "ne ", "top": "top ",
}  # fmt: skip
_ALIAS = re.compile(r"\\(" + "|".join(sorted(_ALIASES, key=len, reverse=True)) + r")(?![a-zA-Z])")
_PLAIN_SIGNS = re.compile(r"\\not\s*=|<=|>=|!=|\*\*|\+/-|:=|(?:^|(?<=[=,(]))\s*\+-(?=\s*[\d\\])")
_SIGNS = {
    "\\not=": r"\ne ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "!=": r"\ne ",
    "**": "^",
    "+/-": r"\pm ",
    ":=": "=",
    "+-": r"\pm ",
}
_DEGREE_LETTER = re.compile(r"(?<=\d)\s*\^\s*\{?\s*(?:\\text\s*\{\s*o\s*\}|o)\s*\}?(?![a-z])")
_UNIT_QUOTIENT = re.compile(
    r"\\frac\s*\{\s*\\text\s*\{([^{}]*)\}\s*\}\s*\{\s*\\text\s*\{([^{}]*)\}\s*(\^\s*\{?\d\}?)?\s*\}"
)
_INNER_MATH = re.compile(r"(?<!\\)\\[()\[\]]")
_BLANKS = re.compile(r"\s+")


def normalise(text: str) -> str:
    """One spelling of an answer's text."""
    text = _without_dollars(unwrapped(to_latex(text)))
    if any(character.isdigit() for character in text):
        text = _DEGREE_LETTER.sub(r"^\\circ ", _numbers(text))
    if "\\" in text or "~" in text:
        text = _latex(text)
    text = _PLAIN_SIGNS.sub(lambda m: _SIGNS[_BLANKS.sub("", m[0])], text)
    if "mod" in text:
        text = _MOD.sub(lambda m: f"\\pmod{{{m[1] or m[2]}}}", _MOD_TEXT.sub(r" \1 ", text))
    if "base" in text or "_" in text:
        text = _BASE_WORD.sub(_base_word, _WORD_BASE.sub(_word_base, text))
    if "[" in text or "]" in text:
        for pattern, interval in _REVERSED:
            text = pattern.sub(interval, text)
    return unwrapped(_BLANKS.sub(" ", text))


def _latex(text: str) -> str:
    text = _STYLES.sub(" ", text)
    text = _TEXTS.sub(r"\\text{", text)
    for _ in range(3):
        if (changed := _FONTS.sub(_font, text)) == text:
            break
        text = changed
    text = _THIN.sub(" ", text)
    text = _BLANK_TEXT.sub(" ", text)
    text = _UNIT_QUOTIENT.sub(r"\\text{\1/\2}\3", text)
    text = _FUNCTION_TEXT.sub(r"\\\1 ", text)
    text = _ALIAS.sub(_alias, text)
    for pattern, name in _INFIX:
        text = pattern.sub(functools.partial(_prefixed, name), text)
    return text


def _prefixed(name: str, match: re.Match[str]) -> str:
    return f"\\{name}{{{match[1] or match[3]}}}{{{match[2] or match[4]}}}"


def _numbers(text: str) -> str:
    text = _BRACED_COMMA.sub("", _THIN_THOUSANDS.sub(_join_digits, text))
    if "," in text:
        text = _ungrouped(text)
    text = spelled_out(text)
    text = _SCIENTIFIC.sub(r"(\1\\times 10^{\2})", text)
    text = _LETTER_TIMES.sub(r"\\times ", text)
    return _MIXED.sub(r"\1\\frac{\2}{\3}", text)


def _ungrouped(text: str) -> str:
    """Commas between groups of three digits go, except inside brackets, where they separate items."""
    pieces, position = [], 0
    for match in _THOUSANDS.finditer(text):
        before = text[: match.start()]
        if sum(before.count(c) for c in "([") > sum(before.count(c) for c in ")]"):
            continue
        if before.count("\\{") > before.count("\\}"):
            continue
        pieces += [text[position : match.start()], match[0].replace(",", "")]
        position = match.end()
    return "".join(pieces) + text[position:]


def _without_dollars(text: str) -> str:
    """Without dollars that enclose formulas within the text; a dollar before a number alone is money."""
    text = _INNER_MATH.sub(" ", text) if "\\" in text else text
    count = text.count("$") - text.count("\\$")
    if count < 2 or count % 2:
        return text
    parts = re.split(r"(?<!\\)\$", text)
    if all(re.match(r"\d", part) for part in parts[1:]) and len(parts) > 2:
        return text
    return " ".join(parts)


def _font(match: re.Match[str]) -> str:
    content = match[2] or _THIN.sub(" ", match[1] or "").strip()
    name = match[0]
    if content in FUNCTIONS:
        return f"\\{content} "
    is_roman = name.startswith(("\\mathrm", "\\mathsf", "\\mathtt"))
    unit = re.fullmatch(r"([A-Za-z][A-Za-z /]*)(\^\s*\{?-?\d+\}?)?", content)
    if unit and len(unit[1]) >= (2 if is_roman else 3) and not (len(unit[1]) == 2 and unit[1].isupper()):
        return f"\\text{{{unit[1]}}}{unit[2] or ''}"
    if len(content) == 1 and content.isalnum():
        return f" {content}"
    return f"{{{content}}}"


def _join_digits(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match[0])


def _word_base(match: re.Match[str]) -> str:
    if match["digits"]:
        return f"_{{{match['digits']}}}"
    number = number_in_words(match["text"] or match["word"])
    return match[0] if number is None else f"_{{{number}}}"


def _base_word(match: re.Match[str]) -> str:
    base = match[1] or match[2] or match[3]
    return f"_{{{base}}}" if base else match[0]


def _alias(match: re.Match[str]) -> str:
    new = _ALIASES[match[1]]
    return "\\" + new if new[0].isalpha() or new in "{}" else new
