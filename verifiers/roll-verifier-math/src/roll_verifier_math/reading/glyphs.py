"""Unicode letters and signs to the ASCII and LaTeX that mean the same."""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "×": r"\times ", "✕": r"\times ", "÷": "/", "⁄": "/",
    "∕": "/", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ", "∗": "*", "√": r"\sqrt ",
    "∛": r"\sqrt[3] ", "∜": r"\sqrt[4] ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≦": r"\le ",
    "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≃": r"\approx ", "≅": r"\cong ", "≡": r"\equiv ", "∼": r"\sim ",
    "∝": r"\propto ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ", "⊂": r"\subset ", "⊆": r"\subseteq ",
    "⊃": r"\supset ", "⊇": r"\supseteq ", "∖": r"\setminus ", "∅": r"\emptyset ", "⌀": r"\emptyset ", "°": r"^\circ ",
    "º": r"^\circ ", "˚": r"^\circ ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "±": r"\pm ", "∓": r"\mp ", "′": "'", "’": "'", "‘": "'", "″": "''", "‴": "'''", "“": '"',
    "”": '"', "％": "%", "，": ",", "、": ",", "。": ".", "．": ".", "：": ":", "；": ";", "（": "(", "）": ")",
    "→": r"\to ", "⟶": r"\to ", "⇒": r"\Rightarrow ", "⟹": r"\Rightarrow ", "⇔": r"\iff ", "↔": r"\leftrightarrow ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∠": r"\angle ", "△": r"\triangle ",
    "∆": r"\Delta ", "∇": r"\nabla ", "∂": r"\partial ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "¬": r"\neg ",
    "∧": r"\land ", "∨": r"\lor ", "∀": r"\forall ", "∃": r"\exists ", "⊥": r"\perp ", "∥": r"\parallel ",
    "∣": r"\mid ", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ", "…": r"\ldots ",
    "⋯": r"\ldots ", "ℓ": r"\ell ", "ℏ": r"\hbar ", "Ω": r"\Omega ", "㎝": "cm", "㎞": "km", "㎏": "kg", "ℯ": "e",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "ϑ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi",
    "π": "pi", "ρ": "rho", "σ": "sigma", "ς": "sigma", "τ": "tau", "υ": "upsilon", "φ": "phi", "ϕ": "phi", "χ": "chi",
    "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi",
    "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_VULGAR = {
    "½": "1 2", "⅓": "1 3", "⅔": "2 3", "¼": "1 4", "¾": "3 4", "⅕": "1 5", "⅖": "2 5", "⅗": "3 5", "⅘": "4 5",
    "⅙": "1 6", "⅚": "5 6", "⅐": "1 7", "⅛": "1 8", "⅜": "3 8", "⅝": "5 8", "⅞": "7 8", "⅑": "1 9", "⅒": "1 10",
}  # fmt: skip
_TABLE = str.maketrans(
    {
        **_SIGNS,
        **{letter: f"\\{name} " for letter, name in _GREEK.items()},
        **{sign: "\\frac{{{}}}{{{}}}".format(*parts.split()) for sign, parts in _VULGAR.items()},
    }
)
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿˣ"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉₊₋ₙᵢⱼₖ"
_SUPERSCRIPTS = str.maketrans(_RAISED, "0123456789-+nx")
_SUBSCRIPTS = str.maketrans(_LOWERED, "0123456789+-nijk")
_RAISED_RUN = re.compile(f"[{_RAISED}]+")
_LOWERED_RUN = re.compile(f"[{_LOWERED}]+")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u202a-\u202e\u2066-\u2069\ufe0e\ufe0f]")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_RADICAL = re.compile(r"(\\sqrt(?:\[\d\])?) (\d+(?:\.\d+)?|[a-zA-Z])")
_OVERLINED = re.compile("((?:\\d[\u0304\u0305])+)")
"""Digits under combining lines: a period."""


def to_latex(text: str) -> str:
    """Unicode to ASCII and LaTeX where the meaning is the same; the rest stays."""
    if text.isascii():
        return text
    text = _SPACE.sub(" ", _INVISIBLE.sub("", text))
    text = _OVERLINED.sub(lambda m: "\\overline{" + re.sub(r"\D", "", m[0]) + "}", text)
    text = _RAISED_RUN.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED_RUN.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_TABLE)).translate(_TABLE)
    return _RADICAL.sub(r"\1{\2}", text)
