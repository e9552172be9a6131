r"""Exact algebra in pure Python: sums of monomials over symbols, roots of whole numbers, pi, e and i.

A form is a fraction of two such sums. Two forms are the same value when their cross products are the same sum, since
distinct monomials (with the roots reduced to prime bases and exponents below one) are linearly independent over the
rationals: the roots by Besicovitch (1940), the symbols and pi as indeterminates. What is no polynomial (`sin(x)`,
`2^n`) takes part as an opaque unit named by its own form; then equality is still proved, but inequality is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from roll_verifier_math.bounds import current_meter, spend
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.nodes import App, Node, Num, Sym

Monomial = tuple[tuple[str, Fraction], ...]
Sum = dict[Monomial, Fraction]

_MAX_TERMS = 400
_MAX_POWER = 64
_MAX_RADICAND = 10**12
_MAX_TRIAL = 1000
_ONE: Sum = {(): Fraction(1)}
_HALF = Fraction(1, 2)
_TRANSCENDENTAL = frozenset({"pi", "e"})


class NoFormError(Exception):
    """A tree has no form here."""


@dataclass(frozen=True, slots=True)
class Form:
    """A fraction of two sums; `is_free` when its units are algebraically independent."""

    top: Sum
    bottom: Sum
    is_free: bool = True


def same_value(left: Node, right: Node) -> bool | None:
    """Whether two trees are equal as algebra: True or False when that is certain, else None."""
    one, two = form_of(left), form_of(right)
    if one is None or two is None:
        return None
    try:
        if one.bottom == two.bottom:
            difference = _minus(one.top, two.top)
        else:
            difference = _minus(_product(one.top, two.bottom), _product(two.top, one.bottom))
    except NoFormError:
        return None
    if not difference:
        return True
    units = {unit for monomial in difference for unit, _ in monomial}
    is_certain = one.is_free and two.is_free and not units >= _TRANSCENDENTAL
    return False if is_certain else None


def form_of(node: Node) -> Form | None:
    """The form of a tree, remembered for this comparison; None when it has none."""
    known = current_meter().forms
    if id(node) not in known:
        try:
            known[id(node)] = (form(node), node)
        except NoFormError:
            known[id(node)] = (None, node)
    found: Form | None = known[id(node)][0]
    return found


def form(node: Node) -> Form:
    """The form of a tree.

    Raises:
        NoFormError: it has none, or only a very long one.
        TooCostlyError: an exact value in it is beyond the limits, or no work is left.
    """
    spend(1)
    if isinstance(node, Num):
        return Form({(): node.value} if node.value else {}, _ONE)
    if isinstance(node, Sym):
        if node.name == "infty":
            raise NoFormError("infinite")
        return Form({((node.name, Fraction(1)),): Fraction(1)}, _ONE)
    if isinstance(node, App):
        rule = _RULES.get(node.op)
        return rule(node) if rule else _opaque(node)
    raise NoFormError("no expression")


def _add(node: App) -> Form:
    forms = [form(argument) for argument in node.args]
    result = forms[0]
    for other in forms[1:]:
        free = result.is_free and other.is_free
        if result.bottom == other.bottom:
            result = Form(_plus(result.top, other.top), result.bottom, free)
        else:
            top = _plus(_product(result.top, other.bottom), _product(other.top, result.bottom))
            result = Form(top, _product(result.bottom, other.bottom), free)
    return result


def _multiply(node: App) -> Form:
    result = form(node.args[0])
    for argument in node.args[1:]:
        other = form(argument)
        top, bottom = _product(result.top, other.top), _product(result.bottom, other.bottom)
        result = Form(top, bottom, result.is_free and other.is_free)
    return result


def _negate(node: App) -> Form:
    inner = form(node.args[0])
    return Form({monomial: -count for monomial, count in inner.top.items()}, inner.bottom, inner.is_free)


def _divide(node: App) -> Form:
    top, bottom = form(node.args[0]), form(node.args[1])
    if not bottom.top:
        raise NoFormError("a division by zero")
    return Form(_product(top.top, bottom.bottom), _product(top.bottom, bottom.top), top.is_free and bottom.is_free)


def _power(node: App) -> Form:
    exponent = exact(node.args[1])
    return _opaque(node) if exponent is None else _raised(form(node.args[0]), exponent, node)


def _exponential(node: App) -> Form:
    return _power(App("pow", (Sym("e"), node.args[0])))


def _root(node: App) -> Form:
    degree = exact(node.args[1])
    return _raised(form(node.args[0]), 1 / degree, node) if degree else _opaque(node)


def _degrees(node: App) -> Form:
    inner = form(node.args[0])
    return Form(_product(inner.top, {(("pi", Fraction(1)),): Fraction(1, 180)}), inner.bottom, inner.is_free)


def _raised(base: Form, exponent: Fraction, node: App) -> Form:
    if exponent.denominator == 1:
        return _whole_power(base, int(exponent))
    if len(base.top) == len(base.bottom) == 1:
        (top, bottom) = (next(iter(s.items())) for s in (base.top, base.bottom))
        parts = dict(top[0])
        for unit, power in bottom[0]:
            parts[unit] = parts.get(unit, Fraction(0)) - power
        if _has_root(parts):
            found = _monomial(
                [(unit, power * exponent) for unit, power in parts.items()],
                _constant_power(top[1] / bottom[1], exponent),
            )
            return Form(found, _ONE, base.is_free)
    return _opaque(node)


def _has_root(parts: dict[str, Fraction]) -> bool:
    """Whether a fractional power may be taken unit by unit: positive numbers, and one symbol to the first power."""
    others = [power for unit, power in parts.items() if power and not (unit.isdigit() or unit in _TRANSCENDENTAL)]
    return "i" not in parts and others in ([], [Fraction(1)]) and all("\0" not in unit for unit in parts)


def _whole_power(base: Form, exponent: int) -> Form:
    if exponent < 0:
        if not base.top:
            raise NoFormError("a division by zero")
        base, exponent = Form(base.bottom, base.top, base.is_free), -exponent
    if exponent > _MAX_POWER and max(len(base.top), len(base.bottom)) > 1:
        raise NoFormError("a long power")
    if len(base.top) == len(base.bottom) == 1:
        return Form(_power_of_term(base.top, exponent), _power_of_term(base.bottom, exponent), base.is_free)
    top, bottom = _ONE, _ONE
    for _ in range(exponent):
        top, bottom = _product(top, base.top), _product(bottom, base.bottom)
    return Form(top, bottom, base.is_free)


def _power_of_term(term: Sum, exponent: int) -> Sum:
    ((monomial, count),) = term.items()
    value = exact(App("pow", (Num(count), Num(Fraction(exponent)))))
    if value is None:
        raise NoFormError("no power")
    return _monomial([(unit, power * exponent) for unit, power in monomial], {(): value})


def _constant_power(value: Fraction, exponent: Fraction) -> Sum:
    """A rational number to a fractional power, as roots of primes; the square root of a negative one has i."""
    if value < 0:
        if exponent.denominator % 2:
            sign = Fraction(-1 if exponent.numerator % 2 else 1)
            return _product({(): sign}, _constant_power(-value, exponent))
        if exponent != _HALF:
            raise NoFormError("a root of a negative number")
        return _product({(("i", Fraction(1)),): Fraction(1)}, _constant_power(-value, exponent))
    powers = [(str(prime), count * exponent) for prime, count in _factors(value.numerator).items()]
    powers += [(str(prime), -count * exponent) for prime, count in _factors(value.denominator).items()]
    return _monomial(powers, _ONE)


def _factors(number: int) -> dict[int, int]:
    if number > _MAX_RADICAND:
        raise NoFormError("a large radicand")
    found: dict[int, int] = {}
    candidate = 2
    while candidate * candidate <= number:
        if candidate > _MAX_TRIAL:
            if number > _MAX_TRIAL**2:
                raise NoFormError("a radicand with large factors")
            break
        while number % candidate == 0:
            found[candidate] = found.get(candidate, 0) + 1
            number //= candidate
        candidate += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    spend(1 + candidate // 64)
    return found


def _opaque(node: App) -> Form:
    """An operation without a form of its own, as a unit named by the forms of its arguments."""
    if node.op in ("pm", "mp", "ratio", "modulo", "cup", "cap", "setminus"):
        raise NoFormError("no expression")
    name = f"\0{node.op}(" + ";".join(_name(form(argument)) for argument in node.args) + ")"
    return Form({((name, Fraction(1)),): Fraction(1)}, _ONE, is_free=False)


def _name(inner: Form) -> str:
    """A text that two forms share only when they are the same; a constant factor of both sums is taken out."""
    if not inner.top:
        return "0"
    if len(inner.bottom) == 1:
        (monomial, count) = next(iter(inner.bottom.items()))
        inverse = _monomial([(unit, -power) for unit, power in monomial], {(): 1 / count})
        return _spelt(_product(inner.top, inverse))
    lead = inner.bottom[min(inner.bottom)]
    scaled = ({m: c / lead for m, c in part.items()} for part in (inner.top, inner.bottom))
    return "/".join(_spelt(part) for part in scaled)


def _spelt(terms: Sum) -> str:
    spelt = []
    for monomial, count in sorted(terms.items()):
        units = "".join(f"*{unit}^{power}" for unit, power in monomial)
        spelt.append(f"{count.numerator:x}/{count.denominator:x}{units}")  # decimal digits have a limit in Python
    return "+".join(spelt)


# --- sums -------------------------------------------------------------------------------------------------------------


def _plus(left: Sum, right: Sum) -> Sum:
    result = dict(left)
    for monomial, count in right.items():
        total = result.get(monomial, 0) + count
        if total:
            result[monomial] = Fraction(total)
        else:
            del result[monomial]
    return result


def _minus(left: Sum, right: Sum) -> Sum:
    return _plus(left, {monomial: -count for monomial, count in right.items()})


def _product(left: Sum, right: Sum) -> Sum:
    if left is _ONE:
        return right
    if right is _ONE:
        return left
    if len(left) * len(right) > _MAX_TERMS * 8:
        raise NoFormError("a long product")
    spend(1 + len(left) * len(right) // 2)
    result: Sum = {}
    for one, a in left.items():
        for two, b in right.items():
            for monomial, count in _joined(one, two).items():
                total = result.get(monomial, 0) + count * a * b
                if total:
                    result[monomial] = Fraction(total)
                else:
                    result.pop(monomial, None)
    if len(result) > _MAX_TERMS:
        raise NoFormError("a long sum")
    return result


def _joined(one: Monomial, two: Monomial) -> Sum:
    if not one or not two:
        return {one or two: Fraction(1)}
    powers = dict(one)
    for unit, power in two:
        powers[unit] = powers.get(unit, Fraction(0)) + power
    return _monomial(list(powers.items()), _ONE)


def _monomial(powers: list[tuple[str, Fraction]], factor: Sum) -> Sum:
    """The product of units to powers, times a factor: whole powers of primes become numbers, `i` squared is -1."""
    count, kept = Fraction(1), []
    for unit, power in powers:
        if unit.isdigit():
            whole = math.floor(power)
            value = exact(App("pow", (Num(Fraction(int(unit))), Num(Fraction(whole)))))
            count *= value if value is not None else 1
            power -= whole  # noqa: PLW2901 - what is left of it
        elif unit == "i":
            if power.denominator != 1:
                raise NoFormError("a root of i")
            turns = int(power) % 4
            count *= -1 if turns >= 2 else 1
            power = Fraction(turns % 2)  # noqa: PLW2901 - what is left of it
        if power:
            kept.append((unit, power))
    return _product({tuple(sorted(kept)): count}, factor)


_RULES: dict[str, Callable[[App], Form]] = {
    "add": _add,
    "mul": _multiply,
    "neg": _negate,
    "div": _divide,
    "pow": _power,
    "root": _root,
    "deg": _degrees,
    "exp": _exponential,
}
