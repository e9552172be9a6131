"""Names of units, with the base unit and the size of each."""

from __future__ import annotations

from fractions import Fraction

from roll_verifier_math.reading.vocabulary import GREEK
from roll_verifier_math.reading.words import NUMBER_WORDS

_TABLE = {
    # base unit: spellings and sizes
    "m": {"m meter meters metre metres": "1", "cm centimeter centimeters centimetre centimetres": "1/100",
          "mm millimeter millimeters millimetre millimetres": "1/1000", "dm decimeter decimeters": "1/10",
          "km kilometer kilometers kilometre kilometres kms": "1000", "nm nanometer nanometers": "1/1000000000",
          "um micrometer micrometers micron microns": "1/1000000", "in inch inches": "127/5000",
          "ft foot feet": "381/1250", "yd yard yards": "1143/1250", "mi mile miles": "201168/125"},
    "g": {"g gram grams gramme grammes": "1", "kg kilogram kilograms kilo kilos kgs": "1000",
          "mg milligram milligrams": "1/1000", "ug microgram micrograms": "1/1000000", "ton tons": "907184.74",
          "t tonne tonnes": "1000000", "lb lbs": "453.59237", "oz ounce ounces": "28.349523125"},
    "s": {"s sec secs second seconds": "1", "ms millisecond milliseconds": "1/1000", "min mins minute minutes": "60",
          "h hr hrs hour hours": "3600", "day days": "86400", "week weeks": "604800"},
    "month": {"month months": "1", "yr yrs year years": "12", "decade decades": "120", "century centuries": "1200"},
    "l": {"L l liter liters litre litres": "1", "ml mL milliliter milliliters millilitre millilitres": "1/1000",
          "cl cL centiliter centiliters": "1/100", "dl dL": "1/10"},
    "gal": {"gal gallon gallons": "1", "quart quarts qt": "1/4", "pint pints pt": "1/8", "cup cups": "1/16"},
    "usd": {"$ dollar dollars usd USD bucks buck": "1", "¢ cent cents": "1/100"},
    "eur": {"€ euro euros eur EUR": "1"}, "gbp": {"£ gbp GBP": "1", "pence penny": "1/100"},
    "yen": {"¥ yen jpy JPY": "1"}, "yuan": {"yuan rmb RMB CNY cny": "1"}, "inr": {"₹ rupee rupees inr INR": "1"},
    "rub": {"₽ ruble rubles rouble roubles": "1"}, "krw": {"₩ won": "1"},
    "n": {"N newton newtons": "1", "kN": "1000"}, "j": {"J joule joules": "1", "kJ": "1000", "MJ": "1000000"},
    "w": {"W watt watts": "1", "kW": "1000", "mW": "1/1000", "MW": "1000000"},
    "v": {"V volt volts": "1", "kV": "1000", "mV": "1/1000"}, "a": {"A amp amps ampere amperes": "1", "mA": "1/1000"},
    "ohm": {"ohm ohms": "1", "\\Omega": "1"}, "pa": {"Pa pascal pascals": "1", "kPa": "1000"},
    "hz": {"Hz hertz": "1", "kHz": "1000", "MHz": "1000000", "GHz": "1000000000"},
    "mol": {"mol mole moles": "1"}, "t": {"T tesla teslas": "1"},
    "coulomb": {"C coulomb coulombs": "1"}, "farad": {"F farad farads": "1"}, "bit": {"bit bits": "1"},
    "cal": {"cal calorie calories": "1", "kcal kilocalorie kilocalories": "1000"}, "ev": {"eV": "1"},
    "kwh": {"kWh": "1"}, "db": {"dB": "1"}, "mmhg": {"mmHg": "1"}, "psi": {"psi": "1"}, "bps": {"bps": "1"},
    "lx": {"lx lux": "1"},
    "ha": {"ha hectare hectares": "1"}, "acre": {"acre acres": "1"}, "atm": {"atm": "1"}, "rpm": {"rpm": "1"},
    "degree": {"degree degrees deg degs": "1"}, "radian": {"rad rads radian radians": "1"},
    "celsius": {"celsius Celsius degC degc degcelsius degCelsius": "1"},
    "fahrenheit": {"fahrenheit Fahrenheit degF degf degfahrenheit degFahrenheit": "1"},
    "kelvin": {"kelvin kelvins K": "1"}, "unit": {"unit units": "1"},
    "b": {"byte bytes B": "1", "kB KB kilobyte kilobytes": "1000",
          "MB megabyte megabytes": "1000000",
          "GB gigabyte gigabytes": "1000000000", "TB": "1000000000000"},
    "pound": {"pound pounds": "1"},
}  # fmt: skip
NAMES: dict[str, tuple[str, Fraction]] = {
    name: (base, Fraction(size))
    for base, names in _TABLE.items()
    for words, size in names.items()
    for name in words.split()
}
"""Spelling to base unit and size. "pound" is a unit of its own, since it may be money or mass."""
ABBREVIATED = {"mph": "mi / h", "kph": "km / h", "kmh": "km / h", "fps": "ft / s"}
PREFIX_SIGNS = {"$": "$", "US$": "$", "€": "€", "£": "£", "¥": "¥", "₹": "₹", "₽": "₽", "₩": "₩"}
SYMBOLIC = frozenset(["m", "g", "s", "h", "L", "N", "J", "W", "V", "l", "K", "A"])
"""Single letters that are units only in company: in a quotient, with an exponent, behind a blank."""
REMARKS = frozenset(
    ["old", "ago", "long", "tall", "wide", "deep", "high", "away", "total", "in", "altogether", "each", "left",
     "remaining", "of", "the", "all", "approximately", "exactly"]
)  # fmt: skip
"""Words beside a unit that do not change it."""
NOT_UNITS = NUMBER_WORDS | {name.lower() for name in GREEK} | frozenset(
    ["about", "above", "abs", "ad", "additional", "almost", "alpha", "also", "alternatively", "always", "am", "and",
     "another", "answer", "any", "approximately", "are", "around", "at", "bar", "base", "bc", "bce", "be", "because",
     "been", "below", "beta", "between", "beyond", "bigger", "billion", "both", "but", "by", "can", "cannot", "case",
     "ce", "choice", "choose", "cis", "correct", "cos", "could", "crore", "crores", "decimal", "decimals",
     "depending", "digit", "digits", "dot", "double", "doubled", "down", "either", "else", "error", "estimate",
     "estimated", "every", "except", "exclusive", "exp", "extra", "factorial", "false", "fewer", "first", "fold",
     "for", "from", "gamma", "gcd", "grand", "greater", "gross", "guess", "half", "halved", "hat", "higher", "if",
     "inclusive", "incorrect", "inf", "infinite", "infinity", "infty", "instead", "inverse", "is", "it", "just",
     "lakh", "lakhs", "lambda", "larger", "last", "lcm", "least", "less", "likely", "ln", "log", "lower", "max",
     "maximum", "may", "maybe", "might", "million", "minimum", "minus", "mod", "modulo", "modulus", "more", "most",
     "must", "nan", "nd", "nearly", "negative", "neither", "never", "next", "no", "none", "nor", "not", "null",
     "ones", "only", "onward", "oo", "option", "or", "other", "others", "otherwise", "over", "pct", "percent",
     "percentage", "perhaps", "pi", "place", "places", "plus", "pm", "positive", "possibly", "power", "powers",
     "previous", "prime", "probably", "product", "quotient", "radical", "raised", "rd", "reciprocal", "remainder",
     "repeating", "right", "root", "roots", "roughly", "rounded", "score", "should", "sin", "since", "smaller",
     "solution", "some", "sqrt", "squareroot", "squares", "st", "still", "sum", "sure", "tan", "tens", "th", "than",
     "that", "then", "these", "theta", "this", "those", "through", "times", "to", "trillion", "triple", "tripled",
     "true", "twice", "undefined", "under", "unknown", "unless", "unlikely", "unsure", "until", "up", "upward",
     "was", "were", "when", "where", "while", "will", "with", "would", "wrong", "yes", "yet", "zeroes", "zeros"]
)  # fmt: skip
"""Words behind a number that change its value, or say that there is more to it."""
