from __future__ import annotations

from fractions import Fraction

import pytest

from roll_verifier_math.bounds import RefusedError, TooLargeError, check_text
from roll_verifier_math.reading.choice import choice_of, same_choice
from roll_verifier_math.reading.dates import as_time, read_moment
from roll_verifier_math.reading.decimals import spelled_out
from roll_verifier_math.reading.nodes import App, Listing, Moment, Notation, Num, Numeral, Quantity, Sym, Words
from roll_verifier_math.reading.normalise import normalise
from roll_verifier_math.reading.parse import parse
from roll_verifier_math.reading.read import read
from roll_verifier_math.reading.split import split_items
from roll_verifier_math.reading.units import parse_unit, split_unit
from roll_verifier_math.reading.words import as_words, number_in_words


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("twenty-one", 21),
        ("one hundred and five", 105),
        ("two thousand three hundred four", 2304),
        ("fifteen hundred", 1500),
        ("a million", 10**6),
        ("2.5 million", 2_500_000),
        ("minus three", -3),
        ("one half", Fraction(1, 2)),
        ("two thirds", Fraction(2, 3)),
        ("two and a half", Fraction(5, 2)),
        ("two point five", Fraction(5, 2)),
        ("a dozen", 12),
        ("zero", 0),
        ("one two", None),
        ("five and six", None),
        ("twenty thirty", None),
        ("ten-five", None),
        ("third", None),
        ("twenty-third", None),
        ("hundred thousand million", None),
        ("half-", None),
        ("apple", None),
        ("", None),
    ],
)
def test_numbers_in_words(words, value):
    assert number_in_words(words) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("an ellipse", "ellipse"),
        ("\\text{Not a function}", "not a function"),
        ("No", "no"),
        ("yes", "yes"),
        ("x", None),
        ("ab", None),
        ("xyz", None),
        ("abc", None),
        ("pqr", None),
        ("x y", None),
        ("p-q", None),
        ("n!!", None),
        ("infinity", None),
        ("theta", None),
    ],
)
def test_words_are_told_from_products(text, words):
    assert as_words(text) == words


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("July 4, 1776", Moment(1776, 7, 4)),
        ("4 July 1776", Moment(1776, 7, 4)),
        ("1776-07-04", Moment(1776, 7, 4)),
        ("the fourth of July", Moment(None, 7, 4)),
        ("July 4th", Moment(None, 7, 4)),
        ("Sept. 21st", Moment(None, 9, 21)),
        ("twenty-first of May", Moment(None, 5, 21)),
        ("August, 2003", Moment(2003, 8)),
        ("Monday, May 5", Moment(None, 5, 5, "monday")),
        ("13/05/2020", Moment(2020, 5, 13)),
        ("5/5/2020", Moment(2020, 5, 5)),
        ("3:30 p.m.", Moment(hour=15, minute=30)),
        ("12 AM", Moment(hour=0)),
        ("noon", Moment(hour=12)),
        ("10:05:30", Moment(hour=10, minute=5, second=30, is_half_known=False)),
        ("01/05/2020", None),
        ("May", None),
        ("July 44", None),
        ("13:00 PM", None),
        ("25:00 AM", None),
        ("3/4", None),
    ],
)
def test_dates_and_times(text, moment):
    assert read_moment(text) == moment


def test_a_clock_time_is_known_by_half_days_only_after_noon():
    assert as_time("15", "30") == Moment(hour=15, minute=30)
    assert as_time("3", "30") != Moment(hour=15, minute=30)
    assert as_time("32", "30") is None


@pytest.mark.parametrize(
    ("text", "powers", "factor"),
    [
        ("cm", {"m": 1}, Fraction(1, 100)),
        ("cm^2", {"m": 2}, Fraction(1, 10_000)),
        ("square feet", {"m": 2}, Fraction(381, 1250) ** 2),
        ("miles per hour", {"m": 1, "s": -1}, Fraction(201168, 125) / 3600),
        ("mph", {"m": 1, "s": -1}, Fraction(201168, 125) / 3600),
        ("m s^{-2}", {"m": 1, "s": -2}, 1),
        ("years old", {"month": 1}, 12),
        ("apples", {"apple": 1}, 1),
        ("degrees Celsius", {"celsius": 1}, 1),
        ("per day", {"s": -1}, Fraction(1, 86400)),
    ],
)
def test_units(text, powers, factor):
    unit = parse_unit(text)
    assert (dict(unit.powers), unit.factor) == (powers, factor)


@pytest.mark.parametrize(
    "text", ["or", "squared", "dozen", "lakh", "maybe six", "x", "0", "/6", "theta", "nan", "ninths", "(or six)", "uvw"]
)
def test_what_is_no_unit(text):
    assert parse_unit(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5 cm", "5"),
        ("\\$5", "5"),
        ("5^\\circ", "5"),
        ("5 percent", "5\\%"),
        ("$18 per day", "18"),
        ("5x", "5x"),
        ("5abc", "5abc"),
    ],
)
def test_a_unit_is_split_off(text, value):
    assert split_unit(text)[0] == value


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1, 2 and 3", ("1", "2", "3")),
        ("(1,2), \\{3,4\\}", ("(1,2)", "\\{3,4\\}")),
        ("a;b", ("a", "b")),
        ("x\\text{ or }y", ("x", "y")),
        ("f(a,b)", ("f(a,b)",)),
        ("sand", ("sand",)),
        ("\\langle1,2\\rangle, 3", ("\\langle1,2\\rangle", "3")),
    ],
)
def test_lists_are_split_outside_brackets(text, items):
    assert split_items(text).items == items


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.\\overline{3}", "1/3"),
        ("0.1\\dot{6}", "1/6"),
        ("0.(09)", "1/11"),
        ("0.333...", "1/3"),
        ("0.\\dot{1}4285\\dot{7}", "1/7"),
        ("1.2\\ldots", None),
        ("3.14159...", None),
    ],
)
def test_repeating_decimals(text, value):
    found = spelled_out(text)
    if value is None:
        assert found == text
    else:
        division = parse(found)
        assert division.args[0].value / division.args[1].value == Fraction(value)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("$\\dfrac{1}{2}$.", "\\frac{1}{2}"),
        ("**5**", "5"),
        ("\\boxed{\\text{yes}}", "yes"),
        ("1{,}234", "1234"),
        ("1\\,234", "1234"),
        ("(1,234)", "(1,234)"),
        ("32,\\! 349", "32349"),
        ("x²", "x^{2}"),
        ("½", "\\frac{1}{2}"),
        ("2 1/3", "2\\frac{1}{3}"),
        ("1.5e3", "(1.5\\times 10^{3})"),
        ("]1,2[", "(1,2)"),
        ("3 (mod 7)", "3 \\pmod{7}"),
        ("\\begin{align*}5\\end{align*}", "5"),
        ("{1 \\over 2}", "\\frac{1 }{ 2}"),
        ("= 5", "5"),
        ("\\mathrm{cm}", "cm"),
    ],
)
def test_normal_spelling(text, normal):
    assert normalise(text) == normal


@pytest.mark.parametrize(
    "text", ["1 2", "--5", "(1", "1)", "\\foo", "x^", "\\frac{1}{}", "5#", "+", "\\sqrt[", "a\\circ b"]
)
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(RefusedError):
        parse(text)


@pytest.mark.parametrize("text", ["9" * 1001, "(" * 60 + "1" + ")" * 60, "1" * 2001])
def test_texts_beyond_the_bounds_are_refused_before_parsing(text):
    with pytest.raises(TooLargeError):
        check_text(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("5", Num),
        ("x", Sym),
        ("yes", Words),
        ("5 cm", Quantity),
        ("FF_{16}", Numeral),
        ("a_1", Sym),
        ("4 July", Moment),
        ("3:30", App),
        ("1, 2", Listing),
        ("\\sum_k k", Notation),
        ("2 hours 15 minutes", Quantity),
        ("\\pm 2", Listing),
    ],
)
def test_what_a_text_is_read_as(text, kind):
    assert isinstance(read(text).node, kind)


@pytest.mark.parametrize(
    ("text", "letter", "is_alone"),
    [
        ("B", "B", True),
        ("\\textbf{(B)}", "B", True),
        ("Option B", "B", True),
        ("(B) 42", "B", False),
        ("B: because", "B", False),
    ],
)
def test_choices(text, letter, is_alone):
    found = choice_of(text)
    assert (found.letter, found.is_alone) == (letter, is_alone)


@pytest.mark.parametrize("text", ["b", "A or B", "A, B", "A. Wait, B is correct", "AB", "(A) or (B)", "5", "A" * 500])
def test_what_picks_no_letter(text):
    assert choice_of(text) is None


def test_two_explained_choices_are_not_compared_by_letter():
    assert same_choice("(B) 42", "(B) 43") is None
    assert same_choice("B", "(B) 43")
