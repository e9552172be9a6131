"""The names the parser knows."""

from __future__ import annotations

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "in": "in", "approx": "~",
    "equiv": "==", "to": "to", "mid": "mid", "sim": "sim", "parallel": "parallel", "perp": "perp", "subset": "subset",
    "subseteq": "subseteq",
}  # fmt: skip
SET_OPERATIONS = frozenset({"cup", "cap", "setminus"})
SET_SYMBOLS = frozenset("RZNQC")
CALLABLE = frozenset("fghFGO")
"""Letters that are functions when a bracket follows them at once."""
_TRIGONOMETRIC = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh cis"
FUNCTIONS = frozenset(f"{_TRIGONOMETRIC} ln log lg exp abs max min gcd lcm floor ceil".split())
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Sigma",
        "Phi",
        "Psi",
        "Omega",
        "ell",
        "hbar",
    ]
)
DECORATORS = frozenset(
    [
        "dot",
        "ddot",
        "hat",
        "bar",
        "overline",
        "vec",
        "tilde",
        "angle",
        "triangle",
        "nabla",
        "widehat",
        "widetilde",
        "overrightarrow",
        "odot",
    ]
)
