"""The names the parser knows."""

from __future__ import annotations

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "in": "in", "approx": "~", "notin": "notin",
    "equiv": "==", "to": "to", "mid": "mid", "sim": "sim", "parallel": "parallel", "perp": "perp", "subset": "subset",
    "subseteq": "subseteq", "supset": "supset", "supseteq": "supseteq", "iff": "iff", "Rightarrow": "implies",
    "cong": "cong", "propto": "propto", "mapsto": "mapsto",
}  # fmt: skip
SET_OPERATIONS = frozenset({"cup", "cap", "setminus"})
SET_SYMBOLS = frozenset("RZNQC")
CALLABLE = frozenset({*"fghFGHOo", "Theta", "Omega", "Gamma", "phi", "psi"})
"""Names that are functions when a bracket follows them at once."""
GROWTH = frozenset({"call:O", "call:o", "call:Theta", "call:Omega"})
"""Orders of growth."""
FUNCTIONS = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc", "sinh",
     "cosh", "tanh", "coth", "sech", "csch", "arcsinh", "arccosh", "arctanh", "arsinh", "arcosh", "artanh", "asin",
     "acos", "atan", "cis", "ln", "log", "lg", "exp", "abs", "max", "min", "gcd", "lcm", "floor", "ceil"]
)  # fmt: skip
SYNONYMS = {
    "arsinh": "arcsinh", "arcosh": "arccosh", "artanh": "arctanh", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
}  # fmt: skip
INVERSE = {
    "sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc",
    "sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh",
}  # fmt: skip
GREEK = frozenset(
    ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
     "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi",
     "Sigma", "Upsilon", "Phi", "Psi", "Omega", "ell", "hbar"]
)  # fmt: skip
PLAIN_CONSTANTS = {
    **{name: name for name in GREEK if len(name) > 2},
    "pi": "pi", "infinity": "infty", "infty": "infty", "inf": "infty", "oo": "infty",
}  # fmt: skip
"""Names that may stand without a backslash."""
DECORATORS = frozenset(
    ["dot", "ddot", "hat", "bar", "overline", "vec", "tilde", "angle", "triangle", "nabla", "widehat", "widetilde",
     "overrightarrow", "odot", "partial", "overleftrightarrow", "measuredangle"]
)  # fmt: skip
ENVIRONMENTS = frozenset(["pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix"])
