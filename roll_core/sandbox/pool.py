"""The zygotes of a sandbox at its level; one that dies is replaced by the next run that comes to it."""

from __future__ import annotations

import itertools
import threading

from roll_core.sandbox.channel import Channel
from roll_core.sandbox.selftest import attack
from roll_core.sandbox.settings import Settings
from roll_core.sandbox.types import Level, SandboxError


class Pool:
    """A fixed number of zygotes, each tested by real attacks before it gets a program."""

    def __init__(self, settings: Settings, level: Level) -> None:
        """Start them.

        Raises:
            SandboxError: the level does not hold here; the message says why.
        """
        self.level = level
        self._python = settings.python
        self._config = settings.for_zygote(level)
        self._turns = itertools.count()
        self._is_closed = False
        self._slots = [_Slot() for _ in range(settings.zygotes)]
        try:
            for slot in self._slots:
                slot.channel = self.private()
        except BaseException:
            self.close()
            raise

    def shared(self) -> Channel:
        """A living zygote, each in turn.

        Raises:
            SandboxError: one had died and cannot be started again, or the sandbox is closed.
        """
        slot = self._slots[next(self._turns) % len(self._slots)]
        with slot.lock:
            if slot.channel is None or slot.channel.is_dead:
                if slot.channel is not None:
                    slot.channel.close()
                    slot.channel = None
                slot.channel = self.private()
            return slot.channel

    def private(self) -> Channel:
        """A zygote of the caller's own, who closes it.

        Raises:
            SandboxError: it does not start, an attack on it succeeded, or the sandbox is closed.
        """
        if self._is_closed:
            raise SandboxError("the sandbox is closed")
        channel = Channel(self._python, self._config)
        try:
            attack(channel, self._config)
        except BaseException:
            channel.close()
            raise
        return channel

    def close(self) -> None:
        """End all zygotes and their runs."""
        self._is_closed = True
        for slot in self._slots:
            with slot.lock:
                channel, slot.channel = slot.channel, None
            if channel is not None:
                channel.close()

    def abandon(self) -> None:
        """In a forked copy of the host: forget the zygotes; no lock is taken, its holder may not exist here."""
        self._is_closed = True
        for slot in self._slots:
            if slot.channel is not None:
                slot.channel.abandon()
                slot.channel = None


class _Slot:
    """A place for one zygote."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.channel: Channel | None = None
