"""The ledger: what became of every ticket, and which mixture was really trained.

A ticket goes drawn, running, scored, admitted, trained; before trained it may be dropped, with a reason.

Filters, lost rollouts and staleness change a mixture after the draw, so target, dispatched, admitted and trained-token
shares are reported side by side. The books close at every step, for each domain: what was carried in and drawn is
trained, dropped or carried on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from roll_core.errors import RollError
from roll_core.types import Ticket


class LedgerError(RollError, RuntimeError):
    """A ticket was moved in a way the ledger does not allow, or the books do not close: a bug, never bad input."""


class TicketState(StrEnum):
    """Where a ticket stands."""

    DRAWN = "drawn"
    RUNNING = "running"
    SCORED = "scored"
    ADMITTED = "admitted"
    TRAINED = "trained"
    DROPPED = "dropped"


_COMES_FROM: dict[TicketState, frozenset[TicketState]] = {
    TicketState.RUNNING: frozenset({TicketState.DRAWN, TicketState.RUNNING}),
    TicketState.SCORED: frozenset({TicketState.RUNNING}),
    TicketState.ADMITTED: frozenset({TicketState.SCORED}),
    TicketState.TRAINED: frozenset({TicketState.ADMITTED}),
    TicketState.DROPPED: frozenset({TicketState.DRAWN, TicketState.RUNNING, TicketState.SCORED, TicketState.ADMITTED}),
}


@dataclass(slots=True)
class Entry:
    """A ticket that is neither trained nor dropped."""

    ticket: Ticket
    state: TicketState = TicketState.DRAWN
    attempt: int = -1
    """Number of the current attempt to roll it out, from 0; -1 before the first."""


@dataclass(slots=True)
class Tally:
    """Counts of one domain."""

    drawn: int = 0
    admitted: int = 0
    trained: int = 0
    trained_tokens: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped tickets by reason."""

    def since(self, earlier: Tally) -> Tally:
        """What was added after `earlier`."""
        return Tally(
            self.drawn - earlier.drawn,
            self.admitted - earlier.admitted,
            self.trained - earlier.trained,
            self.trained_tokens - earlier.trained_tokens,
            self.dropped - earlier.dropped,
        )

    def copy(self) -> Tally:
        """An independent copy."""
        return self.since(Tally())

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "drawn": self.drawn,
            "admitted": self.admitted,
            "trained": self.trained,
            "trained_tokens": self.trained_tokens,
            "dropped": dict(self.dropped),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Tally:
        """The inverse of `to_dict`."""
        return cls(**{**state, "dropped": Counter(state["dropped"])})


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """The closed books of one step, by domain."""

    step: int
    target: Mapping[str, float]
    """Share of each domain that the mixer aims at."""
    tallies: Mapping[str, Tally]
    """Counts of this step."""
    totals: Mapping[str, Tally]
    """Counts of the whole run."""
    carried: Mapping[str, int]
    """Tickets still open."""

    def mix_metrics(self) -> dict[str, float]:
        """Shares by domain, flat.

        `mixer/target/<domain>`; `mixer/dispatched|admitted|trained_tokens/<domain>` of this step, and the same under
        `mixer/run_...` of the whole run (absent while a sum is 0); `mixer/dropped/<domain>/<reason>` and
        `mixer/carried/<domain>` are counts.
        """
        metrics = {f"mixer/target/{name}": share for name, share in self.target.items()}
        for prefix, tallies in (("", self.tallies), ("run_", self.totals)):
            counts = {
                "dispatched": {name: tally.drawn for name, tally in tallies.items()},
                "admitted": {name: tally.admitted for name, tally in tallies.items()},
                "trained_tokens": {name: tally.trained_tokens for name, tally in tallies.items()},
            }
            for key, by_domain in counts.items():
                total = sum(by_domain.values())
                if total:
                    metrics |= {f"mixer/{prefix}{key}/{name}": count / total for name, count in by_domain.items()}
        for name, tally in self.tallies.items():
            metrics |= {f"mixer/dropped/{name}/{reason}": float(n) for reason, n in sorted(tally.dropped.items())}
        return metrics | {f"mixer/carried/{name}": float(count) for name, count in self.carried.items()}


class Ledger:
    """Keeps the state of every open ticket, and counts of those that are done.

    Args:
        domains: names of the run's domains.
    """

    def __init__(self, domains: Iterable[str]) -> None:
        self._totals = {name: Tally() for name in domains}
        self._closed = {name: Tally() for name in self._totals}
        self._open: dict[int, Entry] = {}
        self._next_id = 0

    @property
    def open_tickets(self) -> list[Entry]:
        """Entries that are neither trained nor dropped, by ticket id."""
        return [self._open[id_] for id_ in sorted(self._open)]

    def state_of(self, ticket_id: int) -> TicketState | None:
        """State of an open ticket; None for one that is done or was never drawn."""
        entry = self._open.get(ticket_id)
        return None if entry is None else entry.state

    def draw(self, tickets: Iterable[Ticket]) -> None:
        """Enter new tickets, in the order of their ids."""
        for ticket in tickets:
            if ticket.id < self._next_id:
                raise LedgerError(f"ticket {ticket.id} was drawn before; the next new one is {self._next_id}")
            if ticket.domain not in self._totals:
                raise LedgerError(f"ticket {ticket.id} is of domain '{ticket.domain}', which the ledger does not know")
            self._open[ticket.id] = Entry(ticket)
            self._totals[ticket.domain].drawn += 1
            self._next_id = ticket.id + 1

    def run(self, ticket_id: int) -> int:
        """A rollout of the ticket starts, for the first time or again; returns the number of the attempt, from 0."""
        entry = self._move(ticket_id, TicketState.RUNNING)
        entry.attempt += 1
        return entry.attempt

    def requeue(self, kept: Collection[int]) -> list[Ticket]:
        """Put open tickets back to where they were drawn, except those whose rollouts were `kept`; returns them.

        For a run that goes on from a checkpoint: their next rollout counts as a new attempt.
        """
        lost = [entry for entry in self.open_tickets if entry.ticket.id not in kept]
        for entry in lost:
            if entry.state is TicketState.ADMITTED:
                self._totals[entry.ticket.domain].admitted -= 1
            entry.state = TicketState.DRAWN
        return [entry.ticket for entry in lost]

    def score(self, ticket_id: int, attempt: int | None = None) -> None:
        """All rollouts of the ticket's group are scored.

        Args:
            ticket_id: the ticket.
            attempt: which attempt the results belong to; a stale one is refused.
        """
        entry = self._open.get(ticket_id)
        if entry is not None and attempt is not None and attempt != entry.attempt:
            raise LedgerError(
                f"results of attempt {attempt} of ticket {ticket_id} are stale: {entry.attempt} is current"
            )
        self._move(ticket_id, TicketState.SCORED)

    def admit(self, ticket_id: int) -> None:
        """The group passed all filters."""
        entry = self._move(ticket_id, TicketState.ADMITTED)
        self._totals[entry.ticket.domain].admitted += 1

    def train(self, ticket_id: int, tokens: int) -> None:
        """An update has used the group.

        Args:
            ticket_id: the ticket.
            tokens: tokens of the group that entered the loss.
        """
        if tokens < 0:
            raise LedgerError(f"ticket {ticket_id} cannot be trained on {tokens} tokens")
        entry = self._move(ticket_id, TicketState.TRAINED)
        tally = self._totals[entry.ticket.domain]
        tally.trained += 1
        tally.trained_tokens += tokens
        del self._open[ticket_id]

    def drop(self, ticket_id: int, reason: str) -> None:
        """The group is not used.

        Args:
            ticket_id: the ticket.
            reason: a short word ("all_equal", "unscored", "surplus", "stale").
        """
        if not reason:
            raise LedgerError(f"ticket {ticket_id} cannot be dropped without a reason")
        entry = self._move(ticket_id, TicketState.DROPPED)
        self._totals[entry.ticket.domain].dropped[reason] += 1
        del self._open[ticket_id]

    def close(self, step: int, target: Mapping[str, float]) -> LedgerReport:
        """Close the books of a step.

        Args:
            step: the step.
            target: the mixer's `weights(step)`.

        Raises:
            LedgerError: for some domain, tickets were lost or counted twice.
        """
        carried = dict.fromkeys(self._totals, 0)
        for entry in self._open.values():
            carried[entry.ticket.domain] += 1
        for name, tally in self._totals.items():
            done = tally.trained + tally.dropped.total() + carried[name]
            if tally.drawn != done:
                raise LedgerError(
                    f"the books of domain '{name}' do not close at step {step}: {tally.drawn} drawn, but "
                    f"{tally.trained} trained + {tally.dropped.total()} dropped + {carried[name]} carried = {done}"
                )
        step_tallies = {name: tally.since(self._closed[name]) for name, tally in self._totals.items()}
        self._closed = {name: tally.copy() for name, tally in self._totals.items()}
        return LedgerReport(step, dict(target), step_tallies, self._closed, carried)

    def state_dict(self) -> dict[str, Any]:
        """Counts and open tickets (JSON)."""
        return {
            "next_id": self._next_id,
            "totals": {name: tally.to_dict() for name, tally in self._totals.items()},
            "closed": {name: tally.to_dict() for name, tally in self._closed.items()},
            "open": [
                [e.ticket.id, e.ticket.domain, e.ticket.prompt_id, e.ticket.position, e.state.value, e.attempt]
                for e in self.open_tickets
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; domains that were added since start at 0.

        Raises:
            LedgerError: the state has a domain the ledger does not know.
        """
        unknown = [name for name in state["totals"] if name not in self._totals]
        if unknown:
            raise LedgerError(f"the saved ledger has domains this run lacks: {', '.join(unknown)}")
        for name in self._totals:
            empty = Tally().to_dict()
            self._totals[name] = Tally.from_dict(state["totals"].get(name, empty))
            self._closed[name] = Tally.from_dict(state["closed"].get(name, empty))
        self._open = {row[0]: Entry(Ticket(*row[:4]), TicketState(row[4]), int(row[5])) for row in state["open"]}
        self._next_id = int(state["next_id"])

    def _move(self, ticket_id: int, to: TicketState) -> Entry:
        entry = self._open.get(ticket_id)
        if entry is None:
            known = "is trained or dropped already" if 0 <= ticket_id < self._next_id else "was never drawn"
            raise LedgerError(f"ticket {ticket_id} cannot become '{to}': it {known}")
        if entry.state not in _COMES_FROM[to]:
            raise LedgerError(
                f"ticket {ticket_id} of domain '{entry.ticket.domain}' is '{entry.state}' and cannot become '{to}'"
            )
        entry.state = to
        return entry
