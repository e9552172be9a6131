r"""Text to one spelling, without losing anything that carries meaning.

What is not understood stays as it is, for the parser to refuse; only wrappers, spacing and styles go.
"""

from __future__ import annotations

import re
import unicodedata

from roll_verifier_math.words import number_in_words

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "÷": "/", "⁄": "/", "∕": "/", "·": r"\cdot ",
    "⋅": r"\cdot ", "∙": r"\cdot ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∖": r"\setminus ", "∅": r"\emptyset ", "°": r"^\circ ", "º": r"^\circ ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "±": r"\pm ", "∓": r"\mp ", "′": "'", "’": "'",
    "″": "''", "％": "%", "，": ",", "。": ".", "：": ":", "；": ";", "（": "(", "）": ")", "→": r"\to ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∠": r"\angle ", "△": r"\triangle ",
    "∇": r"\nabla ",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda",
    "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_VULGAR = {
    "½": "1 2", "⅓": "1 3", "⅔": "2 3", "¼": "1 4", "¾": "3 4", "⅕": "1 5", "⅖": "2 5", "⅗": "3 5", "⅘": "4 5",
    "⅙": "1 6", "⅚": "5 6", "⅛": "1 8", "⅜": "3 8", "⅝": "5 8", "⅞": "7 8",
}  # fmt: skip
_TABLE = str.maketrans(
    {
        **_UNICODE,
        **{letter: f"\\{name} " for letter, name in _GREEK.items()},
        **{sign: "\\frac{{{}}}{{{}}}".format(*parts.split()) for sign, parts in _VULGAR.items()},
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u202a-\u202e]")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")

_STYLES = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|[bB]ig{1,2}[lrm]?|large|Large|bf|rm|it)(?![a-zA-Z])"
    r"|\\color\{\w+\}|\\phantom\{[^{}]*\}"
)
_FONTS = re.compile(r"\\(?:mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mathcal|textcolor\{\w+\})\s*\{([^{}]*)\}")
_TEXTS = re.compile(r"\\(?:textbf|textit|textrm|textsf|mbox|hbox|textnormal)\s*\{")
_THIN = re.compile(r"(?<!\\)\\[,;:! ]|\\(?:quad|qquad|hspace\{[^{}]*\})(?![a-zA-Z])|~")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|,?\\!|,?\\,|,\s?\\!|\\ | )\d{3})+(?![\d])")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_MIXED = re.compile(r"(?<![\d./^_])(\d{1,9})\s+(\d{1,9})\s*/\s*(\d{1,9})(?![\d.])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d{1,40})\}|(\d))")
_SCIENTIFIC = re.compile(r"(?<![a-zA-Z\d])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,6})(?![a-zA-Z\d])")
_WORD_BASE = re.compile(r"_\s*\{\s*\\text\s*\{\s*([a-z]+)\s*\}\s*\}")
_ALIASES = {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "geq": "ge", "geqslant": "ge", "leq": "le",
            "leqslant": "le", "neq": "ne", "varnothing": "emptyset", "degree": "^\\circ ", "lbrace": "{", "rbrace": "}",
            "gt": "> ", "lt": "< ", "land": "text{ and }", "lor": "text{ or }", "dots": "ldots", "cdots": "ldots",
            "dbinom": "binom", "tbinom": "binom", "implies": "to", "rightarrow": "to", "backslash": "setminus",
            "varphi": "phi", "varepsilon": "epsilon", "vert": "|", "lvert": "|", "rvert": "|", "colon": ":",
            "euro": "€", "pounds": "£"}  # fmt: skip
_ALIAS = re.compile(r"\\(" + "|".join(sorted(_ALIASES, key=len, reverse=True)) + r")(?![a-zA-Z])")


def normalise(text: str) -> str:
    """One spelling of an answer's text."""
    text = _wrappers(_letters(text))
    text = _THOUSANDS.sub(_join_digits, text)
    text = _BRACED_COMMA.sub("", text)
    text = _STYLES.sub(" ", text)
    text = _TEXTS.sub(r"\\text{", text)
    for _ in range(3):
        text = _FONTS.sub(r"{\1}", text)
    text = _THIN.sub(" ", text)
    text = _ALIAS.sub(_alias, text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ").replace("**", "^")
    text = text.replace("+/-", r"\pm ")
    text = _REPEATING.sub(_repeating, text)
    text = _SCIENTIFIC.sub(r"(\1\\times 10^{\2})", text)
    text = _WORD_BASE.sub(_word_base, text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    return _wrappers(" ".join(text.split()))


def _letters(text: str) -> str:
    """Unicode to ASCII and LaTeX where the meaning is the same."""
    if text.isascii():
        return text
    text = _SPACE.sub(" ", _INVISIBLE.sub("", text))
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+", lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    return unicodedata.normalize("NFKC", text.translate(_TABLE)).translate(_TABLE)


def _wrappers(text: str) -> str:
    """Strip what only surrounds an answer: dollars, boxes, bold, code marks, a full stop."""
    while True:
        before = text
        text = text.strip().strip("`")
        text = re.sub(r"^\\(?:boxed|fbox)\s*\{(.*)\}$", _whole_group, text, flags=re.DOTALL)
        text = re.sub(r"^\\text\s*\{(\\boxed\{.*\})\}$", r"\1", text, flags=re.DOTALL)
        for opening, closing in (("$$", "$$"), ("$", "$"), ("**", "**"), ("\\(", "\\)"), ("\\[", "\\]"), ("__", "__")):
            if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                text = inner if opening not in inner or opening == "**" else text
        if (text.endswith((".", ",", ";")) and not text.endswith("..")) or text.endswith("\\"):
            text = text[:-1]
        if text == before:
            return text


def _whole_group(match: re.Match[str]) -> str:
    depth = 0
    inner = match[1]
    for position, character in enumerate(inner):
        escaped = position > 0 and inner[position - 1] == "\\"
        depth += 0 if escaped else (character == "{") - (character == "}")
        if depth < 0:
            return match[0]
    return inner


def _join_digits(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match[0])


def _word_base(match: re.Match[str]) -> str:
    number = number_in_words(match[1])
    return match[0] if number is None else f"_{{{number}}}"


def _alias(match: re.Match[str]) -> str:
    new = _ALIASES[match[1]]
    return "\\" + new if new[0].isalpha() or new in "{}" else new


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3] or match[4]
    nines = 10 ** len(period) - 1
    scale = 10 ** len(fixed)
    numerator = int(whole + fixed) * nines + int(period)
    return f"(\\frac{{{numerator}}}{{{nines * scale}}})"
