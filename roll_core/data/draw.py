"""The draw: the mixer names domains, their streams give prompts, every one gets a ticket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.contracts import Mixer
from roll_core.data.streams import DomainStream
from roll_core.errors import ComponentError, ConfigError, near_match
from roll_core.types import Prompt, Ticket


class Draw:
    """Draws prompts over all domains.

    Args:
        streams: one stream per domain.
        mixer: decides which domain each prompt comes from.
    """

    def __init__(self, streams: Mapping[str, DomainStream], mixer: Mixer) -> None:
        self.streams = dict(streams)
        self.mixer = mixer
        self._next_ticket = 0

    @property
    def available(self) -> list[str]:
        """Domains that have not ended, in the order of the config."""
        return [name for name, stream in self.streams.items() if not stream.ended]

    @property
    def ended(self) -> bool:
        """Whether every domain has ended."""
        return not self.available

    def draw(self, count: int, step: int) -> list[tuple[Ticket, Prompt]]:
        """Draw the next `count` prompts; fewer, or none, when all domains end before.

        Args:
            count: prompts wanted.
            step: the step they are for.

        Raises:
            ComponentError: the mixer names an unknown or ended domain, or not as many as asked.
        """
        drawn: list[tuple[Ticket, Prompt]] = []
        while len(drawn) < count:
            available = self.available
            if not available:
                break
            # A domain that does not repeat may end with any draw, so the mixer is asked one by one.
            endless = all(self.streams[name].repeats for name in available)
            drawn.extend(self._take(name) for name in self._ask(count - len(drawn) if endless else 1, step, available))
        return drawn

    def prompt_of(self, ticket: Ticket) -> Prompt:
        """The prompt of a ticket that was drawn before, read from the data again.

        Raises:
            ConfigError: the data are not those it was drawn from.
        """
        prompt = self.streams[ticket.domain].prompt_at(ticket.position)
        if prompt.id != ticket.prompt_id:
            raise ConfigError(
                f"domains.{ticket.domain}.data has prompt '{prompt.id}' where '{ticket.prompt_id}' was drawn; resume "
                "with the same data and order"
            )
        return prompt

    def metrics(self) -> dict[str, float]:
        """`data/left_out/<domain>/<reason>`: rows passed over so far; `data/epoch/<domain>`: passes over the rows."""
        flat = {f"data/epoch/{name}": float(stream.epoch) for name, stream in self.streams.items()}
        for name, stream in self.streams.items():
            flat |= {f"data/left_out/{name}/{reason}": float(n) for reason, n in stream.skipped.items()}
        return flat

    def state_dict(self) -> dict[str, Any]:
        """Mixer state, stream positions and the next ticket's id (JSON)."""
        return {
            "next_ticket": self._next_ticket,
            "mixer": self.mixer.state_dict(),
            "streams": {name: stream.state_dict() for name, stream in self.streams.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. Domains that were added since start from their beginning.

        Raises:
            ConfigError: a domain of the state is missing here, or its data set has changed.
        """
        saved = state["streams"]
        missing = [name for name in saved if name not in self.streams]
        if missing:
            added = [name for name in self.streams if name not in saved]
            hints = "".join(near_match(name, added) for name in missing)
            raise ConfigError(
                f"the checkpoint was made with domains {', '.join(saved)}, but the config lacks {', '.join(missing)}"
                f"{hints}; a resumed run may add domains, not remove or rename them"
            )
        for name, stream_state in saved.items():
            self.streams[name].load_state_dict(stream_state)
        self.mixer.load_state_dict(state["mixer"])
        self._next_ticket = int(state["next_ticket"])

    def _ask(self, count: int, step: int, available: list[str]) -> list[str]:
        names = self.mixer.draw(count, step=step, available=available)
        mixer = type(self.mixer).__name__
        if len(names) != count:
            raise ComponentError(f"mixer {mixer} named {len(names)} domains, asked for {count}")
        foreign = sorted(set(names) - set(available))
        if foreign:
            raise ComponentError(f"mixer {mixer} named {', '.join(foreign)}; available domains: {', '.join(available)}")
        return names

    def _take(self, domain: str) -> tuple[Ticket, Prompt]:
        position, prompt = self.streams[domain].draw()
        ticket = Ticket(self._next_ticket, domain, prompt.id, position)
        self._next_ticket += 1
        return ticket, prompt
