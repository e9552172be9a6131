"""The order in which the prompts of one domain are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from roll_core.data.prompts import PromptBuilder
from roll_core.data.seeds import keyed_order
from roll_core.errors import ConfigError
from roll_core.types import IndexArray, Prompt


class DomainStream:
    """Walks over the rows of a domain, in an order that depends on (seed, domain, epoch) alone.

    Positions count on over epochs: position `p` is row `order(p // rows)[p % rows]`, so a position is all there is to
    resume. Rows that are left out are passed over and counted each time they come up.

    Args:
        builder: makes prompts of rows.
        seed: the run's seed.
    """

    def __init__(self, builder: PromptBuilder, *, seed: int) -> None:
        self.builder = builder
        self._seed = seed
        self._position = 0
        self._next: Prompt | None = None
        self._skipped: Counter[str] = Counter()
        self._epoch = -1
        self._order: IndexArray = np.zeros(0, np.int64)

    @property
    def domain(self) -> str:
        """Name of the domain."""
        return self.builder.domain

    @property
    def repeats(self) -> bool:
        """Whether the domain starts again when its rows are used up."""
        return self.builder.data.repeat

    @property
    def position(self) -> int:
        """Position of the next prompt (of the end, when there is none)."""
        self._advance()
        return self._position

    @property
    def epoch(self) -> int:
        """How often the rows have been used up."""
        return self.position // len(self.builder)

    @property
    def ended(self) -> bool:
        """Whether no prompt is left."""
        self._advance()
        return self._next is None

    @property
    def skipped(self) -> dict[str, int]:
        """Rows passed over so far, by reason."""
        return dict(self._skipped)

    def draw(self) -> tuple[int, Prompt]:
        """The next prompt and its position.

        Raises:
            IndexError: the domain has ended.
        """
        self._advance()
        if self._next is None:
            raise IndexError(f"domain '{self.domain}' has ended")
        drawn = (self._position, self._next)
        self._next = None
        self._position += 1
        return drawn

    def prompt_at(self, position: int) -> Prompt:
        """The prompt that was drawn at a position.

        Raises:
            ConfigError: its row is left out now, hence the data are not those it was drawn from.
        """
        prompt = self.builder.build(self._row(position))
        if prompt is None:
            raise ConfigError(f"domains.{self.domain}.data: position {position}, drawn before, is no usable row now")
        return prompt

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands (JSON)."""
        self._advance()
        return {"position": self._position, "rows": len(self.builder), "skipped": dict(self._skipped)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position; costs one shuffle, whatever the position.

        Raises:
            ConfigError: the data set has another number of rows than it had then.
        """
        if state["rows"] != len(self.builder):
            raise ConfigError(
                f"domains.{self.domain}.data has {len(self.builder)} rows, the checkpoint was made with "
                f"{state['rows']}; resume with the same data and limit, or start a new run"
            )
        self._position = int(state["position"])
        self._skipped = Counter(state["skipped"])
        self._next = None

    def _advance(self) -> None:
        """Find the next usable prompt. Ends, since a builder has at least one."""
        while self._next is None and (self.repeats or self._position < len(self.builder)):
            index = self._row(self._position)
            self._next = self.builder.build(index)
            if self._next is None:
                self._skipped[self.builder.left_out[index].reason] += 1
                self._position += 1

    def _row(self, position: int) -> int:
        epoch, offset = divmod(position, len(self.builder))
        if not self.builder.data.shuffle:
            return offset
        if epoch != self._epoch:
            self._order = keyed_order(len(self.builder), self._seed, "shuffle", self.domain, epoch)
            self._epoch = epoch
        return int(self._order[offset])
