"""Handlers and bounds for the tests; imported by worker processes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from roll_core.roles import RoleLimits

QUICK = RoleLimits(start_s=90.0, silence_s=60.0, failures=3, longest_pause_s=1.0)


class Toy:
    """Does what the request says."""

    def __init__(self, fail_when=None):
        if fail_when and Path(fail_when).exists():
            raise ValueError("cannot be built any more")
        self.served = 0
        self.memory = 0
        self.given_up = 0

    async def serve(self, request):
        word, _, argument = request.decode().partition(":")
        self.served += 1
        if word == "sleep":
            try:
                await asyncio.sleep(float(argument))
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        elif word == "exit":
            os._exit(7)
        elif word == "exit_after":
            await asyncio.sleep(float(argument))
            os._exit(7)
        elif word == "block":
            time.sleep(float(argument))
        elif word == "raise":
            raise ValueError(argument)
        elif word == "leave":
            raise SystemExit(argument)
        elif word == "add":
            self.memory += int(argument)
            return str(self.memory).encode()
        elif word == "given_up":
            return str(self.given_up).encode()
        elif word == "pid":
            return str(os.getpid()).encode()
        return request

    def facts(self):
        return "toy"

    def vitals(self):
        return {"served": self.served}

    async def close(self):
        await asyncio.sleep(0)


async def open_toy(**kwargs):
    await asyncio.sleep(0)
    return Toy(**kwargs)
