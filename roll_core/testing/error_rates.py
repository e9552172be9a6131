"""Error rates of a verifier, per kind of case with their intervals, and the table a README shows."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roll_core.testing.golden import Judged

_Z = 1.959963984540054
"""Half width of a 95 % interval in standard deviations."""

BLOCK = re.compile(r"(<!-- rates:(?P<component>[\w./-]+) -->\n).*?(<!-- /rates -->)", re.DOTALL)
"""Where a README shows the rates of a component."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of cases with its 95 % Wilson interval; NaN without cases."""

    errors: int
    total: int

    @property
    def share(self) -> float:
        """Errors among all cases."""
        return self.errors / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval (E. B. Wilson, 1927)."""
        if not self.total:
            return math.nan, math.nan
        n, p = self.total, self.share
        middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        if not self.total:
            return "-"
        low, high = self.interval
        return f"{self.errors}/{self.total} [{low:.1%}, {high:.1%}]"


@dataclass(frozen=True, slots=True)
class KindRates:
    """Error rates of one kind of case."""

    kind: str
    false_positives: Rate
    """CORRECT among the cases that are not."""
    false_negatives: Rate
    """Scored below 1, or not scored, among the cases that are right."""
    unscored: int
    """Cases without a score although the label has one."""


def rates(judged: Sequence[Judged]) -> list[KindRates]:
    """Rates per kind in alphabetical order, and over "all"; disputed rows are left out."""
    counted = [j for j in judged if not j.row.disputed]
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for one in counted:
        by_kind[one.row.kind].append(one)
    groups: list[tuple[str, Sequence[Judged]]] = [*sorted(by_kind.items()), ("all", counted)]
    return [_kind_rates(kind, rows) for kind, rows in groups]


def _kind_rates(kind: str, rows: Sequence[Judged]) -> KindRates:
    right = [j for j in rows if j.row.expected is True]
    wrong = [j for j in rows if j.row.expected is not True]
    return KindRates(
        kind,
        false_positives=Rate(sum(j.found is True for j in wrong), len(wrong)),
        false_negatives=Rate(sum(j.found is not True for j in right), len(right)),
        unscored=sum(j.found is None and j.row.expected is not None for j in rows),
    )


def as_markdown(component: str, judged: Sequence[Judged]) -> str:
    """The table of a README, with the command that measures it again."""
    disputed = sum(j.row.disputed for j in judged)
    apart = f"; {disputed} disputed ones are left out" if disputed else ""
    lines = [
        f"Measured by `roll plugins rates {component}` over the {len(judged) - disputed} labelled answers that",
        f"the package ships{apart}; in brackets 95 % intervals (Wilson).",
        "The package was developed with these answers in sight.",
        "",
        "| kind | wrong, yet accepted | right, yet refused | no score |",
        "|---|---|---|---|",
    ]
    for one in rates(judged):
        lines.append(f"| {one.kind} | {one.false_positives} | {one.false_negatives} | {one.unscored} |")
    return "\n".join(lines) + "\n"


def fill_blocks(readme: str, tables: Mapping[str, Sequence[Judged]]) -> str:
    """The text of a README with the rate blocks of the components in `tables` filled in."""

    def fill(match: re.Match[str]) -> str:
        component = match["component"]
        return match[1] + as_markdown(component, tables[component]) + match[3] if component in tables else match[0]

    return BLOCK.sub(fill, readme)
