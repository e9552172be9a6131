"""Held-out prompts for evaluation, and whether training sees them too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roll_core.config.schema import DataConfig
from roll_core.contracts import Source
from roll_core.data.prompts import PromptBuilder
from roll_core.data.rows import RowError
from roll_core.types import Prompt


@dataclass(frozen=True, slots=True)
class Overlap:
    """`shared` of `held_out` prompts also occur among the `rows` training rows that were looked at."""

    shared: int
    held_out: int
    rows: int


class HeldOut:
    """The held-out prompts of a domain, in the order of their rows; their ids begin with `<domain>/held_out`.

    Args:
        domain: name of the domain.
        data: the resolved `eval_data` (`config.resolve.resolve_eval_data`).
        source: the held-out rows.
        tokenizer: a Hugging Face tokenizer.
        max_prompt_tokens: longer prompts are left out.
        limit: take the first usable prompts only.

    Raises:
        DataError: as `PromptBuilder`.
    """

    def __init__(
        self,
        domain: str,
        data: DataConfig,
        source: Source,
        tokenizer: Any,
        *,
        max_prompt_tokens: int,
        limit: int | None = None,
    ) -> None:
        prefix = f"{domain}/held_out"
        self.builder = PromptBuilder(
            domain, data, source, tokenizer, max_prompt_tokens=max_prompt_tokens, id_prefix=prefix, key="eval_data"
        )
        chosen = list(itertools.islice(self.builder.usable(), limit))
        self.rows = tuple(index for index, _ in chosen)
        self.prompts: tuple[Prompt, ...] = tuple(prompt for _, prompt in chosen)

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.prompts)

    def overlap(self, train: PromptBuilder, *, max_rows: int = 100_000) -> Overlap:
        """Count held-out rows that ask, word for word, what a training row asks.

        System messages and examples are not compared.

        Args:
            train: training rows of the same domain.
            max_rows: training rows to look at, so that a huge set does not delay the start.
        """
        asked = [self.builder.question(index) for index in self.rows]
        wanted = set(asked)
        rows = min(len(train), max_rows)
        seen = {question for question in _questions(train, rows) if question in wanted}
        return Overlap(sum(question in seen for question in asked), len(asked), rows)


def _questions(builder: PromptBuilder, rows: int) -> Iterator[str]:
    for index in range(rows):
        try:
            yield builder.question(index)
        except RowError:  # such a row is never drawn; the builder counts it
            continue
