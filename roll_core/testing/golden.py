r"""Golden tables: labelled answers that a verifier's package ships, and the error rates measured on them.

A table is a JSON-lines file inside the package, one labelled answer a line:

    {"id": "m1", "kind": "interval", "response": "[0, 1)", "reference": "0 \\le x < 1", "expected": true,
     "config": {"form": "answer"}, "options": {}, "disputed": false}

`expected` says whether the verdict must be CORRECT with score 1; `config` holds options of the component, `options`
keyword arguments of `verify`; rows marked `disputed` are counted apart.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import inspect
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import PluginError
from roll_core.plugin.component import Component
from roll_core.testing.cases import VerifierCases, origin_of
from roll_core.types import Status, Verdict

_Z = 1.959963984540054
"""Half width of a 95 % interval in standard deviations."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One labelled answer."""

    id: str
    kind: str
    response: str
    reference: Any
    expected: bool
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    disputed: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A row and what the verifier said: True (right), False (scored below 1), None (no score)."""

    row: GoldenRow
    found: bool | None
    seconds: float
    said: str = ""
    """Status and detail of the verdict."""

    @property
    def is_error(self) -> bool:
        """Whether the finding differs from the label."""
        return self.found is not self.row.expected


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


@dataclass(frozen=True, slots=True)
class KindRates:
    """Error rates of one kind of case."""

    kind: str
    false_positives: Rate
    """CORRECT among the cases that are not."""
    false_negatives: Rate
    """Scored below 1, or not scored, among the cases that are right."""
    unscored: int
    """Cases without a score, right or wrong ones."""


def read_golden(component: Component, cases: VerifierCases) -> list[GoldenRow]:
    """Rows of the golden table that `cases.golden` names, out of the component's package.

    Raises:
        PluginError: the file is not there, or a line is no row; the message names file and line.
    """
    if cases.golden is None:
        return []
    package = origin_of(component).partition(":")[0].partition(".")[0]
    file = importlib.resources.files(package) / cases.golden
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PluginError(f"golden table '{cases.golden}' of package '{package}' cannot be read: {error}") from error
    return [_row(line, f"{package}/{cases.golden}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _row(line: str, where: str) -> GoldenRow:
    try:
        row = GoldenRow(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise PluginError(f"{where} is no golden row: {error}") from error
    if not (isinstance(row.response, str) and isinstance(row.expected, bool)):
        raise PluginError(f"{where}: 'response' must be text and 'expected' true or false")
    return row


def judge_rows(component: Component, cases: VerifierCases, rows: Iterable[GoldenRow]) -> Iterator[Judged]:
    """Judge each row with the component, built once per distinct `config`."""
    built: dict[str, Any] = {}
    base = dict(cases.options) if isinstance(cases.options, Mapping) else {}
    for row in rows:
        key = json.dumps(row.config, sort_keys=True)
        if key not in built:
            built[key] = component.build({**base, **row.config})
        start = time.perf_counter()
        found, said = (cases.judge_golden or _judge)(built[key], row)
        yield Judged(row, found, time.perf_counter() - start, said)


def _judge(verifier: Any, row: GoldenRow) -> tuple[bool | None, str]:
    result = verifier.verify(row.response, row.reference, **row.options)
    verdict: Verdict = asyncio.run(_wait(result)) if inspect.isawaitable(result) else result
    said = f"{verdict.status}/{verdict.detail}" if verdict.detail else str(verdict.status)
    return (verdict.status is Status.CORRECT and verdict.score == 1.0) if verdict.score is not None else None, said


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def rates(judged: Sequence[Judged]) -> list[KindRates]:
    """Rates per kind in alphabetical order, and over "all"; disputed rows are left out."""
    counted = [j for j in judged if not j.row.disputed]
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for one in counted:
        by_kind[one.row.kind].append(one)
    groups: list[tuple[str, Sequence[Judged]]] = [*sorted(by_kind.items()), ("all", counted)]
    return [_kind_rates(kind, rows) for kind, rows in groups]


def _kind_rates(kind: str, rows: Sequence[Judged]) -> KindRates:
    right = [j for j in rows if j.row.expected]
    wrong = [j for j in rows if not j.row.expected]
    return KindRates(
        kind,
        false_positives=Rate(sum(j.found is True for j in wrong), len(wrong)),
        false_negatives=Rate(sum(j.found is not True for j in right), len(right)),
        unscored=sum(j.found is None for j in rows),
    )
