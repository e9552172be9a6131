r"""Golden tables: labelled answers that a verifier's package ships, and how they are judged.

A table is a JSON-lines file inside the package, one labelled answer a line:

    {"id": "m1", "kind": "interval", "response": "[0, 1)", "reference": "0 \\le x < 1", "expected": true,
     "config": {"form": "answer"}, "options": {}, "disputed": false}

`expected` says whether the verdict must be CORRECT with score 1 (null: it must carry no score); `config` holds options
of the component, `options` keyword arguments of `verify`; rows marked `disputed` are counted apart.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import inspect
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import PluginError
from roll_core.plugin.component import Component
from roll_core.testing.cases import VerifierCases, origin_of
from roll_core.types import Status, Verdict


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One labelled answer."""

    id: str
    kind: str
    response: str
    reference: Any
    expected: bool | None
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
    if not (isinstance(row.response, str) and (row.expected is None or isinstance(row.expected, bool))):
        raise PluginError(f"{where}: 'response' must be text and 'expected' true, false or null")
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
